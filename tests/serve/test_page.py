"""The chat page: how it is served, and what it does in a real browser, with a server and with answers made up."""

import base64
import hashlib
import re
import threading

import pytest
from tests.serve.chat import SCRIPTED, Chat
from tests.serve.conftest import served


@pytest.fixture(scope="module")
def page(running):
    return running.http.get("/")


@pytest.fixture
def chat(browser, running):
    tab = browser.open(running.url)
    return Chat(tab)


@pytest.fixture
def scripted(chat):
    chat.run(SCRIPTED)
    return chat


def hashed(text):
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_a_browser_may_run_its_own_script_alone(page):
    assert page.status_code == 200 and page.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(one.split(" ", 1) for one in page.headers["content-security-policy"].split("; "))
    (script,) = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", page.text, re.DOTALL)
    assert policy["script-src"] == hashed(script) and policy["style-src"] == hashed(style)
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["connect-src"] == "'self'" and "unsafe" not in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff" and page.headers["referrer-policy"] == "no-referrer"


def test_it_names_no_other_place_and_no_way_to_put_html_in(page):
    assert not re.search(r"//(?! )", page.text)  # all are comments
    assert not re.search(
        r"\son\w+=|javascript:|innerHTML|outerHTML|insertAdjacentHTML|eval\(|document\.write", page.text
    )
    assert re.findall(r"\b(?:src|href)=\"(.*?)\"", page.text) == ["data:,", "#prompt"]


def test_models_say_what_is_in_memory(folder, tmp_path):
    models = {"tiny": folder, "twin": folder, "other": str(tmp_path / "other")}
    with served(models) as one:
        one.ready()
        (opened,) = one.service.library.in_memory
        loaded = {"loaded": True, "bytes": opened.opened.nbytes}
        listed = {each["id"]: each["tilepress"] for each in one.http.get("/v1/models").json()["data"]}
        assert listed == {"tiny": loaded, "twin": loaded, "other": {"loaded": False, "bytes": None}}
        assert one.http.get("/v1/models/twin").json()["tilepress"] == loaded
        assert one.http.get("/v1/models/none").status_code == 404


def test_answers_are_the_servers(chat, running):
    seen = chat.run("""
        await until(() => $("model").value === "tiny");
        $("temperature").value = "0"; $("max-tokens").value = "20"; $("seed").value = "3";
        type("hello");
        await idle();
        const first = all(".words")[0].textContent;
        type("and more");
        await idle();
        await until(() => texts("dl").every((one) => one.includes("iB")));
        return { first, words: all(".words").map((one) => one.textContent), figures: texts("dl")[0],
          said: $("status").textContent, memory: $("memory").textContent, prompt: $("prompt").value,
          busy: all("[aria-busy]").length };
    """)
    said = [{"role": "user", "content": "hello"}]
    for answer in seen["words"]:
        body = {"messages": said, "temperature": 0, "max_tokens": 20}
        text = running.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"]
        assert re.sub(r"\s", "", answer) == re.sub(r"\s|```", "", text) != ""
        said += [{"role": "assistant", "content": text}, {"role": "user", "content": "and more"}]
    assert seen["prompt"] == "" and seen["busy"] == 0 and seen["said"] == "tiny: the answer is complete."
    assert "20" in seen["figures"] and "≈" not in seen["figures"]
    assert seen["memory"].endswith("iB with cache") and chat.tab.problems == []
    assert all(one.startswith((running.url, "data:")) for one in chat.tab.requests)


def test_an_answer_that_is_stopped_keeps_what_there_is(chat, running):
    chat.run("await until(() => $('model').value); $('temperature').value = '0'; $('max-tokens').value = '';")
    gate, run = threading.Semaphore(6), running.engine.runner.run
    running.engine.runner.run = lambda chunks: gate.acquire(timeout=30) and run(chunks)
    try:
        partial = chat.run("""
            type("hello");
            await until(() => all(".words")[0]?.textContent);
            const answer = all(".answer")[0];
            const seen = [answer.getAttribute("aria-busy"), $("send").hidden, $("status").textContent];
            press("Escape");
            await idle();
            return [...seen, all(".words")[0].textContent, texts(".note").join(" ")];
        """)
    finally:
        gate.release(1000)
        running.engine.runner.run = run
    assert partial[:3] == ["true", True, ""] and partial[3] and "Stopped." in partial[4]
    assert running.settled(lambda: running.engine.idle and not running.service.admission.inside)
    assert running.engine.stats.pages_used == 0


