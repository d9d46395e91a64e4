"""Records become sections: what is shown where, and that nothing is shown that no record holds."""

import re
from pathlib import Path

import pytest

from tilepress.records import Reproduction
from tilepress.report import read_records, sections
from tilepress.report.blocks import Cards, Comparison, Estimate, Plot, Surface, Table, text

from . import samples

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
KEYS = [
    "summary", "quality", "speed", "surface", "search", "precision", "kv", "simulators", "synthesis", "energy",
    "papers", "rest",
]  # fmt: skip


def blocks(records, key):
    return next(section.blocks for section in sections(records) if section.key == key)


def block(records, key, kind, start=""):
    return next(one for one in blocks(records, key) if isinstance(one, kind) and one.title.startswith(start))


def numbers(value):
    """All numbers anywhere in a value."""
    if isinstance(value, dict):
        return [number for one in value.values() for number in numbers(one)]
    if isinstance(value, list | tuple):
        return [number for one in value for number in numbers(one)]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []


def test_every_kind_of_record_has_its_section():
    assert [section.key for section in sections(samples.everything())] == KEYS
    assert sections([]) == []


@pytest.mark.parametrize(
    "make, keys",
    [
        (samples.quality, ["quality"]),
        (samples.decoding, ["speed"]),
        (samples.served, ["speed"]),
        (samples.roofs, ["surface"]),
        (samples.search, ["search"]),
        (samples.simulated, ["simulators"]),
        (samples.arrays, ["energy"]),
        (samples.synthesised, ["synthesis"]),
        (samples.energies, ["synthesis"]),
        (samples.reproductions, ["precision", "kv", "energy", "papers"]),
        (lambda: [samples.record("tilepress doctor", "chosen_kernel", "avx2", "", {"operation": "pack"})], ["rest"]),
    ],
)
def test_a_section_is_there_only_where_records_hold_its_figures(make, keys):
    assert [section.key for section in sections(make())] == ["summary", *keys]


@pytest.mark.parametrize("records", [samples.everything(), read_records([RESULTS])], ids=["samples", "saved results"])
def test_no_plot_and_no_table_shows_a_number_that_no_record_holds(records):
    held = {one.value for one in records} | {one.paper for one in records if isinstance(one, Reproduction)}
    held |= {label for one in records for label in one.labels.values()}  # numbers of steps and tiles
    held |= {int(part) for one in records if isinstance(one, Reproduction) for part in re.findall(r"\d+", one.row)}
    for section in sections(records):
        for one in section.blocks:
            if isinstance(one, Plot):
                shown = [number for trace in one.traces for axis in ("x", "y", "z", "base", "error_x")
                         for number in numbers((trace.get(axis) or {}).get("array") if axis == "error_x"
                                               else trace.get(axis))]  # fmt: skip
                assert shown and set(shown) <= held, one.title
            if isinstance(one, Table):
                cells = [cell.value if isinstance(cell, Estimate) else cell for row in one.rows for cell in row]
                assert set(numbers(cells)) <= held, one.title


def test_every_block_says_where_it_comes_from():
    records = samples.everything()
    commands = {one.command for one in records}
    for section in sections(records):
        for one in section.blocks:
            assert one.sources.commands and set(one.sources.commands) <= commands


def test_nothing_is_left_out():
    records = samples.everything()
    shown = {command for section in sections(records)[1:] for one in section.blocks for command in one.sources.commands}
    assert shown == {one.command for one in records}


def test_a_unit_s_cost_grows_with_the_parameter_that_has_most_values():
    plot = block(samples.synthesised(), "synthesis", Plot, "deca-pe: area by W")
    assert {trace["name"]: dict(zip(trace["x"], trace["y"], strict=True)) for trace in plot.traces} == {
        "L=1": {"2": 257.0, "4": 513.0, "8": 1025.0, "16": 2049.0},
        "L=4": {"2": None, "4": None, "8": 1028.0, "16": None},
    }
    assert plot.layout["xaxis"]["title"]["text"] == "W" and "library's unit" in plot.layout["yaxis"]["title"]["text"]
    titles = [one.title for one in blocks(samples.synthesised(), "synthesis")]
    assert titles == ["deca-pe: area by W", "deca-pe: delay by W", "Units as they were synthesised"]
    table = block(samples.synthesised(), "synthesis", Table)
    assert table.rows[0] == ["deca-pe", "cells", "W=16 L=1", 2049.0, 528.0, None]


