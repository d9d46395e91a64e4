// A Roof-Surface to turn and its bounding regions, as traces and layout. `data`: rates by domain, flops of one
// matrix operation, and points {name, x: AI_XM, y: AI_XV, z: TFLOPS, bound}; `flat`: {domain, rate} of what lies over all
// of it, null if nothing does, and the matrix units if it is not said.
const Surfaces = (() => {
  const GRID = 60, ROOM = 4, HEIGHT = 380;
  const X = "AI_XM: matrix operations a byte", Y = "AI_XV: … a vector operation";

  // Evenly in the logarithm, from below the least of `points` to above the largest.
  function axis(points) {
    const low = Math.log(Math.min(...points) / ROOM), high = Math.log(Math.max(...points) * ROOM);
    return Array.from({ length: GRID }, (_, index) => Math.exp(low + ((high - low) * index) / (GRID - 1)));
  }

  function ceiling(data) { return data.flat === undefined ? { domain: "matrix", rate: data.rates.matrix } : data.flat; }

  // Where the three regions meet, [x, y]; nowhere without a ceiling.
  function meeting(data) {
    const top = ceiling(data), lines = top && RoofSurface.bord({ ...data.rates, matrix: top.rate });
    return lines && [lines.right, lines.top];
  }

  function axes(data) {
    const corner = meeting(data);
    return ["x", "y"].map((key, index) => axis([...(corner ? [corner[index]] : []), ...data.points.map((one) => one[key])]));
  }

  function colour(domain) { return Page.DOMAINS[domain] || "#7F7F7F"; }

  function log(title) { return { type: "log", title: { text: title } }; }

  function tips(data) { return data.points.map((one) => `${one.name}: ${RoofSurface.general(one.z)} TFLOPS, bound by ${one.bound}`); }

  function surface(data) {
    const [xs, ys] = axes(data), top = ceiling(data), heights = [], binding = [];
    const order = ["memory", "vector", top ? top.domain : ""];
    for (const y of ys) {
      const limits = xs.map((x) => [data.rates.memory * x, data.rates.vector * y, top ? top.rate : Infinity]);
      heights.push(limits.map((all) => (Math.min(...all) * data.flops) / 1e12));
      binding.push(limits.map((all) => all.indexOf(Math.min(...all))));
    }
    const traces = [
      { x: xs, y: ys, z: heights, surfacecolor: binding, colours: order.map(colour) },
      {
        x: data.points.map((one) => one.x), y: data.points.map((one) => one.y), z: data.points.map((one) => one.z),
        tips: tips(data), marker: { color: data.points.map((one) => colour(one.bound)) },
      },
    ];
    return [traces, { turns: true, height: HEIGHT }];
  }

  // Corners of what each domain binds, within the axes.
  function regions(data, xs, ys) {
    const slope = data.rates.memory / data.rates.vector, over = ceiling(data);
    const [left, right] = [xs[0], xs.at(-1)], [bottom, top] = [ys[0], ys.at(-1)];
    const first = Math.max(left, bottom / slope), last = Math.min(right, top / slope);
    const entry = [first, first * slope], corner = meeting(data) || [last, last * slope];
    const corners = {
      memory: [entry, [left, entry[1]], [left, top], [corner[0], top], corner, entry],
      vector: [entry, corner, [right, corner[1]], [right, bottom], [first, bottom], entry],
    };
    if (over) corners[over.domain] = [corner, [corner[0], top], [right, top], [right, corner[1]], corner];
    return corners;
  }

  function span(values) { return [Math.log10(values[0]), Math.log10(values.at(-1))]; }

  function bord(data) {
    const [xs, ys] = axes(data);
    const traces = Object.entries(regions(data, xs, ys)).map(([domain, corners]) => ({
      type: "scatter", mode: "lines", name: `bound by ${domain}`, x: corners.map(([x]) => x), y: corners.map(([, y]) => y),
      fill: "toself", fillcolor: colour(domain), opacity: 0.35, line: { color: Page.css("--muted"), width: 1 },
    }));
    traces.push({
      type: "scatter", mode: "markers+text", name: "kernels", x: data.points.map((one) => one.x),
      y: data.points.map((one) => one.y), text: data.points.map((one) => one.name), textposition: "top right", tips: tips(data),
      showlegend: false,
      marker: { size: 9, color: data.points.map((one) => colour(one.bound)), line: { width: 1.5, color: Page.css("--ink") } },
    });
    return [traces, { xaxis: { ...log(X), range: span(xs) }, yaxis: { ...log(Y), range: span(ys) }, height: HEIGHT }];
  }

  // Without a vector unit: memory's slope and the matrix units' ceiling.
  function roofline(data) {
    const ridge = data.rates.matrix / data.rates.memory, xs = axis([ridge, ...data.points.map((one) => one.x)]);
    const traces = [
      {
        type: "scatter", mode: "lines", name: "roofline", x: xs, line: { color: "@0" },
        y: xs.map((x) => (Math.min(data.rates.memory * x, data.rates.matrix) * data.flops) / 1e12),
      },
      {
        type: "scatter", mode: "markers", name: "kernel", x: data.points.map((one) => one.x),
        y: data.points.map((one) => one.z), tips: tips(data),
        marker: { size: 11, color: data.points.map((one) => colour(one.bound)), line: { width: 1.5, color: Page.css("--ink") } },
      },
    ];
    return [traces, { xaxis: log(X), yaxis: log("TFLOPS"), height: HEIGHT }];
  }

  return { surface, bord, roofline };
})();
