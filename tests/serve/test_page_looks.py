"""Whether the chat page can be read: light and dark, wide and narrow, with eyes and without."""

import json

import pytest
from tests.axe import serious_violations
from tests.serve.chat import SCRIPTED, Chat

# Controls without a name, and places that announce something.
LABELS = """
const inputs = all("input, select, textarea"), buttons = all("button");
return [inputs.filter((one) => !one.labels.length).length, buttons.filter((one) => !one.textContent.trim()).length,
  all("[aria-live], [role=alert], [role=status], [role=log]").length];
"""
# Whether controls lie on one another.
OVERLAP = """
const shown = all("button, input, select, textarea").filter((one) => one.checkVisibility());
const boxes = shown.map((one) => one.getBoundingClientRect());
const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
return boxes.some((one, place) => boxes.slice(place + 1).some((other) => meet(one, other)));
"""
# Luminance contrast of text and what is behind it, the least of all.
CONTRAST = """
const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
const light = (colour) => parts(colour).slice(0, 3).map((one) => one / 255)
  .map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
  .reduce((sum, one, place) => sum + one * [0.2126, 0.7152, 0.0722][place], 0);
const behind = (one) => {
  const colour = one ? getComputedStyle(one).backgroundColor : "rgb(255, 255, 255)";
  return parts(colour)[3] === 0 ? behind(one.parentElement) : colour;
};
const hasText = (one) => [...one.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
const contrasts = all("body *").filter((one) => one.checkVisibility() && hasText(one)).map((one) => {
  const [dark, bright] = [getComputedStyle(one).color, behind(one)].map(light).sort((a, b) => a - b);
  return (bright + 0.05) / (dark + 0.05);
});
return Math.min(...contrasts);
"""
LOOKS = """
const text = "Quicksort picks a pivot, and sorts what is smaller and what is larger.\\n\\n"
  + "```python\\ndef quicksort(items):\\n    if len(items) < 2:\\n        return items\\n    pivot, *rest = items\\n"
  + "    return [*quicksort([x for x in rest if x < pivot]), pivot]\\n```\\n\\nIt takes O(n log n) steps on average.";
const done = 'data: {"choices":[],"usage":{"completion_tokens":60}}\\n\\ndata: [DONE]\\n\\n';
const words = text.match(/\\s*\\S+/g);
reply = () => {
  const isSecond = asked.length % 2 === 0 && $("compare").checked;
  if (isSecond && asked.length > 3) return refused(503, { message: "model two has no room" }, { "Retry-After": "5" });
  return new Response(new ReadableStream({ async start(control) {
    for (const word of words) {
      control.enqueue(new TextEncoder().encode(piece(word)));
      await new Promise((next) => setTimeout(next, isSecond ? 4 : 2));
    }
    control.enqueue(new TextEncoder().encode(done));
    control.close();
  } }));
};
if (COMPARE) $("compare").click();
type("Explain quicksort, with code.");
await idle();
if (COMPARE) { type("And in C++?"); await idle(); }
await new Promise((next) => setTimeout(next, 100));
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width, height", [(1200, 900), (400, 800)], ids=["screen", "phone"])
@pytest.mark.parametrize("compare", [False, True], ids=["one", "two"])
def test_it_is_readable_light_and_dark_wide_and_narrow(browser, running, screenshots, dark, width, height, compare):
    chat = Chat(browser.open(running.url, width, height, dark=dark, phone=width == 400))
    chat.run(SCRIPTED)
    chat.run(LOOKS.replace("COMPARE", json.dumps(compare)))
    name = f"chat-{width}-{'dark' if dark else 'light'}-{'two' if compare else 'one'}.png"
    chat.tab.screenshot(screenshots / name)
    _is_readable(chat)
    chat.run("$('key-form').hidden = false; all('details')[0].open = true; $('new').click();")
    chat.tab.screenshot(screenshots / f"open-{name}")
    assert not chat.run(OVERLAP)
    _is_readable(chat)
    assert chat.run(LABELS) == [0, 0, 1]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("compare", [False, True], ids=["one", "two"])
def test_axe_finds_nothing_serious(browser, running, dark, compare):
    chat = Chat(browser.open(running.url, dark=dark))
    chat.run(SCRIPTED)
    chat.run(LOOKS.replace("COMPARE", json.dumps(compare)))
    chat.run("all('details').forEach((one) => { one.open = true; });")
    assert serious_violations(chat.tab) == []


def _is_readable(chat):
    assert chat.run("const root = document.documentElement; return root.scrollWidth <= root.clientWidth;")
    assert chat.run(CONTRAST) >= 4.5