def test_energy_of_a_group_grows_with_the_mantissa():
    (plot,) = [one for one in blocks(samples.energies(), "synthesis") if isinstance(one, Plot)]
    assert plot.title == "anda-apu mantissa=16: energy of a group of 64 products by mantissa"
    assert {trace["name"]: dict(zip(trace["x"], trace["y"], strict=True)) for trace in plot.traces} == {
        "energy": {"2": 6.0, "4": 12.0, "8": 24.0, "10": 30.0},
        "combinational": {"2": 4.0, "4": 8.0, "8": 16.0, "10": 20.0},
        "clock": {"2": 2.0, "4": 4.0, "8": 8.0, "10": 10.0},
    }
    assert plot.traces[0]["x"] == ["2", "4", "8", "10"]
    table = block(samples.energies(), "synthesis", Table, "Energies of operations")
    parts = ["energy, pJ", "a product or value, pJ", "combinational, pJ", "clock, pJ"]
    assert table.columns[-6:] == [*parts, "cycles", "memory reads, word"]
    unit, _, parameters, case, operation, conditions, *figures = table.rows[0]
    assert (unit, parameters, case, operation) == ("anda-apu", "mantissa=16", "m=10", "a group of 64 products")
    assert conditions == "20 ps slews, 512 ps, 7 nm, random" and figures == [30.0, 30 / 64, 20.0, 10.0, 11.0, None]


def test_kept_energies_are_in_their_table():
    """Of every mantissa of Anda's unit and of DECA's formats."""
    records = read_records([RESULTS / "synthesis"])
    titles = [one.title for one in blocks(records, "synthesis") if isinstance(one, Plot)]
    assert "energy of a group of 64 products by mantissa" in "; ".join(titles)
    cases = {(row[0], row[-len(row) + 3]) for row in block(records, "synthesis", Table, "Energies").rows}
    assert not any(section.key == "rest" for section in sections(records)) and len(cases) > 20


def test_kept_syntheses_show_deca_s_width_and_anda_s_mantissa():
    """A dozen elements and ten units."""
    records = read_records([RESULTS / "synthesis"])
    for title, least in (("deca-pe: area by W", 12), ("anda-apu: area by mantissa", 10)):
        plot = block(records, "synthesis", Plot, title)
        assert sum(value is not None for trace in plot.traces for value in trace["y"]) >= least
    (anda,) = plot.traces
    assert anda["x"] == sorted(anda["x"], key=int)
    areas = anda["y"]  # of 4 planes it is ABC's luck
    assert areas[1:] == sorted(areas[1:]) and areas[0] < 1.01 * areas[1]


def test_quality_with_errors_beside_figures():
    table = block(samples.quality(), "quality", Table, "Quality on wikitext2")
    assert table.columns == ["model", "perplexity", "KL divergence, nat", "reference perplexity"]
    assert table.rows[0] == ["int4", Estimate(20.5, 0.5), 0.3125, 15.25]
    (trace,) = block(samples.quality(), "quality", Plot).traces
    assert list(zip(trace["text"], trace["x"], trace["y"], strict=True)) == [
        ("int4", 1.7e8, 20.5), ("bf8", 2.2e8, 15.75)]  # fmt: skip
    worse = [*samples.quality(), *samples.evaluated("nf4", 30.5, 0.5)]
    worse += samples.sizes("tilepress compress x", nf4=1.8e8)
    (trace,) = block(worse, "quality", Plot).traces
    assert trace["text"] == ["int4", "", "bf8"] and trace["marker"]["symbol"][1] == "circle-open"