def test_a_key_is_asked_for_and_stays_in_the_tab(browser, folder):
    with served({"tiny": folder}, keys={"key-of-alice": "alice"}) as one:
        chat = Chat(browser.open(one.ready().url))
        seen = chat.run("""
            await until(() => !$("key-form").hidden);
            const seen = [$("problem").textContent, document.activeElement.id];
            type("hello");
            await idle();
            seen.push(texts(".answer .problem")[0], $("prompt").value);
            const give = async (key) => { $("key").value = key; $("key-form").requestSubmit(); };
            await give("key-of-eve");
            seen.push($("key-form").hidden);
            await until(() => !$("key-form").hidden);
            await give("key-of-alice");
            await until(() => $("model").value === "tiny");
            seen.push($("key-form").hidden, $("problem").hidden, $("key").value);
            $("max-tokens").value = "4";
            press("Enter");
            await idle();
            return [...seen, all("article").length, texts(".words")[0] !== "", localStorage.length, document.cookie];
        """)
    wants = "The server wants an API key that it knows."
    assert seen == [wants, "key", wants, "hello", True, True, True, "", 1, True, 0, ""]


def test_two_models_are_asked_at_the_same_time(browser, folder):
    with served({"tiny": folder, "twin": folder}) as one:
        chat = Chat(browser.open(one.ready().url))
        seen = chat.run("""
            await until(() => $("model").value);
            $("temperature").value = "0"; $("max-tokens").value = "12";
            type("before");
            await idle();
            $("compare").click();
            const chosen = [$("model").value, $("against").value];
            type("hello");
            const busy = all("[aria-busy]").length;
            await idle();
            await until(() => texts("dl").every((one) => one.includes("iB")));
            const boxes = all(".answer").slice(1).map((one) => one.getBoundingClientRect());
            return { chosen, busy, words: all(".words").map((one) => one.textContent), names: texts("h4"),
              figures: texts("dl"), beside: boxes[0].top === boxes[1].top && boxes[0].right <= boxes[1].left,
              said: $("status").textContent };
        """)
    assert seen["chosen"] == ["tiny", "twin"] == seen["names"][1:] and seen["busy"] == 2 and seen["beside"]
    assert seen["words"][1] == seen["words"][2] != "" and len(seen["words"]) == 3
    assert all("First token" in one and "iB" in one for one in seen["figures"])
    assert seen["said"] == "tiny: the answer is complete. twin: the answer is complete."


def test_text_is_shown_as_text(scripted):
    seen = scripted.run("""
        const text = "one <img src=x onerror='window.hacked=1'>\\nline\\n\\ntwo\\n```js\\nlet a;\\n\\n</pre>\\n```\\n";
        const encoded = new TextEncoder().encode(piece(text + "three ä€😀") + "data: [DONE]\\n\\n");
        reply = () => stream(...[...encoded].map((byte) => new Uint8Array([byte])));
        type("<b>bold</b>");
        await idle();
        return [all(".words > *").map((one) => [one.localName, one.textContent]), all("img, b").length,
          window.hacked ?? null, texts(".asked")];
    """)
    pieces = [["p", "one <img src=x onerror='window.hacked=1'>\nline"], ["p", "two"], ["pre", "let a;\n\n</pre>"]]
    assert seen == [[*pieces, ["p", "three ä€😀"]], 0, None, ["<b>bold</b>"]]


def test_it_grows_piece_by_piece_and_is_announced_once(scripted):
    """A server's pieces may come all at once, and then there is no speed: here they come one by one."""
    seen = scripted.run("""
        let more;
        reply = () => new Response(new ReadableStream({ start(control) { more = control; } }));
        type("hello");
        await until(() => more);
        const said = [];
        new MutationObserver(() => said.push($("status").textContent)).observe($("status"), { childList: true });
        const send = (text) => more.enqueue(new TextEncoder().encode(text));
        const seen = [texts(".waiting")];
        for (const word of ["one", " two", " three"]) {
            send(piece(word));
            await until(() => texts(".words")[0].endsWith(word.trim()));
            await new Promise((done) => setTimeout(done, 20));
        }
        seen.push(texts(".words"), texts("dl")[0].includes("≈ 3"), /≈ [\\d.]+ tokens\\/s/.test(texts("dl")[0]));
        send('data: {"choices":[],"usage":{"completion_tokens":7}}\\n\\n: ping\\n\\ndata: [DONE]\\n\\n');
        more.close();
        await idle();
        return [...seen, texts("dl")[0].includes("7"), /^[^≈]*[\\d.]+ tokens\\/s[^≈]*$/.test(texts("dl")[0]), said];
    """)
    said = ["one: the answer is complete."]
    assert seen == [["Waiting for the first token"], ["one two three"], True, True, True, True, said]


