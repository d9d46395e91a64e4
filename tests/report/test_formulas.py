"""The explorer's formulas beside the package's, over random points, in Node or in Chromium."""

import json
import random
import shutil
import subprocess

import pytest

from tilepress.formats import Integer, parse_weight
from tilepress.hardware import Machine, read_machine
from tilepress.report.explorer import explorer_data, machine_data
from tilepress.report.page import asset
from tilepress.roofsurface import bord, bubbles, parse_decompressor, predict
from tilepress.roofsurface.kernels import isa_of, kernel_on

from .samples import HERE, THERE, measured

POINTS = 600
CALL = """(() => {
  const data = DATA, points = POINTS;
  return points.map((one) => {
    const choice = { ...one, machine: data.machines[one.machine], format: data.formats[one.format] };
    try {
      const { limits, ...bound } = RoofSurface.predict(data, choice);
      return { ...bound, bord: bound.rates.vector && bound.rates.matrix ? RoofSurface.bord(bound.rates) : null,
        bubbles: RoofSurface.bubbles(one.width, one.lookups, one.density) };
    } catch (error) { return { error: error.message }; }
  });
})()"""


RECORDS = [*measured(HERE), *measured(THERE, 16, "amx", "avx2 avx512f amx_tile")]
ISAS = {HERE: "neon_dotprod", THERE: "amx"}


def machine_of(name):
    """A machine of the package, or the one that the records above are of."""
    if name not in ISAS:
        return read_machine(name)
    rows, cores = (
        (1, {"vector": {"units": 2, "bits": 128}, "issue": 4})
        if name == HERE
        else (16, {"vector": {"units": 2, "bits": 512}, "issue": 6})
    )
    parts = {"cores": 2, "frequency": 2.5e9, "memory": {"bandwidth": 36.5e9}, "matrix": {"rows": rows, "cycles": 16}}
    everything = {**parts, **cores}
    return Machine.model_validate(
        {"name": "here", "title": name, **everything, "sources": dict.fromkeys(everything, "x")}
    )


def random_points():
    chosen = random.Random(0)
    data = explorer_data(RECORDS)
    return [random_point(chosen, data) for _ in range(POINTS)]


def random_point(chosen, data):
    machine = chosen.choice([*data["machines"], *5 * list(ISAS)])  # as often as those without kernels of ours
    known = data["machines"][machine]
    fits = {"none": True, "deca": known["vectorRate"], "libxsmm": known["libxsmm"], "kernels": known["isas"]}
    point = {
        "machine": machine,
        "format": chosen.choice(list(data["formats"])),
        "density": chosen.choice([1, round(chosen.uniform(0.01, 0.99), 3)]),
        "batch": chosen.randint(1, 600),
        "decompressor": chosen.choice([name for name, does in fits.items() if does]),
        "width": 2 ** chosen.randint(0, 9),
        "tables": chosen.randint(1, 64),
        "lookups": chosen.randint(1, 80),
        "activations": chosen.choice(["auto", *data["activations"]]),
    }
    if point["decompressor"] == "kernels":  # of which few were counted
        one = chosen.choice([one for one in data["kernels"] if one["isa"] in known["isas"]])
        point |= {"format": one["weights"], "batch": chosen.choice([one["rows"], one["rows"], 7])}
    return point


@pytest.fixture(scope="module")
def evaluate(request, tmp_path_factory):
    """A JavaScript expression's value where the page's formulas are known: in Node, or else in the browser."""
    folder, node = tmp_path_factory.mktemp("formulas"), shutil.which("node")
    browser = None if node else request.getfixturevalue("browser")

    def value(expression):
        source = f"{asset('roofsurface.js')}\nconst answer = {expression};"
        if browser:
            page = folder / "formulas.html"
            page.write_text(f"<!doctype html><meta charset=utf-8><script>{source}</script>", "utf-8")
            return browser.open(page).run("return answer;")
        script = folder / "formulas.js"
        script.write_text(f"{source}\nconsole.log(JSON.stringify(answer));", "utf-8")
        done = subprocess.run([node, str(script)], capture_output=True, text=True, check=True, timeout=120)
        return json.loads(done.stdout)

    return value


@pytest.fixture(scope="module")
def compared(evaluate):
    points = random_points()
    expression = CALL.replace("DATA", json.dumps(explorer_data(RECORDS))).replace("POINTS", json.dumps(points))
    return list(zip(points, evaluate(expression), strict=True))


