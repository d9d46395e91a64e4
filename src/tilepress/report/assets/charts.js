// Bars, lines, points and maps as SVG, from a plot's traces and layout.
const Charts = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const HEIGHT = 320, TOP = 10, RIGHT = 16, GAP = 6, FILLED = 0.8;

  function make(name, attributes, text) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function each(value, index) { return Array.isArray(value) ? value[index] : value; }

  function isBar(trace) { return trace.type === "bar"; }

  // Name → its place among bars side by side. What shares an offset group shares a place.
  function slots(traces, layout) {
    if (layout.barmode !== "group") return new Map();
    return new Map([...new Set(traces.filter(isBar).map((one) => one.name))].map((name, index) => [name, index]));
  }

  // Bars as {trace, index, label, start, end}, one on another where they are stacked.
  function bars(traces, layout) {
    const ends = new Map(), found = [];
    for (const trace of traces.filter(isBar)) {
      trace.x.forEach((value, index) => {
        if (value === null) return;
        const label = trace.y[index], key = `${label} ${value < 0}`, base = each(trace.base, index);
        const start = base ?? (layout.barmode === "stack" ? ends.get(key) ?? 0 : 0);
        ends.set(key, start + value);
        found.push({ trace, index, label, value, start, end: start + value });
      });
    }
    return found;
  }

  // Everything that axes must reach.
  function reach(traces, layout) {
    const flat = traces.filter((one) => !isBar(one)), lying = bars(traces, layout);
    const spread = ({ trace, index, end }) => { const error = trace.error_x?.array[index] || 0; return [end - error, end + error]; };
    return {
      x: [...lying.flatMap((one) => [one.start, ...spread(one)]), ...flat.flatMap((one) => one.x)],
      y: [...traces.filter(isBar).flatMap((one) => one.y), ...flat.flatMap((one) => one.y)],
    };
  }

  function title(axis) { return axis?.title?.text || ""; }

  // Pixels around the plot: room for words at the left and below.
  function frame(layout, values, size, width, height) {
    const x = layout.xaxis || {}, y = layout.yaxis || {};
    const rough = Scales.make(y, values.y, height - 60, TOP), most = 0.42 * width;
    const words = Math.min(most, Math.max(...rough.ticks.map((one) => Scales.width(one.text, size)), 10));
    const left = words + GAP + 4 + (title(y) ? size + GAP : 0);
    const names = Scales.kind(x, values.x) === "category" ? [...new Set(values.x.map(String))] : [];
    const band = (width - left - RIGHT) / Math.max(1, names.length), longest = Math.max(0, ...names.map((one) => Scales.width(one, size)));
    const slanted = longest > band - 4, below = slanted ? Math.min(0.35 * width, 0.72 * longest + size) : size;
    return { left, right: width - RIGHT, top: TOP, bottom: height - below - GAP - 4 - (title(x) ? size + GAP : 0), slanted, words };
  }

  function axisX(svg, axis, scale, box, size, height) {
    const room = (box.right - box.left) / Math.max(1, scale.ticks.length);
    for (const { value, text } of scale.ticks) {
      const x = scale.at(value);
      if (axis.showgrid !== false) svg.append(make("line", { class: "grid", x1: x, x2: x, y1: box.top, y2: box.bottom }));
      const y = box.bottom + size + 2, slant = box.slanted ? { transform: `rotate(-40 ${x} ${y})`, "text-anchor": "end" } : { "text-anchor": "middle" };
      const shown = box.slanted ? Scales.shortened(text, size, 1.3 * (height - box.bottom)) : Scales.width(text, size) > room + 8 ? "" : text;
      svg.append(make("text", { x, y, ...slant }, shown));
    }
    svg.append(make("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
    if (title(axis)) svg.append(make("text", { x: (box.left + box.right) / 2, y: height - 4, "text-anchor": "middle" }, title(axis)));
  }

  function axisY(svg, axis, scale, box, size) {
    for (const { value, text } of scale.ticks) {
      const y = scale.at(value), shown = Scales.shortened(text, size, box.words + 1);
      if (axis.showgrid !== false && !scale.isDiscrete) svg.append(make("line", { class: "grid", x1: box.left, x2: box.right, y1: y, y2: y }));
      const label = make("text", { x: box.left - GAP, y: y + 0.35 * size, "text-anchor": "end" }, shown);
      if (shown !== text) label.dataset.tip = text;
      svg.append(label);
    }
    svg.append(make("line", { class: "axis", x1: box.left, x2: box.left, y1: box.top, y2: box.bottom }));
    const middle = (box.top + box.bottom) / 2;
    if (title(axis)) svg.append(make("text", { x: size, y: middle, transform: `rotate(-90 ${size} ${middle})`, "text-anchor": "middle" }, title(axis)));
  }

  function tip(trace, index, label, value, layout, axis) {
    if (trace.tips) return trace.tips[index];
    const name = trace.name ? `${trace.name}: ` : "", unit = title(layout[axis]);
    return `${name}${label}, ${typeof value === "number" ? Scales.number(value) : value}${unit ? ` ${unit}` : ""}`;
  }

  function within(value, low, high) { return Math.min(Math.max(value, Math.min(low, high)), Math.max(low, high)); }

  function drawBars(area, traces, layout, scales, box) {
    const places = slots(traces, layout), thick = (FILLED * Math.abs(scales.y.band)) / Math.max(1, places.size);
    for (const one of bars(traces, layout)) {
      const [start, end] = [one.start, one.end].map((value) => within(scales.x.at(value), box.left, box.right));
      const top = scales.y.at(one.label) + thick * ((places.get(one.trace.name) ?? 0) - Math.max(1, places.size) / 2);
      const mark = make("rect", {
        class: "mark bar", x: Math.min(start, end), y: top, width: Math.max(1, Math.abs(end - start)), height: Math.max(1, thick - 1),
        fill: each(one.trace.marker.color, one.index),
      });
      mark.dataset.tip = tip(one.trace, one.index, one.label, one.value, layout, "xaxis");
      area.append(mark);
      drawError(area, one, scales.x, top + thick / 2);
    }
  }

  function drawError(area, { trace, index, end }, scale, y) {
    const error = trace.error_x?.array[index];
    if (!error) return;
    const [low, high] = [scale.at(end - error), scale.at(end + error)];
    area.append(make("path", { class: "error", d: `M${low},${y}H${high}M${low},${y - 3}v6M${high},${y - 3}v6` }));
  }

  const DASHES = { dot: "2 4", dash: "7 4", solid: "" };

  function drawLine(area, trace, points) {
    let path = "", open = false;
    for (const point of points) {
      if (point === null) { open = false; continue; }
      path += `${open ? "L" : "M"}${point[0].toFixed(1)},${point[1].toFixed(1)}`;
      open = true;
    }
    const line = trace.line || {}, filled = trace.fill === "toself";
    const made = make("path", {
      class: "line", d: path, fill: filled ? trace.fillcolor : "none", stroke: line.color || "currentColor",
      "stroke-width": line.width ?? 2, "stroke-dasharray": DASHES[line.dash] || "",
    });
    if (filled) made.setAttribute("fill-opacity", trace.opacity ?? 1);
    area.append(made);
  }

  function drawPoint(area, trace, index, [x, y], words) {
    const marker = trace.marker || {}, symbol = each(marker.symbol, index) || "circle", r = (marker.size || 7) / 2;
    const colour = each(marker.color, index), open = symbol.endsWith("-open");
    const look = {
      class: "mark point", fill: open ? "var(--page)" : colour,
      stroke: open ? colour : marker.line?.color || "none", "stroke-width": open ? 1.5 : marker.line?.width || 0,
    };
    const made = symbol.startsWith("diamond")
      ? make("path", { ...look, d: `M${x - 1.2 * r},${y}L${x},${y - 1.2 * r}L${x + 1.2 * r},${y}L${x},${y + 1.2 * r}Z` })
      : make("circle", { ...look, cx: x, cy: y, r });
    made.dataset.tip = words;
    area.append(made);
  }

  function drawScatter(area, trace, traces, layout, scales) {
    const places = slots(traces, layout), count = Math.max(1, places.size), lying = trace.orientation === "h";
    const thick = (FILLED * Math.abs(scales.y.band)) / count, beside = places.has(trace.offsetgroup);
    const shift = lying && beside ? thick * (places.get(trace.offsetgroup) + 0.5 - count / 2) : 0;
    const points = trace.x.map((x, index) =>
      x === null || trace.y[index] === null ? null : [scales.x.at(x), scales.y.at(trace.y[index]) + shift]);
    if (trace.mode.includes("lines")) drawLine(area, trace, points);
    if (!trace.mode.includes("markers")) return;
    points.forEach((point, index) => {
      if (point === null) return;
      const [label, value] = lying ? [trace.y[index], trace.x[index]] : [trace.x[index], trace.y[index]];
      drawPoint(area, trace, index, point, tip(trace, index, label, value, layout, lying ? "xaxis" : "yaxis"));
    });
    if (trace.mode.includes("text")) drawWords(area, trace, points);
  }

  // Words beside points; where they would lie on others or outside, the pointer shows them alone.
  function drawWords(area, trace, points) {
    const size = trace.textfont?.size || 11, taken = [], [right, bottom] = [area.ownerSVGElement.width, area.ownerSVGElement.height].map((one) => one.baseVal.value);
    points.forEach((point, index) => {
      const words = trace.text[index];
      if (point === null || !words) return;
      const length = Scales.width(words, size), up = each(trace.textposition, index).startsWith("top");
      const leftward = each(trace.textposition, index).endsWith("left") && point[0] - length > 4;
      const x = leftward ? point[0] - length - 5 : point[0] + 5, y = point[1] + (up ? -5 : size + 3);
      const middle = y - 0.35 * size, covers = (one) => one && x - 4 < one[0] && one[0] < x + length + 4 && Math.abs(one[1] - middle) < size;
      const free = x + length < right && y < bottom && !points.some((one) => one !== point && covers(one)) && !taken.some((one) => x < one[0] + one[2] && one[0] < x + length && Math.abs(y - one[1]) < size);
      if (!free) return;
      taken.push([x, y, length]);
      area.append(make("text", { x, y, style: `font-size:${size}px` }, words));
    });
  }

  function shade(scale, share) {
    const parts = scale.map(([, colour]) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)));
    return `rgb(${parts[0].map((low, index) => Math.round(low + share * (parts[1][index] - low))).join(",")})`;
  }

  function drawMap(area, trace, scales, size) {
    const values = trace.z.flat().filter((one) => one !== null), low = trace.zmin ?? Math.min(...values), high = trace.zmax ?? Math.max(...values);
    const [width, height] = [scales.x.band, scales.y.band].map(Math.abs);
    trace.z.forEach((row, line) => row.forEach((value, column) => {
      if (value === null) return;
      const x = scales.x.at(trace.x[column]) - width / 2, y = scales.y.at(trace.y[line]) - height / 2, text = trace.text[line][column];
      const fill = shade(trace.colorscale, high > low ? within((value - low) / (high - low), 0, 1) : 0);
      const cell = make("rect", { class: "mark cell", x, y, width: width - 1, height: height - 1, fill });
      cell.dataset.tip = `${trace.y[line]}, ${trace.x[column]}: ${text} ${trace.unit}`;
      area.append(cell);
      if (Scales.width(text, size) < width - 2) {
        area.append(make("text", { x: x + width / 2, y: y + height / 2 + 0.35 * size, "text-anchor": "middle", fill: trace.textfont.color, class: "inside" }, text));
      }
    }));
  }

  function legend(traces, layout) {
    const list = document.createElement("ul");
    list.className = "legend";
    if (layout.showlegend === false) return list;
    for (const trace of traces.filter((one) => one.name && one.showlegend !== false)) {
      const item = document.createElement("li"), swatch = document.createElement("span");
      swatch.className = `swatch ${isBar(trace) || trace.fill ? "area" : trace.mode.includes("lines") ? trace.line?.dash || "solid" : "diamond"}`;
      const colour = trace.fillcolor || trace.line?.color || each(trace.marker?.color, 0) || "currentColor";
      swatch.style.setProperty("--colour", colour);
      item.append(swatch, trace.name);
      list.append(item);
    }
    return list;
  }

  function values(traces, layout) {
    const map = traces.find((one) => one.type === "heatmap");
    return map ? { x: map.x, y: map.y } : reach(traces, layout);
  }

  // Draws into `element`, which shows nothing else; `width` in pixels.
  function draw(element, traces, layout, width) {
    const size = width > 480 ? 12 : 10, height = layout.height || HEIGHT, reached = values(traces, layout);
    const box = frame(layout, reached, size, width, height), x = layout.xaxis || {}, y = layout.yaxis || {};
    const scales = { x: Scales.make(x, reached.x, box.left, box.right), y: Scales.make(y, reached.y, box.bottom, box.top) };
    const svg = make("svg", { class: "chart", role: "img", width, height, "aria-label": element.dataset.label || "plot", style: `font-size:${size}px` });
    axisX(svg, x, scales.x, box, size, height);
    axisY(svg, y, scales.y, box, size);
    const clip = `clip-${element.id || element.dataset.plot}-${element.dataset.kind || ""}`, area = make("g", {});
    const hole = make("clipPath", { id: clip });
    hole.append(make("rect", { x: box.left - 6, y: box.top - 6, width: box.right - box.left + 12, height: box.bottom - box.top + 12 }));
    if (x.range || y.range) area.setAttribute("clip-path", `url(#${clip})`);
    svg.append(hole, area);
    element.replaceChildren(svg, legend(traces, layout));
    drawBars(area, traces, layout, scales, box);
    for (const trace of traces) {
      if (trace.type === "heatmap") drawMap(area, trace, scales, size);
      if (trace.type === "scatter") drawScatter(area, trace, traces, layout, scales);
    }
  }

  return { draw };
})();
