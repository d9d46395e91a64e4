"""The chat page in a tab, and answers in place of the server's."""

HELPERS = """
const $ = (id) => document.getElementById(id);
const until = async (condition) => {
  for (let tries = 0; tries < 3000; tries++) {
    if (condition()) return true;
    await new Promise((done) => setTimeout(done, 10));
  }
  throw new Error(`never: ${condition}: ${document.body.innerText}`);
};
const press = (key, more = {}, at = $("prompt")) =>
  at.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }));
const type = (text) => { $("prompt").value = text; press("Enter"); };
const idle = () => until(() => $("stop").hidden);
const all = (selector) => [...document.querySelectorAll(selector)];
const texts = (selector) => all(selector).map((one) => one.innerText);
"""
# Answers in place of the server's; `asked` has the bodies of chats.
SCRIPTED = """
await until(() => $("model").value);
window.asked = [];
window.reply = null;
const served = { data: ["one", "two"].map((id) => ({ id, tilepress: { loaded: true, bytes: 3 << 20 } })) };
window.fetch = async (path, options) => {
  if (path === "v1/models") return new Response(JSON.stringify(served));
  window.asked.push(JSON.parse(options.body));
  return window.reply(options);
};
window.piece = (content, more = {}) =>
  `data: ${JSON.stringify({ choices: [{ delta: { content }, finish_reason: null }], ...more })}\\n\\n`;
window.stream = (...parts) => new Response(new Blob(parts).stream());
window.refused = (status, error, headers = {}) => new Response(JSON.stringify({ error }), { status, headers });
await Page.loadModels();
"""


class Chat:
    """The page in a tab."""

    def __init__(self, tab):
        self.tab = tab

    def run(self, script):
        return self.tab.run(HELPERS + script)
