// A surface over two logarithmic axes on a canvas, which a pointer or the arrow keys turn.
const Turning = (() => {
  const START = { around: -2.36, above: 0.5 }, FLAT = 0.62, TURN = 0.01, KEY = 0.12, LIFT = 0.02, NEAR = 12, DENSE = 220;
  const views = new WeakMap();

  function span(values) { return [Math.min(...values), Math.max(...values)]; }

  // A cube of −1 … 1 across, FLAT high.
  function cube([surface, points]) {
    const [x, y] = ["x", "y"].map((key) => span(surface[key].map(Math.log10)));
    const top = 1.05 * Math.max(...surface.z.flat(), ...points.z);
    return {
      x, y, top,
      place: (a, b, c) => [
        (2 * (Math.log10(a) - x[0])) / (x[1] - x[0]) - 1, (2 * (Math.log10(b) - y[0])) / (y[1] - y[0]) - 1, FLAT * ((2 * c) / top - 1),
      ],
    };
  }

  // From the cube to pixels and how far away: [x, y, distance].
  function camera(view, width, height) {
    const [c, s] = [Math.cos(view.around), Math.sin(view.around)], [sine, cosine] = [Math.sin(view.above), Math.cos(view.above)];
    const size = Math.min(width / 3.3, height / 2.9);
    return ([x, y, z]) => {
      const across = -s * x + c * y, along = c * x + s * y;
      return [width / 2 + size * across, 0.47 * height - size * (z * cosine - along * sine), -along * cosine - z * sine];
    };
  }

  function shaded(colour, light) {
    return `rgb(${[1, 3, 5].map((at) => Math.round(parseInt(colour.slice(at, at + 2), 16) * light)).join(",")})`;
  }

  // Light from above and a side: what is steep is darker.
  function light(a, b, d) {
    const u = [0, 1, 2].map((n) => b[n] - a[n]), v = [0, 1, 2].map((n) => d[n] - a[n]);
    const normal = [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]];
    const length = Math.hypot(...normal) || 1;
    return 0.62 + 0.38 * Math.abs((0.35 * normal[0] + 0.2 * normal[1] + 0.9 * normal[2]) / length);
  }

  function faces(surface, box, project) {
    const found = [];
    const at = (row, column) => box.place(surface.x[column], surface.y[row], surface.z[row][column]);
    for (let row = 0; row + 1 < surface.y.length; row++) {
      for (let column = 0; column + 1 < surface.x.length; column++) {
        const corners = [at(row, column), at(row, column + 1), at(row + 1, column + 1), at(row + 1, column)];
        const seen = corners.map(project), distance = (seen[0][2] + seen[2][2]) / 2;
        found.push({ seen, distance, colour: shaded(surface.colours[surface.surfacecolor[row][column]], light(corners[0], corners[1], corners[3])) });
      }
    }
    return found.sort((one, other) => other.distance - one.distance);
  }

  function line(pen, from, to, colour) {
    pen.strokeStyle = colour;
    pen.beginPath();
    pen.moveTo(from[0], from[1]);
    pen.lineTo(to[0], to[1]);
    pen.stroke();
  }

  // Words beside a line of the cube's, away from its middle.
  function words(pen, place, middle, text, far) {
    const [dx, dy] = [place[0] - middle[0], place[1] - middle[1]], length = Math.hypot(dx, dy) || 1;
    pen.fillText(text, place[0] + (far * dx) / length, place[1] + (far * dy) / length);
  }

  // Both logarithmic axes at the edges of the floor that are near, and the height at the edge that is leftmost.
  function axes(pen, box, project) {
    const corners = [[-1, -1], [-1, 1], [1, -1], [1, 1]], floor = (x, y) => project([x, y, -FLAT]), middle = floor(0, 0);
    const near = corners.reduce((best, one) => (floor(...one)[1] > floor(...best)[1] ? one : best));
    const left = corners.reduce((best, one) => (floor(...one)[0] < floor(...best)[0] ? one : best));
    for (const [axis, range, put, name] of [[0, box.x, (v) => [v, near[1]], "AI_XM"], [1, box.y, (v) => [near[0], v], "AI_XV"]]) {
      for (const { value, text } of Scales.make({ type: "log", range }, [], 0, DENSE).ticks) {
        const v = (2 * (Math.log10(value) - range[0])) / (range[1] - range[0]) - 1, [a, b] = axis === 0 ? [[v, -1], [v, 1]] : [[-1, v], [1, v]];
        line(pen, floor(...a), floor(...b), Page.css("--line"));
        words(pen, floor(...put(v)), middle, text, 16);
      }
      line(pen, floor(...put(-1)), floor(...put(1)), Page.css("--muted"));
      words(pen, floor(...put(0)), middle, name, 56);
    }
    height(pen, box, project, left);
  }

  function height(pen, box, project, [x, y]) {
    const each = Scales.step(box.top, 4);
    line(pen, project([x, y, -FLAT]), project([x, y, FLAT]), Page.css("--muted"));
    for (let value = 0; value <= box.top; value += each) {
      const [left, up] = project([x, y, FLAT * ((2 * value) / box.top - 1)]);
      pen.fillText(Scales.number(value), left - 18, up);
    }
    const [left, up] = project([x, y, FLAT]);
    pen.fillText("TFLOPS", left, up - 12);
  }

  function paint(canvas, traces, width, height) {
    const [surface, points] = traces, pen = canvas.getContext("2d"), ratio = devicePixelRatio || 1, box = cube(traces);
    [canvas.width, canvas.height] = [width * ratio, height * ratio];
    pen.scale(ratio, ratio);
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    [pen.textAlign, pen.textBaseline, pen.fillStyle] = ["center", "middle", Page.css("--ink")];
    const project = camera(views.get(canvas.parentElement), width, height);
    axes(pen, box, project);
    for (const { seen, colour } of faces(surface, box, project)) {
      [pen.fillStyle, pen.strokeStyle] = [colour, colour];
      pen.beginPath();
      seen.forEach(([x, y]) => pen.lineTo(x, y));
      pen.closePath();
      pen.fill();
      pen.stroke();
    }
    return points.x.map((x, index) => dot(pen, points, index, project(box.place(x, points.y[index], points.z[index] + LIFT * box.top))));
  }

  function dot(pen, points, index, [x, y]) {
    [pen.fillStyle, pen.strokeStyle, pen.lineWidth] = [points.marker.color[index], "#000", 2];
    pen.beginPath();
    pen.arc(x, y, 5, 0, 7);
    pen.fill();
    pen.stroke();
    return { x, y, text: points.tips[index] };
  }

  const KEYS = { ArrowLeft: [-KEY, 0], ArrowRight: [KEY, 0], ArrowUp: [0, KEY], ArrowDown: [0, -KEY] };

  function turn(view, [around, above]) {
    view.around += around;
    view.above = Math.min(1.5, Math.max(0.05, view.above + above));
  }

  function listen(canvas, view, again, dots) {
    canvas.addEventListener("keydown", (event) => {
      if (event.key === "Home") Object.assign(view, START); else if (KEYS[event.key]) turn(view, KEYS[event.key]); else return;
      event.preventDefault();
      again();
    });
    canvas.addEventListener("dblclick", () => { Object.assign(view, START); again(); });
    canvas.addEventListener("pointerdown", (event) => canvas.setPointerCapture(event.pointerId));
    canvas.addEventListener("pointermove", (event) => {
      if (event.buttons) { turn(view, [-TURN * event.movementX, TURN * event.movementY]); again(); }
      const near = dots().find((one) => Math.hypot(one.x - event.offsetX, one.y - event.offsetY) < NEAR);
      if (near) canvas.dataset.tip = near.text; else delete canvas.dataset.tip;
    });
  }

  // Draws into `element`; a drawing that takes another's place is seen from where that was.
  function draw(element, traces, layout, width) {
    const canvas = document.createElement("canvas"), view = views.get(element) || { ...START }, high = layout.height;
    views.set(element, view);
    Object.assign(canvas, { tabIndex: 0, className: "turning" });
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${element.dataset.label || "Roof-Surface"}. Arrow keys turn it, Home turns it back.`);
    canvas.style.cssText = `width:${width}px;height:${high}px`;
    element.replaceChildren(canvas);
    let dots = paint(canvas, traces, width, high);
    listen(canvas, view, () => { dots = paint(canvas, traces, width, high); }, () => dots);
  }

  return { draw };
})();