@pytest.mark.parametrize(
    "reply, words",
    [
        ("refused(429, { message: 'full' }, { 'Retry-After': '1' })", "busy with other requests. Try again in 1 s."),
        ("refused(503, { message: 'no room' }, { 'Retry-After': '5' })", "now: no room. Try again in 5 s."),
        ("refused(503, { message: 'm', code: 'stopping' })", "The server is stopping."),
        ("refused(400, { message: 'm', code: 'context_length_exceeded' })", "This is too long for the model."),
        ("refused(413, { message: 'm' })", "This is too large for the server."),
        ("refused(400, { message: 'top_p: wrong' })", "The server gave an error: top_p: wrong."),
        ("new Response('<html>', { status: 502 })", "The server gave an error: 502."),
        ("Promise.reject(new TypeError('network'))", "The server cannot be reached."),
        ("stream('')", "The connection ended before the answer did."),
        ("stream('data: {\"error\": {\"code\": \"timeout\"}}\\n\\n')", "The answer took longer than"),
    ],
)  # fmt: skip
def test_errors_are_in_plain_words_and_the_prompt_is_not_lost(scripted, reply, words):
    script = f"reply = () => {reply}; type('a long prompt'); await idle();"
    seen = scripted.run(script + "return [texts('.answer .problem')[0], $('prompt').value, $('status').textContent];")
    assert words in seen[0] and seen[1] == "a long prompt" and words in seen[2]
    again = "reply = () => stream(piece('fine'), 'data: [DONE]\\n\\n'); press('Enter'); await idle();"
    seen = scripted.run(again + "return [texts('.words'), $('prompt').value, asked.map((one) => one.messages)];")
    assert seen == [["fine"], "", [[{"role": "user", "content": "a long prompt"}]] * 2]


def test_one_of_two_that_fails_can_be_asked_again(scripted):
    seen = scripted.run("""
        $("compare").click();
        const done = "data: [DONE]\\n\\n";
        reply = () => asked.length === 1 ? stream(piece("yes"), done) : refused(503, { message: "no room" });
        type("hello");
        await idle();
        const before = [texts(".words"), $("prompt").value, texts(".answer button")];
        reply = () => stream(piece("now"), done);
        all(".answer button").find((one) => one.textContent === "Try again").click();
        await idle();
        type("next");
        await idle();
        return { before, words: texts(".words"), last: asked.slice(-2).map((one) => [one.model, one.messages.length]),
          buttons: texts(".answer button") };
    """)
    assert seen["before"] == [["yes", ""], "", ["Copy", "Try again"]]
    assert seen["words"] == ["yes", "now", "now", "now"] and seen["last"] == [["one", 3], ["two", 3]]
    assert seen["buttons"] == ["Copy"] * 4


def test_what_is_sent_is_what_is_chosen(scripted):
    seen = scripted.run("""
        reply = () => stream(piece("yes"), "data: [DONE]\\n\\n");
        $("temperature").value = "0.5"; $("top-p").value = "0.9"; $("max-tokens").value = ""; $("seed").value = "7";
        press("Enter");
        $("prompt").value = "a";
        press("Enter", { shiftKey: true });
        press("Enter", { isComposing: true });
        const none = asked.length;
        $("temperature").value = "3"; press("Enter");
        const wrong = [asked.length, all("details")[0].open];
        $("temperature").value = "0.5"; press("Enter");
        await idle();
        $("new").click();
        type("b");
        await idle();
        return { none, wrong, asked, turns: all("article").length };
    """)
    assert seen["none"] == 0 and seen["wrong"] == [0, True] and seen["turns"] == 1
    chosen = {"temperature": 0.5, "top_p": 0.9, "seed": 7, "model": "one", "stream": True}
    chosen["stream_options"] = {"include_usage": True}
    assert seen["asked"] == [chosen | {"messages": [{"role": "user", "content": text}]} for text in "ab"]


def test_copies_are_of_the_text(scripted):
    seen = scripted.run("""
        let copied;
        navigator.clipboard.writeText = async (text) => { copied = text; };
        reply = () => stream(piece("a\\n```\\nb\\n```"), "data: [DONE]\\n\\n");
        type("hello");
        await idle();
        const [button] = all(".answer button");
        button.click();
        await until(() => button.textContent === "Copied");
        return copied;
    """)
    assert seen == "a\n```\nb\n```"
