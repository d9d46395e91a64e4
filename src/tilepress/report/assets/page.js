// Theme, plots, tables and filters of a report. All data are in the page.
const Page = (() => {
  // Okabe and Ito's colours, in an order that suits the background.
  const PALETTES = {
    light: ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#7F7F7F"],
    dark: ["#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#D55E00", "#A0A0A0"],
  };
  const DOMAINS = { memory: "#009E73", vector: "#E69F00", matrix: "#0072B2", "front end": "#CC79A7" };
  // Of plotly's buttons none but what turns a surface: one of the others would send the data to its makers.
  const FLAT = { responsive: true, displayModeBar: false };
  const TURNED = { responsive: true, displaylogo: false, modeBarButtons: [["orbitRotation", "pan3d", "resetCameraDefault3d"]] };
  const PAPER = { single: 700, paired: 340 };  // pixels across
  const drawn = new Map();
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

  function merged(base, more) {
    const result = { ...base };
    for (const [key, value] of Object.entries(more || {})) {
      const both = value && typeof value === "object" && !Array.isArray(value) && base[key];
      result[key] = both ? merged(base[key], value) : value;
    }
    return result;
  }

  function themed(layout, wide) {
    const axis = {
      gridcolor: css("--line"), linecolor: css("--muted"), zerolinecolor: css("--line"), automargin: true,
      title: { standoff: 8 },
    };
    const solid = { ...axis, backgroundcolor: css("--page"), showbackground: false };
    const base = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
      font: { color: css("--ink"), family: css("font-family") || "sans-serif", size: wide ? 12 : 10 },
      margin: { l: wide ? 60 : 40, r: 16, t: 28, b: 48 },
      legend: { orientation: "h", traceorder: "normal", yanchor: "top", y: -0.18, x: 0, font: { size: wide ? 12 : 10 } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: css("--muted"), activecolor: css("--accent") },
      hoverlabel: { bgcolor: css("--panel"), bordercolor: css("--line"), font: { color: css("--ink") } },
      xaxis: axis, yaxis: axis,
    };
    if (layout.scene) base.scene = { xaxis: solid, yaxis: solid, zaxis: solid };
    return merged(base, layout);
  }

  // On a narrow screen words beside points would lie on one another; a touch shows them.
  function withoutWords(trace) { return trace.mode === "markers+text" ? { ...trace, mode: "markers" } : trace; }

  function across(element) {
    if (onPaper) return PAPER[element.closest(".pair") ? "paired" : "single"];
    return element.clientWidth;
  }

  // Draws, or draws anew in the colours that now hold.
  async function draw(element, traces, layout) {
    drawn.set(element, [traces, layout]);
    const palette = PALETTES[isDark() ? "dark" : "light"], wide = across(element) > 560;
    const look = { ...themed(coloured(layout, palette), wide), ...(onPaper ? { width: across(element) } : {}) };
    const shown = coloured(traces, palette).map((one) => (wide ? one : withoutWords(one)));
    // Legends lie under the plot; on a high one a share of its height would be far away.
    if (look.height && !layout.legend) look.legend = { ...look.legend, y: -64 / Math.max(80, look.height - 110) };
    try {
      await Plotly.react(element, shown, look, layout.scene ? TURNED : FLAT);
      element.dataset.drawn = "yes";
    } catch (error) {
      element.textContent = `This plot cannot be drawn here: ${error.message || error}`;
      element.dataset.drawn = "no";
    }
  }

  function redrawAll() { return Promise.all([...drawn].map(([element, [traces, layout]]) => draw(element, traces, layout))); }

  function given(element) { return JSON.parse(document.getElementById(element.dataset.plot).textContent); }

  async function drawGiven(element) {
    if (drawn.has(element)) return;
    const data = given(element);
    if (element.dataset.kind === "surface") return draw(element, ...Surfaces.surface(data));
    if (element.dataset.kind === "bord") return draw(element, ...Surfaces.bord(data));
    return draw(element, data.traces, data.layout);
  }

  function plots() { return [...document.querySelectorAll("[data-plot]")]; }
  function drawAll() { return Promise.all([...plots().map(drawGiven), Explorer.look()]); }

  // A plot is drawn when somebody comes near it.
  function watch() {
    const seen = new IntersectionObserver((entries) => {
      for (const { target } of entries.filter((entry) => entry.isIntersecting)) {
        seen.unobserve(target);
        if (target.dataset.plot) drawGiven(target); else Explorer.look();
      }
    }, { rootMargin: "400px" });
    plots().forEach((element) => seen.observe(element));
    seen.observe(document.getElementById("explorer"));
  }

  // Paper is white and narrow, and shows everything, the commands too.
  function print() {
    const theme = root.dataset.theme, closed = [...document.querySelectorAll("details.again:not([open])")];
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

  // A form over a table: each row says in data- what the form's fields are compared with.
  function filter(form) {
    const table = document.getElementById(form.dataset.table), fields = form.elements;
    const words = (fields.words?.value || "").toLowerCase().split(/\s+/).filter(Boolean);
    const least = fields.deviation?.value ? Number(fields.deviation.value) : null;
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      const fits = (!fields.paper?.value || row.dataset.paper === fields.paper.value) &&
        (!fields.evidence?.value || row.dataset.evidence === fields.evidence.value) &&
        (!fields.state?.value || row.dataset.state === fields.state.value) &&
        (least === null || (row.dataset.deviation !== "" && Number(row.dataset.deviation) >= least)) &&
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
    Explorer.start();
    watch();
    addEventListener("beforeprint", print);
  }

  return { DOMAINS, css, isDark, draw, drawAll, plots, remember, start };
})();
