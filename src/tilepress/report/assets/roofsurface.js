// The Roof-Surface in the browser: roofsurface/ of the package again, formula by formula. Constants come from there, as
// `data`; a test compares both over random points.
const RoofSurface = (() => {
  const MEMORY = "memory", VECTOR = "vector", MATRIX = "matrix", FRONT_END = "front end";
  const UNITS = { memory: "bytes", vector: "vector operations", matrix: "matrix operations" };

  // Bytes that a tile takes in memory: codes, bitmask and scales. Density 1 is dense, without a bitmask.
  function tileBytes(data, format, density) {
    const codes = density === 1 ? format.bits : format.bits * density + 1;
    return (data.tileWeights * (codes + format.groupBits)) / 8;
  }

  // Probability of each number 0 … count of successes.
  function binomial(count, share) {
    if (share >= 1) return Array.from({ length: count + 1 }, (_, nonzeros) => (nonzeros === count ? 1 : 0));
    const logs = [0];
    for (let n = 1; n <= count; n++) logs.push(logs[n - 1] + Math.log(n));
    return logs.map((log, nonzeros) =>
      Math.exp(logs[count] - log - logs[count - nonzeros] + nonzeros * Math.log(share)
        + (count - nonzeros) * Math.log1p(-share)),
    );
  }

  // Expected bubbles of a vector operation of DECA: of its binomially many codes, `lookups` pass in a cycle.
  function bubbles(width, lookups, density) {
    return binomial(width, density).reduce(
      (sum, chance, nonzeros) => sum + chance * Math.max(Math.ceil(nonzeros / lookups) - 1, 0), 0);
  }

  function lookups(bits, width, tables) {
    if (bits > 8) return width;
    return tables * (bits === 8 ? 1 : bits === 7 ? 2 : 4);
  }

  function vectorOperations(data, choice) {
    const { format, density, width, tables } = choice;
    if (choice.decompressor === "deca") {
      const each = 1 + bubbles(width, lookups(format.bits, width, tables), density);
      return (data.tileWeights / width) * each;
    }
    if (format.bits === 16 && density === 1) return 0;
    const count = data.libxsmm[`${format.bits}${density < 1 ? " sparse" : ""}`];
    if (count === undefined) {
      throw new Error(`nobody has counted libxsmm's operations for ${density < 1 ? "sparse " : ""}` +
        `${format.bits}-bit weights; a DECA takes every format`);
    }
    return count;
  }

  // int4:g32 → int8, mxfp4 → bf16: what fits the weights, if that is left to us.
  function activations(choice) {
    return choice.activations === "auto" ? (choice.format.integer ? "int8" : "bf16") : choice.activations;
  }

  // The kernel of ours that runs this on the machine, of those that were counted with as many rows.
  function kernelOn(data, choice) {
    const { machine, format, density, batch } = choice, chosen = activations(choice);
    const alike = data.kernels.filter((one) => machine.isas.includes(one.isa) && one.weights === format.name &&
      one.sparse === density < 1 && data.activations[chosen].includes(one.activations));
    const fitting = alike.filter((one) => one.rows === batch).sort((one, other) => one.operations - other.operations);
    if (fitting.length) return fitting[0];
    const rows = [...new Set(alike.map((one) => one.rows))].sort((one, other) => one - other);
    throw new Error(`nobody has counted ${batch} rows of ${density < 1 ? "sparse " : ""}${format.name}+${chosen} with our ` +
      `kernels of this machine${rows.length ? `, only ${rows.join(" and ")}` : ""}`);
  }

  function kernelDemands(data, choice) {
    const { density } = choice, one = kernelOn(data, choice), [operations, instructions] = one.perDensity;
    const asked = { [MEMORY]: tileBytes(data, choice.format, density), [VECTOR]: one.operations + operations * density };
    if (one.instructions !== null) asked[FRONT_END] = one.instructions + instructions * density;
    if (one.matrix !== null) asked[MATRIX] = one.matrix;
    return asked;
  }

  // Domain → what it is asked for one matrix operation.
  function demands(data, choice, rowTiles) {
    if (choice.decompressor === "kernels") {
      const asked = Object.entries(kernelDemands(data, choice));
      return Object.fromEntries(asked.map(([name, demand]) => [name, name === MATRIX ? demand : demand / rowTiles]));
    }
    const asked = { [MEMORY]: tileBytes(data, choice.format, choice.density) / rowTiles };
    if (choice.decompressor !== "none") asked[VECTOR] = vectorOperations(data, choice) / rowTiles;
    asked[MATRIX] = 1;
    return asked;
  }

  // Domain → what it does a second.
  function rates(choice) {
    const { machine, decompressor } = choice;
    const perSecond = { [MEMORY]: machine.bandwidth, [MATRIX]: machine.matrixRate };
    if (decompressor === "deca") perSecond[VECTOR] = machine.cycles;
    if (decompressor === "kernels") perSecond[FRONT_END] = machine.frontEnd;
    if (decompressor === "libxsmm" || decompressor === "kernels") {
      if (machine.vectorRate === null) throw new Error("nothing is known of this machine's vector units");
      perSecond[VECTOR] = machine.vectorRate;
    }
    return perSecond;
  }

  function least(limits, without) {
    const names = Object.keys(limits).filter((name) => name !== without);
    return names.reduce((best, name) => (best === null || limits[name] < limits[best] ? name : best), null);
  }

  // A number as Python's :.4g writes it.
  function general(value) {
    const text = value.toPrecision(4);
    if (text.includes("e")) return text.replace(/\.?0*e/, "e").replace(/e([+-])(\d)$/, "e$10$2");
    return Math.abs(value) < 1e-4 && value !== 0
      ? value.toExponential(3).replace(/\.?0*e/, "e").replace(/e([+-])(\d)$/, "e$10$2")
      : text.includes(".") ? text.replace(/\.?0+$/, "") : text;
  }

  // What would move a kernel out of the region it is in.
  function advice(asked, binding, runnerUp, headroom) {
    const demand = asked[binding];
    const wish = binding === MATRIX
      ? "" : ` or ${general(demand / headroom)} ${UNITS[binding] || `operations of the ${binding}`} instead of ${general(demand)}`;
    return `${headroom.toFixed(2)}× the ${binding} rate${wish}: then ${runnerUp} binds`;
  }

  // `choice`: machine and format as `data` has them, density, batch, decompressor (none, libxsmm, kernels, deca), width
  // and tables of a DECA, activations of our kernels.
  function predict(data, choice) {
    const rowTiles = Math.ceil(choice.batch / choice.machine.rows);
    const asked = demands(data, choice, rowTiles), speeds = rates(choice), limits = {};
    for (const name of Object.keys(asked)) limits[name] = speeds[name] / asked[name];
    const binding = least(limits), runnerUp = least(limits, binding), rate = limits[binding];
    const each = (data.tileWeights * choice.batch) / rowTiles;
    const headroom = limits[runnerUp] / rate;
    return {
      demands: asked, rates: speeds, limits, binding, runnerUp, headroom, rate,
      flops: each * rate,
      flopsPerOperation: each,
      rooflineFlops: each * Math.min(limits[MEMORY], limits[MATRIX] ?? Infinity),
      bandwidth: asked[MEMORY] * rate,
      advice: advice(asked, binding, runnerUp, headroom),
    };
  }

  // A machine with other constants: `given` has all that `constants` gives. Rates that do not follow from cores, clock
  // and units stay as they are.
  function changed(machine, given) {
    const cycles = given.cores * given.frequency, frontEnd = machine.frontEnd;
    return {
      ...machine, ...given, cycles,
      vectorRate: machine.units === null ? machine.vectorRate : cycles * given.units,
      matrixRate: machine.matrixCycles === null ? machine.matrixRate : cycles / given.matrixCycles,
      frontEnd: frontEnd === null ? null : (frontEnd / machine.cycles) * cycles,
    };
  }

  function constants({ bandwidth, cores, frequency, units, matrixCycles }) {
    return { bandwidth, cores, frequency, units, matrixCycles };
  }

  // The lines of the bounding region diagram.
  function bord(speeds) {
    const memory = speeds[MEMORY], vector = speeds[VECTOR], matrix = speeds[MATRIX];
    return { slope: memory / vector, right: matrix / memory, top: matrix / vector };
  }

  return { tileBytes, bubbles, activations, kernelOn, predict, changed, constants, bord, general };
})();

if (typeof module !== "undefined") module.exports = RoofSurface;
