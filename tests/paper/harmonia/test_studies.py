"""Harmonia's items: the studies on a tiny model, and the papers' own arithmetic."""

from tests.models import tiny
from tests.paper.reproducing import SIZES, reproduced, values
from tilepress.paper.harmonia.experiments import tables
from tilepress.paper.published import read_paper
from tilepress.paper.studies import kv_cache


def test_every_table_is_complete():
    paper = read_paper("harmonia")
    assert len(paper.values("table1")) == 10 * 5


def test_storage_is_what_the_paper_says():
    assert {one.state for one in reproduced("harmonia/storage").values()} == {"matches"}


def test_all_activations(model):
    cells = reproduced("harmonia/fig4", **model, **SIZES)
    name = model["model"]
    kl = values(cells, f"{name}, g32, KL divergence", ["m10", "m8", "m6", "m4"])
    assert kl == sorted(kl) and kl[0] < kl[3] / 20
    assert cells[f"{name}, g128, KL divergence", "m4"].value > cells[f"{name}, g16, KL divergence", "m4"].value
    assert cells["most models, g32", "m8"].state == "not possible here"


def test_mantissas_of_the_cache(model):
    cells = reproduced("harmonia/fig5", **model, **SIZES)
    kl = values(cells, f"{model['model']}, KL divergence", [f"m{bits}" for bits in range(8, 0, -1)])
    assert kl[0] < kl[3] < kl[5] and cells[f"{model['model']}, relative accuracy", "m8"].unit == "%"


def test_more_bits_for_some_tokens(model):
    cells = reproduced("harmonia/fig8", **model, **SIZES)
    without, with_ = (cells[f"{model['model']}, {one}, KL divergence", "m2"].value for one in ("without", "with"))
    assert with_ < without / 2


def test_the_ablation_has_every_step(model):
    cells = reproduced("harmonia/ablation", **model, **SIZES, sequences=2, length=40, steps=3, bits=2)
    steps = ["8 bits", "naive", "+ asymmetric", "+ offline", "+ online"]
    recovered = values(cells, f"{model['model']}, share of the naive loss recovered", steps)
    assert recovered[:2] == [100, 0]
    kl = values(cells, f"{model['model']}, KL divergence", steps)
    assert kl[0] < kl[2] < kl[1] and kl[3] < 1.1 * kl[2] and kl[4] != kl[3]


def test_the_ablation_says_which_steps_a_model_cannot_have(tmp_path):
    folder, text = tiny.save(tmp_path / "model", "gemma3", num_hidden_layers=2, max_position_embeddings=256)
    text.write_text("\n".join([text.read_text()] * 3))
    options = {"model": str(folder), "text": str(text), "bits": 2}
    cells = reproduced("harmonia/ablation", **options, **SIZES, sequences=2, length=40)
    recovered = f"{folder}, share of the naive loss recovered"
    for step in ("+ offline", "+ online"):
        assert cells[recovered, step].value is None and "normalises queries or keys" in cells[recovered, step].note
    assert values(cells, recovered, ["8 bits", "naive"]) == [100, 0]
    assert cells[f"{folder}, KL divergence", "asymmetric, online alone"].value > 0


def test_offsets_and_rotation(model):
    cells = reproduced("harmonia/offsets", **model, **SIZES, format="bfp:m3")
    kl = values(cells, f"{model['model']}, bfp:m3, KL divergence", ["0", "1", "16"])
    assert len(set(kl)) == 3
    cells = reproduced("harmonia/rotation", **model, **SIZES, sequences=2, length=40, steps=3, format="bfp:m3")
    kl = [one.value for (row, _), one in cells.items() if row.endswith("KL divergence")]
    assert len(set(kl)) == 4 and max(kl) < 3 * min(kl)


def test_contexts_and_facts(model):
    few = {"caches": "bfp8 bfp:m1 bfp4/offline", "sequences": 2, "length": 40, "steps": 3}
    cells = reproduced("harmonia/context", **model, contexts="60 120", windows=1, **few)
    for context in ("60", "120"):
        wide, narrow = (cells[f"{model['model']}, {one}, KL divergence", context].value for one in ("bfp8", "bfp:m1"))
        assert wide < narrow
    cells = reproduced("harmonia/retrieval", **model, contexts="80", items=2, **few)
    assert len(cells) == 4 and {one.value for one in cells.values()} == {0.0}  # it knows nothing


def test_scales_are_learned_once(model, monkeypatch):
    learned = []
    monkeypatch.setattr(kv_cache, "smooth_model", lambda _, tokens, *key, steps: learned.append(key[:2]))
    few = {"caches": "bfp4/offline bfp4/hybrid", "sequences": 1, "length": 40, "steps": 2}
    reproduced("harmonia/context", **model, contexts="60", windows=1, **few)
    reproduced("harmonia/retrieval", **model, contexts="80", items=1, **few)
    assert learned == [("bfp4", "offline"), ("bfp4", "hybrid")]
    reproduced("harmonia/context", **model, contexts="60", windows=1, **{**few, "steps": 1})
    assert len(learned) == 4


def test_table_1(model):
    cells = reproduced("harmonia/table1", **model, **SIZES, sequences=2, length=40, steps=3, weights="int8:g32")
    ours = {row: one.value for (row, column), one in cells.items() if column == f"{model['model']}, perplexity"}
    assert list(ours) == ["Full", *tables.METHODS]
    assert abs(ours["Anda-m8"] / ours["Omniquant"] - 1) < 0.01 < abs(ours["Anda-m4"] / ours["Omniquant"] - 1)
    assert abs(ours["FIGNA"] / ours["Omniquant"] - 1) < 1e-3
    assert cells["Full", "OPT-6.7B, perplexity"].paper == 10.86
