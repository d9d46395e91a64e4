"""SparAMX' items: the studies on tiny models, and what of them holds on any machine."""

from functools import partial

import pytest

from tests.paper.reproducing import SIZES, reproduced, values
from tilepress.bench import counters, linear, shapes
from tilepress.bench import model as bench_model
from tilepress.bench.counters import Waiting
from tilepress.evaluate import Question
from tilepress.kernels import active_isa, supported_isas
from tilepress.models import ModelUnavailableError
from tilepress.paper import find
from tilepress.paper.sparamx.experiments import models, pruning_study, speed_study
from tilepress.paper.studies import kv_cache

DECODING = {"depth": 40, "written": 3, "repeats": 1}
WHOLE = {"millions": 1, **DECODING}
THEIRS = "Llama 3 8B"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(linear, "Reader", partial(linear.Reader, size=1 << 20))
    monkeypatch.setattr(bench_model, "read_bandwidth", lambda threads: 1e9)
    monkeypatch.setattr(linear, "copies_of", lambda size, allowance: 2)


@pytest.fixture
def x86(monkeypatch):
    """As on a machine with AMX: its kernels are those that there are here, by their names."""
    monkeypatch.setattr(speed_study, "kernel_sets", lambda: {"AMX": None, "AVX": supported_isas()[0]})


def test_tables_as_printed():
    paper = {item.name: {one.cell: one.value for one in item.published} for item in find(["sparamx"])}
    assert (
        paper["sparamx/table1"]["Dense", "DRAM Bound"] == 87.5
        and paper["sparamx/table1"]["Sparse", "DRAM Bound"] == 5.7
    )
    assert [paper["sparamx/table2"][name, "speed-up"] for name in ("q_proj", "k_proj", "down_proj")] == [
        1.44,
        2.03,
        1.36,
    ]
    assert paper["sparamx/fig17"][THEIRS, "dense"] == 6.136
    assert len(paper) == 14


def test_the_format_is_the_papers():
    cells = reproduced("sparamx/format")
    assert {one.state for one in cells.values()} == {"matches", None}
    sizes = [cells["BF16, times smaller", f"{zeros} % zero"].value for zeros in (10, 30, 50, 70, 90)]
    assert sizes == pytest.approx([16 / (16 * density + 1) for density in (0.9, 0.7, 0.5, 0.3, 0.1)], rel=0.02)


def test_a_layer_bound_by_memory(monkeypatch):
    monkeypatch.setattr(counters, "counters_refusal", lambda: "no counters")
    cells = reproduced("sparamx/table1", neurons=64, inputs=96, seconds=0.01)
    shares = [cells[row, "share of read bandwidth"].value for row in ("Dense", "Sparse")]
    assert cells["Dense", "share of read bandwidth, above the sparse kernel's"].value == shares[0] - shares[1]
    absent = cells["Dense", "Memory Bound"]
    assert absent.state == "not possible here" and "no counters; the share of the read bandwidth" in absent.note


def test_a_layer_by_counters(monkeypatch):
    monkeypatch.setattr(counters, "counters_refusal", lambda: None)
    monkeypatch.setattr(counters, "_counted", lambda call, seconds: Waiting(0.97, 0.2) if call() is not None else None)
    cells = reproduced("sparamx/table1", neurons=64, inputs=96, seconds=0.01)
    assert cells["Dense", "Memory Bound"].state == "matches" and cells["Dense", "DRAM Bound"].deviation == -67.5


def test_every_projection(monkeypatch):
    monkeypatch.setitem(shapes.MODELS, "tiny", [("q_proj", 32, 64), ("k_proj", 16, 64), ("o_proj", 32, 64)])
    cells = reproduced("sparamx/table2", model="tiny", weights="int8:row@50%+int8 bf16@50%", seconds=0.001)
    ours = {row: one for (row, _), one in cells.items() if one.value is not None}
    query, key = ours["tiny, q_proj"], ours["tiny, k_proj"]
    assert query.value == ours["tiny, o_proj"].value
    assert ours["tiny, any projection"].value == min(query.value, key.value)
    assert f"linear_f32_i8_int/{active_isa()}" in query.note or active_isa() == "amx"
    assert "tiny, q_proj, bf16@50%" in ours and cells["q_proj", "speed-up"].state == "not possible here"


