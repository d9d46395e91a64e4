// From figures to pixels: axes, their ticks, and numbers as a reader sees them.
const Scales = (() => {
  const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  const PREFIXES = [["T", 1e12], ["G", 1e9], ["M", 1e6]];
  const pen = document.createElement("canvas").getContext("2d");

  function width(text, size) {
    pen.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
    return pen.measureText(text).width;
  }

  // With an ellipsis where there is no more room.
  function shortened(text, size, room) {
    if (width(text, size) <= room) return text;
    let count = Math.max(1, Math.floor((text.length * room) / width(text, size)));
    while (count > 1 && width(`${text.slice(0, count)}…`, size) > room) count--;
    return `${text.slice(0, count)}…`;
  }

  function number(value) {
    const prefix = PREFIXES.find(([, size]) => Math.abs(value) >= size);
    if (prefix) return `${Number((value / prefix[1]).toPrecision(4))} ${prefix[0]}`;
    return String(Number(value.toPrecision(4)));
  }

  function power(exponent) {
    const digits = [...String(Math.abs(exponent))].map((one) => SUPERSCRIPTS[one]).join("");
    return `10${exponent < 0 ? "⁻" : ""}${digits}`;
  }

  // The step of about `count` ticks: 1, 2 or 5 times a power of ten.
  function step(span, count) {
    const size = 10 ** Math.floor(Math.log10(span / count)), share = span / count / size;
    return size * (share <= 1 ? 1 : share <= 2 ? 2 : share <= 5 ? 5 : 10);
  }

  function linear(low, high, from, to, suffix = "") {
    const each = step(high - low, Math.max(2, Math.abs(to - from) / 80)), ticks = [];
    for (let n = Math.ceil(low / each - 1e-9); n * each <= high + 1e-9 * each; n++) {
      ticks.push({ value: n * each, text: `${number(n * each)}${suffix}` });
    }
    return { at: (value) => from + ((value - low) / (high - low)) * (to - from), ticks, band: (to - from) / (high - low) };
  }

  // `low` and `high` are exponents. Ticks at powers of ten, and at 2 and 5 times where that leaves room.
  function log(low, high, from, to) {
    const room = Math.abs(to - from) / (high - low), ticks = [], at = (value) => from + ((Math.log10(value) - low) / (high - low)) * (to - from);
    for (let n = Math.floor(low); n <= Math.ceil(high); n++) {
      for (const times of room > 110 ? [1, 2, 5] : [1]) {
        const place = n + Math.log10(times), plain = n >= -3 && n <= 4;
        if (place >= low - 1e-9 && place <= high + 1e-9) {
          const value = times * 10 ** n;
          ticks.push({ value, text: plain ? number(value) : times === 1 ? power(n) : `${times}·${power(n)}` });
        }
      }
    }
    return { at, ticks, band: 0 };
  }

  function category(names, from, to) {
    const band = (to - from) / Math.max(1, names.length), places = new Map(names.map((name, index) => [name, from + band * (index + 0.5)]));
    return { at: (name) => places.get(String(name)), ticks: names.map((value) => ({ value, text: value })), band, isDiscrete: true };
  }

  function kind(axis, values) {
    return axis.type || (values.some((one) => typeof one === "string") ? "category" : "linear");
  }

  // Least and largest, with some room beyond, which 0 needs not.
  function extent(axis, values) {
    const known = values.filter((one) => Number.isFinite(one)), all = axis.rangemode === "tozero" ? [0, ...known] : known;
    const low = all.length ? Math.min(...all) : 0, high = all.length ? Math.max(...all) : 1, room = 0.05 * (high - low) || Math.abs(high) || 1;
    return [low === 0 && axis.rangemode === "tozero" ? 0 : low - room, high + (high === 0 && axis.rangemode === "tozero" ? 0 : room)];
  }

  // `axis` as a layout has it, between the pixels `from` and `to`; ranges of logarithmic axes are exponents.
  function make(axis, values, from, to) {
    const [start, end] = axis.autorange === "reversed" ? [to, from] : [from, to];
    const type = kind(axis, values);
    if (type === "category") return category([...new Set(values.map(String))], start, end);
    if (type === "log") {
      const powers = values.filter((one) => one > 0).map(Math.log10);
      return log(...(axis.range || extent({}, powers)), start, end);
    }
    return linear(...(axis.range || extent(axis, values)), start, end, axis.ticksuffix || "");
  }

  return { kind, make, number, power, shortened, step, width };
})();
