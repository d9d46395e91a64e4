// The chat: turns of a prompt and its answers, one of each model.
const Page = (() => {
  const $ = (id) => document.getElementById(id);
  let turns = [], running = [], models = new Map();

  function announce(words) { $("status").textContent = words; }

  // Models

  function memory(name) {
    const model = models.get(name);
    return model?.loaded ? Words.bytes(model.bytes) : "";
  }

  function showMemory(select, place) {
    const words = memory(select.value);
    place.textContent = words ? `${words} with cache` : models.has(select.value) ? "loaded when it is asked" : "";
  }

  function showModels() {
    showMemory($("model"), $("memory"));
    showMemory($("against"), $("against-memory"));
  }

  function offer(select, names, preferred) {
    if ([...select.options].map((one) => one.value).join() === names.join()) return;
    const chosen = names.includes(select.value) ? select.value : preferred;
    select.replaceChildren(...names.map((name) => new Option(name, name, false, name === chosen)));
  }

  async function loadModels() {
    try {
      models = new Map((await Server.models()).map((one) => [one.id, one.tilepress]));
    } catch (error) {
      return complain(error);
    }
    const names = [...models.keys()];
    offer($("model"), names, names[0]);
    offer($("against"), names, names[1] ?? names[0]);
    showModels();
    complain(null);
  }

  function complain(error) {
    $("problem").textContent = error?.message ?? "";
    $("problem").hidden = !error;
    if (error) announce(error.message);
    if (error?.wantsKey) askForKey();
  }

  function askForKey() {
    $("key-form").hidden = false;
    $("key").focus();
  }

  async function useKey(event) {
    event.preventDefault();
    Server.useKey($("key").value);
    $("key").value = "";
    $("key-form").hidden = true;
    $("prompt").focus();
    await loadModels();
  }

  // Turns

  function chosenModels() { return ($("compare").checked ? ["model", "against"] : ["model"]).map((id) => $(id).value); }

  function sampling() {
    const fields = [...$("choices").querySelectorAll("input[type=number]")].filter((one) => one.value !== "");
    return Object.fromEntries(fields.map((one) => [one.name, one.valueAsNumber]));
  }

  // What one side has seen; turns from before there was a second model count for both.
  function messages(turn, side) {
    const before = turns.slice(0, turns.indexOf(turn));
    const said = before.flatMap(({ text, answers }) => {
      const answer = (answers[side] ?? answers[0]).text;
      return answer ? [{ role: "user", content: text }, { role: "assistant", content: answer }] : [];
    });
    return [...said, { role: "user", content: turn.text }];
  }

  function makeTurn(text) {
    const element = Words.make("article"), asked = Words.make("p", "asked", text), side = Words.make("div", "answers");
    const answers = chosenModels().map((name) => new Answers.Answer(name));
    asked.dir = "auto";
    side.append(...answers.map((one) => one.element));
    element.append(Words.make("h3", "unseen", "You asked"), asked, side);
    return { text, element, answers };
  }

  // A turn that nobody answered gives way to the next one.
  function dropUnanswered() {
    const last = turns.at(-1);
    if (last?.answers.every((one) => !one.text)) turns.pop().element.remove();
  }

  async function send() {
    const text = $("prompt").value.trim();
    if (!text || running.length || !isSound()) return;
    dropUnanswered();
    const turn = makeTurn(text);
    turns.push(turn);
    $("turns").append(turn.element);
    $("empty").hidden = true;
    $("prompt").value = "";
    scrollTo(0, document.documentElement.scrollHeight);
    await ask(turn, turn.answers);
  }

  // Whether the choices can be sent.
  function isSound() {
    if (!$("choices").checkValidity()) $("choices").querySelector("details").open = true;
    return $("choices").reportValidity();
  }

  async function ask(turn, answers) {
    run(answers);
    const chosen = sampling(), said = (one) => messages(turn, turn.answers.indexOf(one));
    await Promise.all(answers.map((one) => one.run({ ...chosen, messages: said(one) })));
    run([]);
    if (turns.includes(turn)) Answers.following(() => close(turn, answers));
    if (answers.some((one) => one.problem?.wantsKey)) return askForKey();
    await loadModels();
    Answers.following(() => answers.filter((one) => one.text).forEach((one) => one.showMemory(memory(one.model))));
  }

  // Says how it ended. A prompt that nobody answered goes back to where it was typed.
  function close(turn, answers) {
    announce(answers.map(outcome).join(" "));
    if (turn.answers.every((one) => !one.text)) $("prompt").value ||= turn.text;
    else answers.filter((one) => one.problem).forEach((one) => offerAgain(turn, one));
  }

  function offerAgain(turn, answer) {
    answer.button("Try again", () => {
      if (running.length) return;
      $("prompt").focus();
      ask(turn, [answer]);
    });
  }

  function outcome(answer) {
    const name = answer.model || "The model";
    if (answer.problem) return `${name}: ${answer.problem.message}`;
    return `${name}: the answer ${answer.isStopped ? "was stopped" : "is complete"}.`;
  }

  function run(answers) {
    running = answers;
    const isRunning = answers.length > 0, hadFocus = document.activeElement === $("stop");
    $("stop").hidden = !isRunning;
    $("send").hidden = isRunning;
    if (hadFocus) $("prompt").focus();
  }

  function stop() { running.forEach((one) => one.stop()); }

  function startAnew() {
    stop();
    turns = [];
    $("turns").replaceChildren();
    $("empty").hidden = false;
    announce("New chat.");
    $("prompt").focus();
  }

  // Events

  function pressed(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  }

  function compare() {
    $("against-field").hidden = !$("compare").checked;
    document.body.classList.toggle("wide", $("compare").checked);
  }

  function start() {
    const submit = (action) => (event) => { event.preventDefault(); action(); };
    $("ask").addEventListener("submit", submit(send));
    $("choices").addEventListener("submit", submit(() => $("prompt").focus()));
    $("choices").addEventListener("change", showModels);
    $("key-form").addEventListener("submit", useKey);
    $("prompt").addEventListener("keydown", pressed);
    $("compare").addEventListener("change", compare);
    $("new").addEventListener("click", startAnew);
    $("stop").addEventListener("click", stop);
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") stop(); });
    compare();
    loadModels();
  }

  return { start, loadModels };
})();
Page.start();