def test_a_layer_by_cores(x86):
    cells = reproduced("sparamx/fig16", neurons=64, inputs=96, cores="1", seconds=0.001)
    assert cells["AVX", "1 core"].value == 1
    over = cells["AVX over AMX", "most, of all numbers of cores"]
    assert over.value == pytest.approx(1 / cells["AMX", "1 core"].value)
    assert "one shape" in cells["more column groups over one", "speed-up"].note


def test_more_cores_than_there_are():
    cells = reproduced("sparamx/fig16", cores="1 9999")
    assert {one.state for one in cells.values()} == {"not possible here"}
    assert "cores, not 9999" in cells["AVX over AMX", "most, of all numbers of cores"].note


def test_layers_and_vocabulary_are_cut_alike():
    few = speed_study.config_of("llama3.1-8b", 450, 1024)
    assert (few.num_hidden_layers, few.vocab_size, few.hidden_size) == (1, 4016, 4096)
    whole = speed_study.config_of("llama3.1-8b", 10_000, 1024)
    assert (whole.num_hidden_layers, whole.vocab_size) == (32, 128256)
    with pytest.raises(ValueError, match="opt-125m has not Llama's layers"):
        speed_study.config_of("opt-125m", 450, 1024)


def test_models_from_small_to_large(model):
    name = model["model"]
    cells = reproduced("sparamx/fig1", models=f"{name} {name}", weights="int8:row@50%+int8", **WHOLE)
    ratio = cells[f"{name}, int8:row@50%+int8", "speed-up"]
    assert ratio.value > 0 and ratio.unit == "x" and "linear_f32_i8_int" in ratio.note
    assert cells["any model", "speed-up"].value == ratio.value
    assert cells[THEIRS, "speed-up"].state == "not possible here"


def test_where_time_goes(model):
    name = model["model"]
    cells = reproduced("sparamx/fig3", model=name, millions=0, depths="8 80", written=2)
    parts = [f"share of {part}" for part in ("linear layers", "attention", "the rest")]
    for depth in (8, 80):
        assert sum(values(cells, f"{name}, {depth} tokens", parts)) == pytest.approx(100)
    assert "1 of 2 layers" in cells[f"{name}, 8 tokens", "step"].note


def test_speed_by_sparsity(model, x86):
    name = model["model"]
    cells = reproduced("sparamx/fig11", model=name, sparsities="50 90", cores="1", **WHOLE)
    gains = {(kernels, zeros): cells[f"{name}, {kernels}, 1 core", f"{zeros} % zero"].value
             for kernels in ("AMX", "AVX") for zeros in (50, 90)}  # fmt: skip
    row = f"{name}, AVX, any number of cores"
    assert cells[row, models.RISE].value == pytest.approx(gains["AVX", 90] / gains["AVX", 50])
    assert cells[row, models.SPARSEST].value == gains["AVX", 90]
    assert cells["AMX and AVX apart", "fewest cores over most"].value is None


def test_what_the_text_says_of_sparsity():
    gains = {(kernels, cores, zeros): gain for kernels, cores, zeros, gain in [
        ("AMX", 8, 30, 1.0), ("AVX", 8, 30, 1.2), ("AMX", 8, 90, 1.5), ("AVX", 8, 90, 1.8),
        ("AMX", 32, 30, 1.1), ("AVX", 32, 30, 1.12), ("AMX", 32, 90, 1.4), ("AVX", 32, 90, 1.4),
    ]}  # fmt: skip
    cells = {(one.row, one.column): one.value for one in models._by_sparsity("llama3.1-8b", gains, [30, 90], "")}
    assert cells["AMX, any number of cores", models.SPARSEST] == 1.4
    assert cells["AVX, any number of cores", models.RISE] == pytest.approx(1.25)
    gap = abs(1.0 / 1.2 - 1) / abs(1.1 / 1.12 - 1)
    assert cells[models.APART, models.FEWEST] == pytest.approx(gap)


def test_batches(model, x86):
    name = model["model"]
    cells = reproduced("sparamx/fig12", model=name, batches="1 3", **WHOLE)
    for batch in (1, 3):
        sparse, plain, stock = values(
            cells, f"{name}, batch {batch}", ["sparse, AMX", "sparse, AVX", speed_study.stock()]
        )
        assert cells[f"{name}, batch {batch}", "sparse over stock"].value == pytest.approx(sparse / stock)
        assert cells[f"{name}, batch {batch}", "AMX over AVX"].value == pytest.approx(sparse / plain)


