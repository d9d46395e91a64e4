// The explorer: choices of a reader, and what the Roof-Surface makes of them.
const Explorer = (() => {
  let data, form, waiting = null, looked = false, soon = null;
  const $ = (id) => document.getElementById(id);

  function choice() {
    const fields = form.elements;
    return {
      machine: data.machines[fields.machine.value],
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
      const cell = document.createElement("td");
      cell.className = index === 1 || index === 2 ? "number" : "word";
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
    if (waiting === null) return null;
    const given = waiting, whole = given.rates.vector && Number.isFinite(given.points[0].y);
    waiting = soon = null;
    const top = Page.draw($("explorer-surface"), ...(whole ? Surfaces.surface(given) : Surfaces.roofline(given)));
    return whole ? Promise.all([top, Page.draw($("explorer-bord"), ...Surfaces.bord(given))]) : top;
  }

  // Somebody does: from now on there are plots.
  function look() {
    looked = true;
    return drawWaiting();
  }

  function command(made) {
    const { machine, format, density, batch, decompressor } = made;
    const engine = decompressor === "deca" ? `deca:w${made.width}:l${made.tables}` : decompressor;
    const inputs = decompressor === "kernels" ? ` --acts ${RoofSurface.activations(made)}` : "";
    return `tilepress roofsurface --machine ${machine.argument} --weights ${format.name} --density ${density} ` +
      `--batch ${batch} --decompressor ${engine}${inputs}`;
  }

  function update() {
    const made = choice(), fields = form.elements;
    fields["density-text"].textContent = `${Math.round(100 * made.density)} %`;
    for (const field of ["batch", "width", "tables"]) fields[`${field}-text`].textContent = made[field];
    for (const one of ["deca", "kernels"]) {
      form.querySelectorAll(`.${one}`).forEach((label) => { label.hidden = made.decompressor !== one; });
    }
    define($("machine-sources"), Object.entries(made.machine.sources));
    $("explorer-command").textContent = command(made);
    try {
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
    form.addEventListener("input", () => { fitDecompressors(); update(); });
    fitDecompressors();
    update();
  }

  return { look, start };
})();

Page.start();