def decompressor(point):
    name, format = point["decompressor"], parse_weight(point["format"])
    if name == "kernels":
        fitting = "int8" if isinstance(format.element, Integer) else "bf16"
        activations = fitting if point["activations"] == "auto" else point["activations"]
        isa = ISAS.get(point["machine"]) or isa_of(machine_of(point["machine"]))
        return kernel_on(isa, format, point["density"], activations, point["batch"])
    return parse_decompressor(f"deca:w{point['width']}:l{point['tables']}" if name == "deca" else name)


def test_both_give_the_same(compared):
    agreed = dict.fromkeys(("none", "deca", "libxsmm", "kernels"), 0)
    for point, theirs in compared:
        machine, format = machine_of(point["machine"]), parse_weight(point["format"])
        try:
            ours = predict(machine, format, point["density"], decompressor(point), point["batch"])
        except ValueError as error:
            assert "nobody has counted" in str(error) and "nobody has counted" in theirs.get("error", ""), point
            continue
        assert "error" not in theirs, (point, theirs)
        assert theirs["binding"] == ours.surface.binding and theirs["runnerUp"] == ours.surface.runner_up, point
        assert theirs["demands"] == pytest.approx(ours.demands, rel=1e-9)
        figures = (ours.flops, ours.roofline_flops, ours.bandwidth)
        assert (theirs["flops"], theirs["rooflineFlops"], theirs["bandwidth"]) == pytest.approx(figures, rel=1e-9)
        assert theirs["headroom"] is None or theirs["headroom"] == pytest.approx(ours.surface.headroom, rel=1e-9)
        agreed[point["decompressor"]] += 1
    assert sum(agreed.values()) > POINTS / 2 and min(agreed.values()) > POINTS / 40, agreed


def test_so_do_regions_and_bubbles(compared):
    regions = 0
    for point, theirs in compared:
        if "error" in theirs:
            continue
        expected = bubbles(point["width"], point["lookups"], point["density"])
        assert theirs["bubbles"] == pytest.approx(expected, rel=1e-9, abs=1e-12)
        if theirs["bord"] is not None:
            lines = bord(decompressor(point).rates(machine_of(point["machine"])))
            assert theirs["bord"] == pytest.approx({"slope": lines.slope, "right": lines.right, "top": lines.top})
            regions += 1
    assert regions > POINTS / 10


def test_so_does_the_advice(compared):
    """In words: figures have four digits there, of which the last may be rounded either way."""
    same = 0
    for point, theirs in compared:
        if "error" not in theirs and theirs["headroom"] is not None:
            machine, format = machine_of(point["machine"]), parse_weight(point["format"])
            ours = predict(machine, format, point["density"], decompressor(point), point["batch"])
            same += theirs["advice"] == ours.advice
    assert same > 0.95 * sum("error" not in theirs and theirs["headroom"] is not None for _, theirs in compared)


def test_a_changed_machine_has_the_rates_that_python_gives_it(evaluate):
    chosen, data = random.Random(1), explorer_data()
    machines = {name: read_machine(name) for name in data["machines"]}
    points = []
    for name, machine in machines.items():
        other = {"bandwidth": chosen.uniform(1e10, 1e12), "cores": chosen.randint(1, 200)}
        other |= {"frequency": chosen.uniform(1e9, 5e9), "units": None, "matrixCycles": None}
        if machine.vector:
            other["units"] = chosen.uniform(1, 4)
        if machine.matrix and machine.matrix.cycles:
            other["matrixCycles"] = chosen.uniform(1, 32)
        points.append([name, other])
    call = f"(() => {{ const data = {json.dumps(data)}; return {json.dumps(points)}.map(([name, given]) => "
    call += "RoofSurface.changed(data.machines[name], given)); })()"
    for (name, other), theirs in zip(points, evaluate(call), strict=True):
        parts = {"memory": {"bandwidth": other["bandwidth"]}, "cores": other["cores"], "frequency": other["frequency"]}
        parts |= {"vector": {"units": other["units"]}} if other["units"] else {}
        parts |= {"matrix": {"cycles": other["matrixCycles"]}} if other["matrixCycles"] else {}
        expected = machine_data(machines[name].changed(**parts))
        for rate in ("bandwidth", "cycles", "vectorRate", "matrixRate", "frontEnd"):
            close = expected[rate] and pytest.approx(expected[rate], rel=1e-12)
            assert theirs[rate] == close, (name, rate)


def test_numbers_are_written_as_python_writes_them(evaluate):
    values = [0.0, 1.0, 12.5, 999.96, 1234.6, 99999.0, 123456.0, 1e-5, 0.00012345, 2.5e-7, 1e21, 3.0e10]
    texts = evaluate(f"{json.dumps(values)}.map(RoofSurface.general)")
    assert texts == [f"{value:.4g}" for value in values]
