"""`rtl.drawing`: small designs whose diagrams are known, files, and the diagrams that docs/rtl.md shows."""

import re
import shutil
from functools import cache

import pytest
from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from tests.rtl.diagrams import IMAGES, LARGEST, drawings
from tilepress.rtl.drawing import check_ending, diagram_of, dot_hash, hash_in, modules_of, part_of, write
from tilepress.rtl.units import unit_of
from tilepress.rtl.verilog import module_name


class Design(wiring.Component):
    """A component whose `elaborate` is a function of it and its module."""

    def __init__(self, signature, body):
        super().__init__(signature)
        self._body = body

    def elaborate(self, platform):
        m = Module()
        self._body(self, m)
        return m


def graph_of(design, depth=None):
    return diagram_of(modules_of(design, "top"), "top", depth)[0]


def name_of(graph, key):
    return ", ".join(sorted(graph.boxes[key].labels))


def arrows_of(graph):
    """(from, to) by names → whether words pass."""
    ends = {(name_of(graph, begin), name_of(graph, end)): arrow for (begin, end), arrow in graph.arrows.items()}
    return {names: bool(arrow.words) for names, arrow in ends.items()}


def box(graph, name, kind=None):
    (found,) = [one for key, one in graph.boxes.items() if name_of(graph, key) == name and kind in (None, key.kind)]
    return found


def multiply_and_add(self, m):
    total = Signal(16)
    with m.If(self.enable):
        m.d.sync += total.eq(total + self.a * self.b)
    m.d.comb += self.out.eq(~total)


SUM = {"a": In(4), "b": In(4), "enable": In(1), "out": Out(16)}


def test_an_arrow_leads_through_logic():
    graph = graph_of(Design(SUM, multiply_and_add))
    words = {("a", "total"): True, ("b", "total"): True, ("total", "out"): True}
    assert arrows_of(graph) == {**words, ("enable", "total"): False}  # it only says when
    assert box(graph, "total").operators == {"multiply": 1, "add": 1}
    assert box(graph, "total").detail == "16 bit"
    assert {key.kind for key in graph.boxes} == {"input", "register", "output"}  # neither clock nor reset


def choose(self, m):
    chosen = Signal(4)
    larger = Signal(4)
    m.d.sync += chosen.eq(Mux(self.b == 3, self.a, 0))
    m.d.comb += [larger.eq(Mux(self.a > self.b, self.a, self.b)), self.out.eq(Cat(chosen, larger))]


def test_what_selects_is_told_from_what_is_selected():
    graph = graph_of(Design(SUM, choose))
    assert arrows_of(graph) == {
        ("a", "chosen"): True,
        ("b", "chosen"): False,
        ("a", "larger"): True,
        ("b", "larger"): True,
        ("chosen", "out"): True,
        ("larger", "out"): True,
    }
    assert box(graph, "larger").operators == {"compare": 1}  # of what it takes one
    assert not box(graph, "chosen").operators


def swap(self, m):
    joined = Signal(8)
    m.d.sync += joined.eq(Mux(self.enable, Cat(self.a, self.b), Cat(self.b, self.b)))
    m.d.comb += self.out.eq(joined[4:])


def test_bits_of_words_are_followed_one_by_one():
    """The output has the upper half of what the multiplexer gives, in a register."""
    upper = Design(SUM, lambda self, m: m.d.comb.__iadd__(self.out.eq(Mux(self.enable, Cat(self.a, self.b), 0)[4:])))
    assert ("b", "out") in arrows_of(graph_of(upper)) and ("a", "out") not in arrows_of(graph_of(upper))
    assert arrows_of(graph_of(Design(SUM, swap)))["a", "joined"]


def lane():
    return Design(
        {"value": In(8), "sum": Out(8)}, lambda self, m: m.d.sync.__iadd__(self.sum.eq(self.sum + self.value))
    )


LANES = {"values": In(32), "odd": In(3), "sums": Out(32), "rest": Out(3)}


def lanes(self, m):
    for index in range(4):
        m.submodules[f"lane_{index}"] = one = lane()
        m.d.comb += [one.value.eq(self.values[8 * index :][:8]), self.sums[8 * index :][:8].eq(one.sum)]
    m.submodules.lane_4 = other = Design(
        {"x": In(3), "y": Out(3)}, lambda self, m: m.d.sync.__iadd__(self.y.eq(self.x))
    )
    m.d.comb += [other.x.eq(self.odd), self.rest.eq(other.y)]