def test_models_with_other_activations_or_caches_have_rows_of_their_own():
    on, command = {"model": "base", "text": "ptb"}, "tilepress eval base --json"
    rounded = {**on, "activations": "int8", "kv": "bfp4"}
    records = samples.records(command, ("perplexity", 9.5, "", on), ("perplexity", 9.75, "", rounded))
    table = block(records, "quality", Table, "Quality on ptb")
    assert table.columns == ["model", "activations", "KV cache", "perplexity"]
    assert table.rows == [["base", "", "", 9.5], ["base", "int8", "bfp4", 9.75]]


def test_a_record_with_a_label_that_no_family_has_is_shown_with_the_others():
    (one,) = samples.records("x", ("time", 2.5, "us", {"library": "torch", "shape": "8x8", "batch": 1, "moon": "full"}))
    (table,) = blocks([one], "rest")
    assert table.rows == [["time", "library torch, shape 8x8, batch 1, moon full", 2.5, "us", "measured", samples.HERE]]


def test_the_summary():
    (cards,) = blocks(samples.everything(), "summary")
    assert isinstance(cards, Cards)
    card = {one.label: one for one in cards.cards}
    assert card["Quality held"].figure == "0.0625 nat KL" and "15.75, 15.25 before" in card["Quality held"].detail
    assert card["Quality held"].detail.startswith("bf8 beside base on wikitext2, the nearest of 3 judged")
    assert card["Decoding"].figure == "114.5 token/s"
    assert card["Decoding"].detail.startswith("int4: 6.25 × transformers, 0.812 × llama.cpp Q4_0")
    assert card["Of the read bandwidth"].figure == "88 %" and "; 36 GB/s" in card["Of the read bandwidth"].detail
    assert "by the model, memory binds" in card["Of the read bandwidth"].detail
    assert card["Held-out values of the papers that match"].figure == "3 of 4"
    assert card["Held-out values of the papers that match"].detail == "1 more cells are not possible here"
    assert card["Other values that match, no predictions"].figure == "1 of 2"
    apart = "chosen 1 of 1 match, fitted 0 of 1 match"
    assert card["Other values that match, no predictions"].detail == apart


def test_a_demonstration_before_and_after():
    (cards,) = blocks(samples.demonstrated(), "summary")
    figures = {card.label: (card.figure, card.detail) for card in cards.cards}
    assert list(figures)[:3] == ["Perplexity", "Size", "Decoding"]
    assert figures["Decoding"] == ("110 token/s", "int4; base 17.5, llama.cpp 80")
    assert figures["Perplexity"] == ("1.016 ×", "int4; 15.5, base 15.25")
    assert figures["Size"] == ("170.0 MB", "int4; 540.0 MB before, base")
    ours, peers = block(samples.demonstrated(), "speed", Plot).traces
    assert (ours["x"], peers["x"]) == ([110.0], [17.5, 80.0]) and ours["error_x"]["array"] == [1.5]
    table = block(samples.demonstrated(), "quality", Table, "The demonstration")
    assert table.rows[0] == ["int4", 1.7e8, 15.5, Estimate(110.0, 1.5), "Tilepress", 0.01]
    texts = block(samples.demonstrated(), "quality", Table, "What they write")
    assert texts.rows == [["int4", "int4 says <this>"], ["base", "base says <this>"]] and not texts.closed


def test_a_front_of_formats_and_machines():
    plot = block(samples.side_by_side(), "energy", Plot, "Loss")
    shown = {one["name"]: (one["x"], one["y"], one["marker"]["symbol"]) for one in plot.traces}
    assert shown == {"anda": ([30.0], [0.25], ["circle"]), "figna": ([90.0], [0.0], ["circle-open"])}
    assert plot.layout["xaxis"]["title"]["text"] == "energy, mJ"
    assert plot.traces[0]["tips"] == ["anda, 8,8, KV a: energy 30, loss 0.25 %"]