def test_int8_beside_llama_cpp(model):
    cells = reproduced("sparamx/fig13", model=model["model"], batches="1 2", written=3, repeats=1)
    over = cells["batch 1", "sparse over dense"]
    assert over.value == pytest.approx(cells["batch 1", "sparse"].value / cells["batch 1", "dense"].value)
    assert "GGUF" in cells["highest batch", "sparse over llama.cpp"].note
    assert "DeepSparse" in cells["high batches", "sparse over DeepSparse"].note


def test_pruned_more_and_more(model, monkeypatch):
    questions = [Question("w5 w6", ("w7", "w8 w9"), index % 2) for index in range(6)]
    monkeypatch.setattr(pruning_study, "read_task", lambda task: questions)
    options = {"sequences": 2, "length": 16, "windows": 1, "tokens": 64, "items": 4, "written": 3, "repeats": 1}
    cells = reproduced("sparamx/fig10", **model, sparsities="30 90", prune="magnitude", **options)
    row = [f"{model['model']}, {zeros} % zero" for zeros in (0, 30, 90)]
    perplexities = [cells[one, "perplexity"].value for one in row]
    assert len(set(perplexities)) == 3 and cells[row[0], "speed-up"].value == 1
    assert cells["sparsest over densest", "perplexity"].value == pytest.approx(perplexities[2] / perplexities[1])
    assert cells["Llama 2 7B, Wanda, 50 % zero", "perplexity added"].paper == 1.01


def test_decoding_with_sparse_caches(model):
    cells = reproduced("sparamx/fig15", model=model["model"], pairs="1/1", **WHOLE)
    name = f"{model['model']}, "
    steps = {row: cells[name + row, "step"].value for row in ("K 30 %, V 50 %", speed_study.stock())}
    assert cells[f"{name}K 30 %, V 50 %", "speed-up"].value == pytest.approx(
        steps[speed_study.stock()] / steps["K 30 %, V 50 %"]
    )
    assert cells["K 30 %, V 50 %", "speed-up"].paper == 1.14


@pytest.mark.parametrize("option", [{"pairs": "30"}, {"pairs": "30/x"}])
def test_pairs_that_are_none(option):
    with pytest.raises(ValueError, match="write pairs of per cent"):
        reproduced("sparamx/fig15", millions=0, model="smollm2-135m", depth=4, **option)


@pytest.mark.parametrize("figure", ["fig17", "fig18"])
def test_sparse_caches(model, figure):
    cells = reproduced(f"sparamx/{figure}", **model, **SIZES, levels="0 30 90")
    name = model["model"] + (", bfp8" if figure == "fig18" else "")
    kl = values(cells, f"{name}, K 0 %, KL divergence", ["V 0 %", "V 30 %", "V 90 %"])
    assert kl == sorted(kl) and kl[0] < kl[1] / 10
    dense, sparse = (cells[name, column].value for column in ("dense", "K 30 %, V 50 %"))
    assert cells[name, "increase at K 30 %, V 50 %"].value == sparse - dense
    assert all(one.state in (None, "not possible here") for one in cells.values())


def test_accuracy_of_sparse_caches(model, monkeypatch):
    questions = [Question("w5 w6", ("w7", "w8 w9"), index % 2) for index in range(6)]
    monkeypatch.setattr(kv_cache, "read_task", lambda task: questions)
    monkeypatch.setattr(kv_cache, "parts_of", lambda text: ("", ""))
    cells = reproduced("sparamx/fig14", model=model["model"], items=4, batch=4, levels="0")
    dense, sparse = (cells[f"{model['model']}, piqa, K {k} %", f"V {v} %"].value for k, v in ((0, 0), (30, 50)))
    assert {dense, sparse} <= {0, 25, 50, 75, 100}
    assert cells[f"{model['model']}, piqa", "drop at K 30 %, V 50 %"].value == dense - sparse
    assert cells["Llama 3 8B, six tasks", "drop at K 30 %, V 50 %"].paper == "< 1"


@pytest.mark.parametrize("figure", ["fig10", "fig13"])
def test_without_the_model(figure, monkeypatch):
    def unavailable(name, dtype):
        raise ModelUnavailableError(f"{name} is not here")

    monkeypatch.setattr(speed_study, "load_model", unavailable)
    cells = reproduced(f"sparamx/{figure}")
    assert {(one.state, one.note) for one in cells.values()} == {("not possible here", "smollm2-135m is not here")}