def test_like_submodules_are_one():
    graph = graph_of(Design(LANES, lanes), depth=0)
    assert {(name_of(graph, key), one.size) for key, one in graph.boxes.items() if key.kind == "part"} == {
        ("lane", 4),
        ("lane_4", 1),  # is another
    }
    assert box(graph, "lane").detail == "8 bit in registers\n1 add"
    arrows = {("values", "lane"), ("lane", "sums"), ("odd", "lane_4"), ("lane_4", "rest")}
    assert arrows_of(graph) == dict.fromkeys(arrows, True)


def test_depth_opens_submodules():
    graph = graph_of(Design(LANES, lanes), depth=1)
    assert {(family.label, family.size) for family in graph.clusters.values()} == {("lane", 4), ("lane_4", 1)}
    assert all(key.kind != "part" for key in graph.boxes)
    assert box(graph, "sum").operators == {"add": 1}  # of one lane
    assert arrows_of(graph) == dict.fromkeys((("values", "sum"), ("sum", "sums"), ("odd", "y"), ("y", "rest")), True)
    assert graph_of(Design(LANES, lanes)).boxes == graph.boxes  # there are registers down there


def nest(self, m):
    m.submodules.outer = outer = Design(SUM, lambda self, m: _wrap(self, m, Design(SUM, multiply_and_add)))
    _join(self, m, outer)


def _wrap(self, m, inner):
    m.submodules.inner = inner
    _join(self, m, inner)


def _join(self, m, inner):
    m.d.comb += [getattr(inner, name).eq(getattr(self, name)) for name in ("a", "b", "enable")]
    m.d.comb += self.out.eq(inner.out)


@pytest.mark.parametrize("depth, places", [(0, set()), (1, {("outer",)}), (2, {("outer",), ("outer", "inner")})])
def test_depth_counts_levels(depth, places):
    assert set(graph_of(Design(SUM, nest), depth).clusters) == places


def test_a_part_is_drawn_by_itself():
    modules = modules_of(Design(SUM, nest), "top")
    graph, _ = diagram_of(modules, part_of(modules, "top", "outer.inner"))
    assert ("a", "total") in arrows_of(graph) and not graph.clusters
    with pytest.raises(ValueError, match=r"^top.outer has no part 'lane'; it has inner$"):
        part_of(modules, "top", "outer.lane")
    with pytest.raises(ValueError, match="has no part 'x'; it has no parts"):
        part_of(modules, "top", "outer.inner.x")


def named(self, m):
    inside = Signal(16)
    m.d.sync += [inside.eq(self.a), self.direct.eq(self.b)]
    m.d.comb += self.out.eq(inside)


def test_a_register_that_is_a_port_has_its_name():
    graph = graph_of(Design({**SUM, "direct": Out(4)}, named))
    assert {name_of(graph, key) for key in graph.boxes if key.kind == "register"} == {"out", "direct"}


def registers(self, m):
    one = Signal(8, name="stage_0")
    two = Signal(8, name="stage_1")
    flag = Signal()
    done = Signal()
    m.d.sync += [one.eq(self.a), two.eq(one), flag.eq(self.enable), done.eq(flag)]
    m.d.comb += self.out.eq(Cat(two, done))


def test_numbered_registers_are_one_and_so_are_single_bits():
    graph = graph_of(Design(SUM, registers))
    assert box(graph, "stage").size == 2 and box(graph, "stage").detail == "8 bit"
    assert arrows_of(graph)["enable", "done, flag"] is False


def memory(self, m):
    m.submodules.table = table = Memory(shape=8, depth=16, init=[])
    write, read = table.write_port(), table.read_port(domain="comb")
    m.d.comb += [write.addr.eq(self.a), write.data.eq(self.data), write.en.eq(self.enable)]
    m.d.comb += [read.addr.eq(self.b), self.out.eq(read.data)]


def test_a_memory_takes_words_and_is_addressed():
    graph = graph_of(Design({**SUM, "data": In(8)}, memory))
    assert box(graph, "table").detail == "16 × 8 bit"
    assert arrows_of(graph) == {
        ("data", "table"): True,
        ("table", "out"): True,
        ("a", "table"): False,
        ("b", "table"): False,
        ("enable", "table"): False,
    }


def steer(self, m):
    """Registers of different names, one after another."""
    before = self.a
    for index in range(self.boxes):
        register = Signal(4, name=f"number{index}")
        with m.If(self.enable):
            m.d.sync += register.eq(before)
        before = register
    m.d.comb += self.out.eq(~before)


