// Theme, plots, tables and filters of a report. All data are in the page.
const Page = (() => {
  // Okabe and Ito's colours, in an order that suits the background.
  const PALETTES = {
    light: ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#7F7F7F"],
    dark: ["#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#D55E00", "#A0A0A0"],
  };
  const DOMAINS = { memory: "#009E73", vector: "#E69F00", matrix: "#0072B2", "front end": "#CC79A7" };
  const PAPER = { single: 700, paired: 340 };  // pixels across
  const drawn = new Map(), explorer = document.getElementById("explorer");  // null on pages without one
  let onPaper = false;

  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  function isDark() {
    const chosen = root.dataset.theme;
    return chosen ? chosen === "dark" : prefersDark.matches;
  }

  function remember(theme) {
    root.dataset.theme = theme;
    try { localStorage.setItem("tilepress-theme", theme); } catch (error) { /* not saved where a browser forbids it */ }
    redrawAll();
  }

  function recall() {
    try {
      const saved = localStorage.getItem("tilepress-theme");
      if (saved === "light" || saved === "dark") root.dataset.theme = saved;
    } catch (error) { /* as the system has it */ }
  }

  function css(name) { return getComputedStyle(root).getPropertyValue(name).trim(); }

  // "@2" → the palette's third colour, wherever it stands.
  function coloured(value, palette) {
    if (Array.isArray(value)) return value.map((one) => coloured(one, palette));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, coloured(one, palette)]));
    }
    if (value === "@i") return css("--ink");
    return typeof value === "string" && /^@\d$/.test(value) ? palette[Number(value[1])] : value;
  }

  function across(element) {
    if (onPaper) return PAPER[element.closest(".pair") ? "paired" : "single"];
    return element.clientWidth || PAPER.single;
  }

  // Draws, or draws anew in the colours that now hold; anew, too, when there is more room or less.
  function draw(element, traces, layout) {
    if (!drawn.has(element)) sizes.observe(element);
    drawn.set(element, [traces, layout]);
    const shown = coloured(traces, PALETTES[isDark() ? "dark" : "light"]), width = across(element);
    try {
      (layout.turns ? Turning : Charts).draw(element, shown, layout, width);
      [element.dataset.drawn, element.dataset.width] = ["yes", width];
    } catch (error) {
      element.textContent = `This plot cannot be drawn here: ${error.message || error}`;
      element.dataset.drawn = "no";
    }
  }

  const sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (!onPaper && target.clientWidth && String(target.clientWidth) !== target.dataset.width) draw(target, ...drawn.get(target));
    }
  });

  function redrawAll() { drawn.forEach(([traces, layout], element) => draw(element, traces, layout)); }

  function given(element) { return JSON.parse(document.getElementById(element.dataset.plot).textContent); }

  function drawGiven(element) {
    if (drawn.has(element)) return;
    const data = given(element);
    if (element.dataset.kind === "surface") return draw(element, ...Surfaces.surface(data));
    if (element.dataset.kind === "bord") return draw(element, ...Surfaces.bord(data));
    return draw(element, data.traces, data.layout);
  }

  function plots() { return [...document.querySelectorAll("[data-plot]")]; }
  function drawAll() {
    plots().forEach(drawGiven);
    if (explorer) Explorer.look();
  }

  // What the pointer is at, in words beside it: of whatever has data-tip.
  function tips() {
    const tip = document.getElementById("tip");
    addEventListener("pointermove", (event) => {
      const words = event.target.closest?.("[data-tip]")?.dataset.tip;
      tip.hidden = !words;
      if (!words) return;
      tip.textContent = words;
      const left = Math.min(event.clientX + 14, document.documentElement.clientWidth - tip.offsetWidth - 4);
      tip.style.transform = `translate(${Math.max(4, left)}px, ${event.clientY + 18}px)`;
    });
  }

  // A plot is drawn when somebody comes near it.
  function watch() {
    const seen = new IntersectionObserver((entries) => {
      for (const { target } of entries.filter((entry) => entry.isIntersecting)) {
        seen.unobserve(target);
        if (target.dataset.plot) drawGiven(target); else Explorer.look();
      }
    }, { rootMargin: "400px" });
    plots().forEach((element) => seen.observe(element));
    if (explorer) seen.observe(explorer);
  }

  // Paper is white and narrow, and shows everything, the commands too.
  function print() {
    const theme = root.dataset.theme, closed = [...document.querySelectorAll("details.again:not([open]), details.more:not([open])")];
    root.dataset.theme = "light";
    onPaper = true;
    closed.forEach((one) => { one.open = true; });
    addEventListener("afterprint", () => {
      if (theme) root.dataset.theme = theme; else delete root.dataset.theme;
      onPaper = false;
      closed.forEach((one) => { one.open = false; });
      redrawAll();
    }, { once: true });
    redrawAll();
    drawAll();
  }

  // Numbers by value, words by letters, what is empty last, whichever way it goes.
  function compare(first, second, sign) {
    if (first === "" || second === "") return (first === "") - (second === "");
    const a = Number(first), b = Number(second);
    if (!Number.isNaN(a) && !Number.isNaN(b)) return sign * (a - b);
    return sign * first.localeCompare(second, "en", { numeric: true });
  }

  function sortBy(heading) {
    const table = heading.closest("table"), body = table.tBodies[0], index = heading.cellIndex;
    const sign = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of heading.parentElement.cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
    const key = (row) => row.cells[index].dataset.v ?? row.cells[index].textContent.trim();
    const rows = [...body.rows].map((row) => [key(row), row]);
    rows.sort(([a], [b]) => compare(a, b, sign));
    body.append(...rows.map(([, row]) => row));
  }

  function sortable(table) {
    for (const heading of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => sortBy(heading));
    }
  }

  // What a filter compares a row of papers' values with: its columns by name.
  function facts(table, row) {
    const names = [...table.tHead.rows[0].cells].map((one) => one.textContent), cell = (name) => row.cells[names.indexOf(name)];
    return {
      paper: cell("item")?.textContent.split("/")[0], state: cell("state")?.textContent, evidence: cell("evidence")?.textContent,
      deviation: cell("deviation")?.dataset.v ?? "",
    };
  }

  // A form over a table: rows that its fields do not fit are hidden.
  function filter(form) {
    const table = document.getElementById(form.dataset.table), fields = form.elements;
    const words = (fields.words?.value || "").toLowerCase().split(/\s+/).filter(Boolean);
    const least = fields.deviation?.value ? Number(fields.deviation.value) : null;
    const chosen = least !== null || ["paper", "evidence", "state"].some((name) => fields[name]?.value);
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      const fact = chosen ? facts(table, row) : {};
      const fits = ["paper", "evidence", "state"].every((name) => !fields[name]?.value || fact[name] === fields[name].value) &&
        (least === null || (fact.deviation !== "" && Math.abs(fact.deviation) >= least)) &&
        words.every((word) => row.textContent.toLowerCase().includes(word));
      row.hidden = !fits;
      shown += fits;
    }
    form.querySelector(".count").textContent = `${shown} of ${table.tBodies[0].rows.length} rows`;
  }

  function start() {
    recall();
    document.getElementById("theme").addEventListener("click", () => remember(isDark() ? "light" : "dark"));
    prefersDark.addEventListener("change", redrawAll);
    document.querySelectorAll("table.sortable").forEach(sortable);
    for (const form of document.querySelectorAll("form.filters")) {
      form.addEventListener("input", () => filter(form));
      form.addEventListener("submit", (event) => event.preventDefault());
      filter(form);
    }
    if (explorer) Explorer.start();
    watch();
    tips();
    addEventListener("beforeprint", print);
  }

  return { DOMAINS, css, isDark, draw, drawAll, plots, remember, start };
})();
