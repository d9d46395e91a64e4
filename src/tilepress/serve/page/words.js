// Text into the page: paragraphs and blocks of code, always as text and never as HTML.
const Words = (() => {
  const FENCE = /^ {0,3}```[^`]*$/;

  function make(name, className = "", text = "") {
    const made = document.createElement(name);
    made.className = className;
    made.textContent = text;
    return made;
  }

  // Text as {name, lines}: an element for each paragraph and each fenced block, which may be open at the end.
  function blocks(text) {
    const found = [];
    let block = null;
    const open = (name) => { found.push(block = { name, lines: [] }); };
    for (const line of text.split("\n")) {
      const isCode = block?.name === "pre";
      if (FENCE.test(line)) isCode ? block = null : open("pre");
      else if (!isCode && !line.trim()) block = null;
      else {
        if (!block) open("p");
        block.lines.push(line);
      }
    }
    return found;
  }

  function element(name) {
    const made = make(name);
    if (name === "pre") made.append(make("code"));
    made.dir = "auto";
    return made;
  }

  // Changes no more of what an element shows than what has grown.
  function show(parent, text) {
    const wanted = blocks(text);
    wanted.forEach(({ name, lines }, place) => {
      let child = parent.children[place];
      if (child?.localName !== name) {
        const made = element(name);
        child ? child.replaceWith(made) : parent.append(made);
        child = made;
      }
      const inner = child.firstElementChild ?? child, now = lines.join("\n");
      if (inner.textContent !== now) inner.textContent = now;
    });
    while (parent.children.length > wanted.length) parent.lastElementChild.remove();
  }

  // Pages that did not come over TLS have no clipboard but this old way.
  function copyByCommand(text) {
    const area = make("textarea", "unseen"), focused = document.activeElement;
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    focused?.focus();
    return copied;
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch (error) {
      return copyByCommand(text);
    }
  }

  function bytes(count) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    const power = Math.min(4, Math.floor(Math.log2(Math.max(1, count)) / 10));
    return `${(count / 1024 ** power).toPrecision(3)} ${units[power]}`;
  }

  function duration(milliseconds) {
    return milliseconds < 1000 ? `${milliseconds.toFixed(0)} ms` : `${(milliseconds / 1000).toFixed(2)} s`;
  }

  return { make, show, copy, bytes, duration };
})();