def test_designs_over_the_length():
    plots = [one for one in blocks(samples.side_by_side(), "energy") if isinstance(one, Plot)]
    assert [one.title for one in plots[:2]] == ["llama-13b, decode: time", "llama-13b, decode: energy"]
    anda, cpu = plots[0].traces
    assert (anda["name"], anda["x"], anda["y"]) == ("anda, best", ["2048", "8192"], [32.0, 128.0])
    assert (cpu["name"], cpu["y"]) == ("deca", [128.0, 512.0]) and plots[0].layout["yaxis"]["type"] == "log"
    alone = [one for one in samples.side_by_side() if one.labels.get("tokens") != 8192]
    assert not any("decode" in one.title for one in blocks(alone, "energy"))


def test_ours_and_peers_have_colours_of_their_own():
    plot = block(samples.decoding(), "speed", Plot, "Decoding")
    assert {trace["name"]: trace["y"] for trace in plot.traces} == {
        "Tilepress": ["int4"], "peers": ["llama.cpp Q4_0", "transformers"]}  # fmt: skip
    assert plot.traces[0]["error_x"]["array"] == [0.75]
    table = block([*samples.layers(), *samples.layers(samples.THERE)], "speed", Table, "Linear")
    assert table.columns[:4] == ["machine", "weights + activations", "shape", "batch"] and len(table.rows) == 4


def test_requests_served_together_have_a_row_for_each_load():
    words = ["model", "load", "prompt", "tokens of an answer", "tokens shared"]
    table = block(samples.served(), "speed", Table, "Latencies")
    assert table.columns == [*words, "time to first token p50, s", "time to first token p99, s"]
    assert table.rows[0] == ["int4", "2.5 a second", "128-512", "64", "", 0.5, 2.0]
    table = block(samples.served(), "speed", Table, "Requests")
    assert table.columns == [*words, "answer rate, token/s", "preemptions"]
    assert table.rows[1] == ["int4", "8 at a time", "128-512", "64", "96", 64.0, 3]


def test_a_surface_has_the_rates_that_limits_and_demands_give():
    surface = block(samples.roofs(), "surface", Surface)
    assert surface.rates == pytest.approx({"memory": 8.5e11, "vector": 2.8e11, "matrix": 8.75e9})
    assert surface.flops_per_operation == pytest.approx(512)
    point = surface.points[0]
    assert (point["x"], point["y"], point["bound"]) == (1 / 272, 1 / 195, "vector")
    no_vectors = [one for one in samples.roofs() if one.labels.get("domain") != "vector"]
    assert not any(isinstance(one, Surface) for one in blocks(no_vectors, "surface"))


def test_a_search_step_by_step():
    plot = block(samples.search(), "search", Plot)
    (trace,) = plot.traces
    assert trace["x"] == [1, 2, 3] and trace["y"] == [1093.0, 0.25, 0.75] and plot.layout["yaxis"]["range"][1] == 20
    assert trace["marker"]["symbol"] == ["circle-open", "circle", "circle"] and "more than 20 %" in plot.note


def test_a_search_with_its_tolerance_and_bit_operations():
    losses, savings = (one for one in blocks(samples.searched(), "search") if isinstance(one, Plot))
    assert losses.traces[1]["name"] == "tolerance" and losses.traces[1]["y"] == [1.0, 1.0, 1.0]
    tried, best = savings.traces
    assert tried["y"] == [4.0, 2.0, 2.125] and best["y"] == [None, 2.0, 2.125]
    assert tried["tips"][2] == "3: 8,7,8,7, 0.75 %, 2.125 × fewer bit operations, taken"


def test_tiles_lie_where_they_were():
    plot = block(samples.simulated(), "simulators", Plot, "First tiles")
    bars = {trace["name"]: trace for trace in plot.traces}
    assert bars["in the decompressor"]["base"] == [95, 135, 175] and bars["in the decompressor"]["x"] == [17, 17, 17]
    assert bars["multiplied"]["x"] == [None, None, None]


def test_parts_of_energy_are_stacked_and_one_part_is_no_breakdown():
    plot = block(samples.arrays(), "energy", Plot)
    assert plot.layout["barmode"] == "stack" and [trace["name"] for trace in plot.traces] == ["compute", "DRAM"]
    fewer = [one for one in samples.arrays() if one.labels.get("part") != "compute"]
    assert not any(isinstance(one, Plot) for one in blocks(fewer, "energy"))


