// The explorer: choices of a reader, and what the Roof-Surface makes of them.
const Explorer = (() => {
  let data, form, waiting = null, looked = false, soon = null, shownMachine = null;
  const $ = (id) => document.getElementById(id);

  // Fields of a machine's constants: how many of the constant's units one of the field's is.
  const SIZES = { bandwidth: 1e9, cores: 1, frequency: 1e9, units: 1, matrixCycles: 1 };
  // What the page's address keeps, by the names that it has there.
  const KEPT = ["machine", "format", "decompressor", "activations", "density", "batch", "width", "tables"];
  const PREFIX = "#explore:";

  function described() { return data.machines[form.elements.machine.value]; }

  function written(name) {
    const value = described()[name];
    return value === null ? "" : String(Number((value / SIZES[name]).toPrecision(6)));
  }

  function describe() {
    shownMachine = form.elements.machine.value;
    for (const name of Object.keys(SIZES)) {
      const field = form.elements[name], isKnown = described()[name] !== null;
      field.value = written(name);
      for (const one of [field, ...field.labels]) one.hidden = !isKnown;
    }
  }

  function changedFields() { return Object.keys(SIZES).filter((name) => form.elements[name].value !== written(name)); }

  // The machine as it is described, but for what was typed into the fields.
  function machineChosen() {
    const machine = described(), other = changedFields();
    if (!other.length) return machine;
    const given = RoofSurface.constants(machine);
    for (const name of other) {
      given[name] = SIZES[name] * Number(form.elements[name].value);
      if (!(given[name] > 0 && Number.isFinite(given[name]))) throw new Error(`${form.elements[name].labels[0].textContent}: give a number above 0`);
    }
    return RoofSurface.changed(machine, given);
  }

  function keep() {
    const fields = form.elements, kept = [...KEPT, ...changedFields()].map((name) => [name, fields[name].value]);
    try { history.replaceState(null, "", PREFIX + new URLSearchParams(kept)); } catch (error) { /* where a browser forbids it */ }
  }

  // Whether a field can have this value: one of its options, or a number that it takes.
  function takes(name, value) {
    const field = form.elements[name];
    if (name in SIZES) return described()[name] !== null && Number(value) > 0 && Number.isFinite(Number(value));
    if (field.tagName === "SELECT") return [...field.options].some((one) => one.value === value && !one.disabled);
    return /^\d+$/.test(value) && Number(value) >= Number(field.min) && Number(value) <= Number(field.max);
  }

  // As the page's address says; as before if it says what no field takes.
  function restore() {
    if (!location.hash.startsWith(PREFIX)) return false;
    const fields = form.elements, before = [...KEPT, ...Object.keys(SIZES)].map((name) => [name, fields[name].value]);
    for (const [name, value] of new URLSearchParams(location.hash.slice(PREFIX.length))) {
      if (![...KEPT, ...Object.keys(SIZES)].includes(name) || !takes(name, value)) {
        for (const [other, old] of before) fields[other].value = old;
        describe();
        for (const [other, old] of before) fields[other].value = old;
        fitDecompressors();
        return false;
      }
      fields[name].value = value;
      if (name === "machine") { describe(); fitDecompressors(); }
    }
    return true;
  }

  function choice() {
    const fields = form.elements;
    return {
      machine: machineChosen(),
      format: data.formats[fields.format.value],
      decompressor: fields.decompressor.value,
      activations: fields.activations.value,
      density: Number(fields.density.value) / 100,
      batch: 2 ** Number(fields.batch.value),
      width: 2 ** Number(fields.width.value),
      tables: 2 ** Number(fields.tables.value),
    };
  }

  function name(made) { return made.density < 1 ? `${made.format.name} @ ${Math.round(100 * made.density)} %` : made.format.name; }

  function baseline(made) {
    const plain = { ...made, format: data.formats.bf16, density: 1, decompressor: "none" };
    return RoofSurface.predict(data, plain).flops;
  }

  function faster(machine, changes) {
    const scaled = Object.entries(changes).map(([key, times]) => [key, machine[key] === null ? null : machine[key] * times]);
    return { ...machine, ...Object.fromEntries(scaled) };
  }

  // What else there might be: label → choice.
  function changes(made) {
    const cores = { cycles: 2, vectorRate: 2, matrixRate: 2, frontEnd: 2 };
    const choices = [
      ["twice the memory bandwidth", { ...made, machine: faster(made.machine, { bandwidth: 2 }) }],
      ["twice the cores, or the clock", { ...made, machine: faster(made.machine, cores) }],
      ["half the density", { ...made, density: made.density / 2 }],
      ["twice the batch", { ...made, batch: 2 * made.batch }],
    ];
    if (made.decompressor === "libxsmm" || made.decompressor === "kernels") {
      choices.push(["twice the vector units", { ...made, machine: faster(made.machine, { vectorRate: 2 }) }]);
    }
    if (made.decompressor === "deca") {
      if (made.width < data.tileWeights) choices.push([`W = ${2 * made.width}`, { ...made, width: 2 * made.width }]);
      choices.push([`L = ${2 * made.tables}`, { ...made, tables: 2 * made.tables }]);
    } else if (made.machine.vectorRate !== null) {
      choices.push(["DECA with the W and L above", { ...made, decompressor: "deca" }]);
    }
    return choices;
  }

  function row(cells) {
    const made = document.createElement("tr");
    for (const [index, text] of cells.entries()) {
      const cell = document.createElement(index ? "td" : "th");
      if (index) cell.className = index < 3 ? "number" : "then"; else cell.scope = "row";
      cell.textContent = text;
      made.append(cell);
    }
    return made;
  }

  function showMoves(made, now) {
    const rows = changes(made).map(([label, other]) => {
      try {
        const then = RoofSurface.predict(data, other);
        return row([label, RoofSurface.general(then.flops / 1e12), (then.flops / now.flops).toFixed(2), then.binding]);
      } catch (error) {
        return row([label, "", "", error.message]);
      }
    });
    $("moves").tBodies[0].replaceChildren(...rows);
  }

  function define(list, pairs) {
    list.replaceChildren(...pairs.map(([term, text]) => {
      const pair = document.createElement("div"), dt = document.createElement("dt"), dd = document.createElement("dd");
      dt.textContent = term;
      dd.textContent = text;
      pair.append(dt, dd);
      return pair;
    }));
  }

  function showNumbers(made, now) {
    const g = RoofSurface.general;
    const pairs = [
      ["Roof-Surface", `${g(now.flops / 1e12)} TFLOPS`],
      ["roofline, without vector units", `${g(now.rooflineFlops / 1e12)} TFLOPS`],
      ["weights read", `${g(now.bandwidth / 1e9)} GB/s`],
      ["a billion weights take", `${g((1e9 * made.batch * 1e3) / now.flops)} ms`],
      ["over BF16 weights", `${g(now.flops / baseline(made))} ×`],
      ["memory asked", `${g(now.demands.memory)} bytes an operation; AI_XM ${g(1 / now.demands.memory)}`],
    ];
    if (made.decompressor === "kernels") pairs.unshift(["kernel", RoofSurface.kernelOn(data, made).name]);
    if (now.demands["front end"]) pairs.push(["front end asked", `${g(now.demands["front end"])} instructions an operation`]);
    if (now.demands.vector) {
      pairs.push(["vector asked", `${g(now.demands.vector)} an operation; AI_XV ${g(1 / now.demands.vector)}`]);
    }
    for (const [domain, limit] of Object.entries(now.limits)) {
      const text = Number.isFinite(limit) ? `${g((limit * now.flopsPerOperation) / 1e12)} TFLOPS` : "no limit";
      pairs.push([`${domain} allows`, text]);
    }
    define($("numbers"), pairs);
  }

  // The lowest of what limits a kernel whatever its intensities are: {domain, rate}, or null.
  function flat(limits) {
    const candidates = ["matrix", "front end"].filter((domain) => domain in limits);
    const domain = candidates.sort((one, other) => limits[one] - limits[other])[0];
    return domain === undefined ? null : { domain, rate: limits[domain] };
  }

  function showPlots(made, now) {
    const point = {
      name: name(made), x: 1 / now.demands.memory, y: 1 / now.demands.vector, z: now.flops / 1e12, bound: now.binding,
    };
    const whole = now.demands.vector > 0;
    waiting = { rates: now.rates, flat: flat(now.limits), flops: now.flopsPerOperation, points: [point] };
    $("explorer-bord").parentElement.hidden = !whole;
    $("surface-title").textContent = whole ? "Roof-Surface" : "Roofline: no vector unit is asked";
    if (looked && soon === null) soon = requestAnimationFrame(drawWaiting);
  }

  // Once a frame, however fast a slider goes.
  function drawWaiting() {
    if (waiting === null) return;
    const given = waiting, whole = given.rates.vector && Number.isFinite(given.points[0].y);
    waiting = soon = null;
    Page.draw($("explorer-surface"), ...(whole ? Surfaces.surface(given) : Surfaces.roofline(given)));
    if (whole) Page.draw($("explorer-bord"), ...Surfaces.bord(given));
  }

  // Somebody does: from now on there are plots.
  function look() {
    looked = true;
    drawWaiting();
  }

  function command(made) {
    const { machine, format, density, batch, decompressor } = made;
    const engine = decompressor === "deca" ? `deca:w${made.width}:l${made.tables}` : decompressor;
    const inputs = decompressor === "kernels" ? ` --acts ${RoofSurface.activations(made)}` : "";
    return `tilepress roofsurface --machine ${machine.argument} --weights ${format.name} --density ${density} ` +
      `--batch ${batch} --decompressor ${engine}${inputs}`;
  }

  // A slider's value in words, for eyes and for screen readers.
  function say(name, words) {
    form.elements[`${name}-text`].textContent = words;
    form.elements[name].setAttribute("aria-valuetext", words);
  }

  function update() {
    const fields = form.elements;
    say("density", `${fields.density.value} %`);
    for (const name of ["batch", "width", "tables"]) say(name, String(2 ** Number(fields[name].value)));
    for (const one of ["deca", "kernels"]) {
      form.querySelectorAll(`.${one}`).forEach((part) => { part.hidden = fields.decompressor.value !== one; });
    }
    $("changed").hidden = $("command-note").hidden = !changedFields().length;
    try {
      const made = choice();
      define($("machine-sources"), Object.entries(made.machine.sources));
      $("explorer-command").textContent = command(made);
      show(made, RoofSurface.predict(data, made));
    } catch (error) {
      complain(error.message);
    }
  }

  function show(made, now) {
    $("problem").hidden = true;
    for (const id of ["bound", "advice", "numbers"]) $(id).hidden = false;
    $("bound").textContent = `bound by ${now.binding}`;
    $("bound").style.background = Page.DOMAINS[now.binding];
    $("bound").style.color = now.binding === "matrix" ? "#fff" : "#000";
    $("rate").textContent = `${RoofSurface.general(now.flops / 1e12)} TFLOPS`;
    $("advice").textContent = `To leave it: ${now.advice}.`;
    showNumbers(made, now);
    showMoves(made, now);
    showPlots(made, now);
  }

  function complain(message) {
    $("problem").hidden = false;
    $("problem").textContent = message;
    for (const id of ["bound", "advice", "numbers"]) $(id).hidden = true;
    $("rate").textContent = "";
    $("moves").tBodies[0].replaceChildren();
  }

  function options(select, pairs, chosen) {
    select.replaceChildren(...pairs.map(([value, text]) => new Option(text, value, false, value === chosen)));
  }

  // A machine of which no cores are known cannot have a DECA beside them, libxsmm's code needs vectors of 512 bits, and
  // our kernels were counted for some instruction sets.
  function fitDecompressors() {
    const fields = form.elements, machine = data.machines[fields.machine.value];
    const fits = { none: true, deca: machine.vectorRate !== null, libxsmm: machine.libxsmm, kernels: machine.isas.length > 0 };
    for (const option of fields.decompressor.options) option.disabled = !fits[option.value];
    if (!fits[fields.decompressor.value]) fields.decompressor.value = fits.deca ? "deca" : "none";
  }

  function changedByReader() {
    fitDecompressors();
    update();
    keep();
  }

  function start() {
    data = JSON.parse($("explorer-data").textContent);
    form = $("controls");
    const machines = Object.entries(data.machines).map(([key, machine]) => [key, machine.title]);
    const here = Object.keys(data.machines).find((key) => data.machines[key].argument === "here");
    options(form.elements.machine, machines, here ?? "spr-hbm");
    options(form.elements.format, Object.keys(data.formats).map((key) => [key, key]), "bf8");
    const inputs = Object.keys(data.activations).map((key) => [key, key]);
    options(form.elements.activations, [["auto", "what fits the weights"], ...inputs], "auto");
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => {
      if (form.elements.machine.value !== shownMachine) describe();
      changedByReader();
    });
    $("as-described").addEventListener("click", () => { describe(); changedByReader(); });
    addEventListener("hashchange", () => { if (restore()) update(); });
    describe();
    fitDecompressors();
    if (restore()) requestAnimationFrame(() => $("explorer").scrollIntoView());
    update();
  }

  return { look, start };
})();