@pytest.mark.parametrize("boxes, steers", [(3, 0), (4, 4)])
def test_what_steers_many_boxes_has_no_arrows(boxes, steers):
    design = Design(SUM, steer)
    design.boxes = boxes
    graph = graph_of(design)
    assert box(graph, "enable").steers == steers
    assert sum(begin == "enable" for begin, _ in arrows_of(graph)) == boxes - steers


def test_a_stream_is_one_port():
    signature = {"input": In(stream.Signature(8)), "output": Out(stream.Signature(8)).array(2)}

    def body(self, m):
        kept = Signal(8)
        with m.If(self.input.valid & self.input.ready):
            m.d.sync += kept.eq(self.input.payload)
        m.d.comb += [self.input.ready.eq(self.output[0].ready), *(one.payload.eq(kept) for one in self.output)]

    graph = graph_of(Design(signature, body))
    assert arrows_of(graph) == {("input", "kept"): True, ("kept", "output"): True}
    assert box(graph, "output").size == 2


@pytest.mark.parametrize("name, settings", [("deca-pe", ("W=4", "L=1", "formats=mxfp4")), ("figna", ())])
def test_the_same_text_every_time(name, settings):
    texts = {diagram_of(modules_of(unit_of(name, settings).component(), "unit"), "unit")[1] for _ in range(2)}
    assert len(texts) == 1


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_the_text_is_whole(depth):
    graph, dot = diagram_of(
        modules_of(unit_of("harmonia-converter", ("rows=2", "columns=2")).component(), "top"), "top", depth
    )
    nodes = set(re.findall(r"^ +(n\d+) \[", dot, re.M))
    arrows = re.findall(r"^  (n\d+) -> (n\d+) \[", dot, re.M)
    assert len(nodes) == len(graph.boxes) and len(arrows) == len(graph.arrows)
    assert {end for ends in arrows for end in ends} <= nodes
    assert dot.count("subgraph") == len(graph.clusters) and dot.count("{") == dot.count("}")


# Files


def test_what_cannot_be_written_is_said(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"unit.txt: a diagram is a file that ends with .dot, .svg, .png, .pdf"):
        check_ending(tmp_path / "unit.txt")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"unit.svg needs Graphviz: apt-get install graphviz, or write unit.dot"):
        write("digraph {}", tmp_path / "unit.svg", "unit")
    write("digraph {}", tmp_path / "unit.dot", "unit")
    assert (tmp_path / "unit.dot").read_text() == "digraph {}" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_draws(tmp_path):
    _, dot = diagram_of(modules_of(Design(LANES, lanes), "top"), "top")
    for ending, start in (("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")):
        write(dot, tmp_path / f"top.{ending}", "top")
        assert (tmp_path / f"top.{ending}").read_bytes().startswith(start)
    assert hash_in((tmp_path / "top.svg").read_text()) == dot_hash(dot)
    with pytest.raises(RuntimeError, match=r"Graphviz failed: .*syntax error"):
        write("digraph {", tmp_path / "none.svg", "none")
    assert not (tmp_path / "none.svg").exists()


def test_an_svg_of_others_has_no_hash():
    with pytest.raises(ValueError, match="not written by `tilepress rtl draw`"):
        hash_in("<svg/>")


# The pictures of docs/rtl.md

SLOW = ("deca-pe", "anda-compressor")  # several seconds to elaborate


@cache
def modules(name):
    return modules_of(unit_of(name).component(), module_name(unit_of(name)))


@pytest.mark.parametrize(
    "file, words",
    [pytest.param(*one, id=one[0], marks=pytest.mark.slow if one[1][3] in SLOW else ()) for one in drawings().items()],
)
def test_pictures_are_of_todays_design(file, words):
    name, rest = words[3], dict(zip(words[4::2], words[5::2], strict=True))
    assert rest.keys() <= {"-o", "--part"}, f"{file}: read {rest} here too"
    top = part_of(modules(name), module_name(unit_of(name)), rest.get("--part", ""))
    svg = (IMAGES / file).read_text()
    assert hash_in(svg) == dot_hash(diagram_of(modules(name), top)[1]), (
        f"{file} is not of today's design: make diagrams"
    )
    assert len(svg.encode()) <= LARGEST


def test_the_page_shows_every_picture():
    shown = set(re.findall(r"\]\(images/rtl/([\w-]+\.svg)\)", (IMAGES.parents[1] / "rtl.md").read_text()))
    assert shown == drawings().keys() == {path.name for path in IMAGES.iterdir()}