def test_maps_lines_and_bars_of_items():
    records = samples.reproductions()
    heat = block(records, "precision", Plot, "anda/fig7")
    assert heat.traces[0]["type"] == "heatmap" and heat.traces[0]["z"][0] == [4.0, 2.56, 64 / 36]
    ours, paper = block(records, "kv", Plot, "harmonia/fig5").traces
    assert ours["x"] == ["m4", "m6", "m8"] and paper["y"] == [99.0] * 3 and paper["line"]["dash"] == "dot"
    area = block(records, "energy", Plot, "anda/table3")
    assert [trace["x"] for trace in area.traces] == [[0.5, 0.0625], [0.4, 0.0625]]


def test_rows_that_share_nothing_are_plots_of_their_own():
    cells = [("2K to 16K", "least", 1.5), ("2K to 16K", "largest", 7.5)]
    cells += [(f"{n} tokens", what, n / 1000) for n in (2000, 4000) for what in ("speed-up", "energy")]
    records = [samples.reproduction("a/b", row, column, value, unit="x") for row, column, value in cells]
    plots = [one for one in blocks(records, "studies-a") if isinstance(one, Plot)]
    assert [one.title for one in plots] == ["a/b: least, largest", "a/b: speed-up, energy"]
    assert sum(len(trace["x"]) for trace in plots[0].traces) == 2


def test_plots_of_an_item_are_told_apart_by_what_they_are_of():
    cells = [(f"{cache}, {what}", unit) for what, unit in (("perplexity", ""), ("KL", "nat")) for cache in ("a", "b")]
    values = {"perplexity": (9.0, 10.0, 900.0), "KL": (0.25, 0.5, 0.75)}
    records = [
        samples.reproduction("harmonia/context", row, f"{tokens} tokens", value, unit=unit)
        for row, unit in cells
        for tokens, value in zip((1, 2, 4), values[row.split(", ")[1]], strict=True)
    ]
    surprise, distance = blocks(records, "kv")
    assert [one.title.rpartition(": ")[2] for one in (surprise, distance)] == ["perplexity", "KL"]
    assert [trace["name"] for trace in surprise.traces] == ["a", "b"]
    axes = [one.layout["yaxis"] for one in (surprise, distance)]
    assert [axis["title"]["text"] for axis in axes] == ["perplexity", "nat"]
    assert [axis.get("type") for axis in axes] == ["log", None]


def test_more_series_than_colours_are_a_map():
    def kinds(rows, columns):
        cells = [(f"row {row}", f"kind {letter}") for row in rows for letter in columns]
        records = [samples.reproduction("a/b", row, column, 1.5, unit="x") for row, column in cells]
        return [trace["type"] for trace in block(records, "studies-a", Plot).traces]

    assert kinds("abcd", "abcdefgh") == kinds("abcdefgh", "abcd") == ["bar"] * 4
    assert kinds("abcdefgh", "abcdefgh") == ["heatmap"]


def test_shares_keep_their_whole_scale_and_losses_end_at_20():
    def scale(values):
        records = [samples.reproduction("anda/fig7", row, f"m{m}", v) for row in "ab" for m, v in enumerate(values)]
        return block(records, "precision", Plot).traces[0].get("zmax")

    assert scale([97.5, 60.0]) is None and scale([0.5, 0.25, 300.0]) == 20


def test_large_numbers_have_prefixes_and_small_ones_four_digits():
    assert [text(one) for one in (75843212, 8.75e9, 123456, 1234.5, 0.012345, True)] == [
        "75.84 M", "8.75 G", "123456", "1234", "0.01235", "yes"]  # fmt: skip


def test_papers_values_come_first_and_all_are_there():
    (comparison,) = blocks(samples.reproductions(), "papers")
    assert isinstance(comparison, Comparison) and len(comparison.records) == len(samples.reproductions())
    states = [one.state for one in comparison.records]
    held_out, others = ["deviates", *["matches"] * 3, "not possible here"], ["matches", "deviates"]
    assert states == held_out + others + [None] * 6
