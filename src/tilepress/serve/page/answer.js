// One answer of one model: its text as it comes, and how fast that was.
const Answers = (() => {
  const NEAR = 80;  // pixels from the end of the page where a reader still follows it
  const FIGURES = { first: "First token", rate: "Speed", tokens: "Tokens", memory: "Memory with cache" };

  // Who reads the end of the page goes on to see it.
  function following(change) {
    const page = document.documentElement, isAtEnd = innerHeight + scrollY > page.scrollHeight - NEAR;
    change();
    if (isAtEnd) scrollTo(0, page.scrollHeight);
  }

  class Answer {
    constructor(model) {
      this.model = model;
      this.reset();
      this.build();
    }

    reset() {
      [this.text, this.problem, this.reason] = ["", null, ""];
      this.stopping = new AbortController();
      this.times = { asked: performance.now(), first: 0, last: 0 };
      [this.tokens, this.isCounted] = [0, false];  // until the server has counted, a piece is taken for a token
      this.soon = 0;
    }

    build() {
      this.element = Words.make("section", "answer");
      this.words = Words.make("div", "words");
      this.note = Words.make("p", "note");
      this.figures = Words.make("dl");
      this.buttons = Words.make("div", "buttons");
      const name = Words.make("h4", "", this.model || "Answer");
      this.element.append(name, this.words, this.note, this.figures, this.buttons);
      this.values = Object.fromEntries(Object.entries(FIGURES).map(([name, label]) => {
        const value = Words.make("dd"), pair = Words.make("div");
        pair.append(Words.make("dt", "", label), value);
        this.figures.append(pair);
        return [name, value];
      }));
    }

    get isStopped() { return this.stopping.signal.aborted; }

    stop() { this.stopping.abort(); }

    // Comes back when the answer has ended, however that was.
    async run(request) {
      this.begin();
      const asked = { ...request, model: this.model || undefined };
      try {
        for await (const piece of Server.chat(asked, this.stopping.signal)) this.add(piece);
      } catch (error) {
        if (!this.isStopped) this.problem = error;
      }
      this.end();
    }

    begin() {
      this.reset();
      this.words.replaceChildren();
      for (const value of Object.values(this.values)) value.textContent = "";
      this.note.className = "note waiting";
      this.note.textContent = "Waiting for the first token";
      this.buttons.replaceChildren();
      this.element.setAttribute("aria-busy", "true");
    }

    add(piece) {
      const choice = piece.choices[0], text = choice?.delta.content;
      if (text) {
        this.times.last = performance.now();
        this.times.first ||= this.times.last;
        this.text += text;
        this.tokens += 1;
      }
      if (choice?.finish_reason) this.reason = choice.finish_reason;
      if (piece.usage) [this.tokens, this.isCounted] = [piece.usage.completion_tokens, true];
      this.soon ||= requestAnimationFrame(() => following(() => this.show()));
    }

    end() {
      cancelAnimationFrame(this.soon);
      this.element.removeAttribute("aria-busy");
      following(() => {
        this.show();
        this.note.className = this.problem ? "problem" : "note";
        this.note.textContent = this.ending();
        if (this.text) this.button("Copy", (button) => this.copy(button));
      });
    }

    ending() {
      if (this.problem) return this.problem.message;
      if (this.isStopped) return "Stopped.";
      if (this.reason === "length") return "Ended at the most tokens it may have.";
      return this.text ? "" : "The answer is empty.";
    }

    show() {
      this.soon = 0;
      Words.show(this.words, this.text);
      if (!this.times.first) return;
      this.note.textContent = "";
      const { asked, first, last } = this.times, about = this.isCounted ? "" : "≈ ";
      this.values.first.textContent = Words.duration(first - asked);
      this.values.tokens.textContent = `${about}${this.tokens}`;
      if (last === first) return;
      const rate = 1000 * (this.tokens - 1) / (last - first);
      this.values.rate.textContent = `${about}${rate.toFixed(1)} tokens/s`;
    }

    showMemory(words) { this.values.memory.textContent = words; }

    button(label, press) {
      const button = Words.make("button", "", label);
      button.type = "button";
      button.addEventListener("click", () => press(button));
      this.buttons.append(button);
    }

    async copy(button) {
      button.textContent = (await Words.copy(this.text)) ? "Copied" : "Not copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    }
  }

  return { Answer, following };
})();
