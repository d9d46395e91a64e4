"""The search on a model: what it is judged by, and what it does to packed layers."""

import json
import math

import pytest

from tests.models import tiny
from tilepress.evaluate import Windowing, perplexity
from tilepress.formats import Anda, AndaSearch
from tilepress.models import compress_folder, compress_model, load_model
from tilepress.models.linear_form import replace_layer
from tilepress.models.precision import Evaluations, EvaluationsError, Judge, find_precision, window_perplexity
from tilepress.models.registration import packed_layers, unpack_layers
from tilepress.models.tensor_types import classify, layer_formats, products
from tilepress.nn import emulated

COMPRESSED = {"weights": {"format": "int8:g32"}}


def judge_of(model, path=None):
    return Judge(model, classify(model), tiny.windows(), 64, Evaluations(path))


@pytest.mark.parametrize("batch", [1, 4])
def test_perplexity_is_that_of_evaluate(batch):
    model, windows = tiny.make("llama"), tiny.windows(4, 32)
    expected = perplexity(model, windows.flatten(), Windowing(window=32))
    assert window_perplexity(model, windows, batch) == pytest.approx(expected.perplexity.value, rel=1e-6)
    for wrong in (windows[:0], windows[:, :1], windows[0]):
        with pytest.raises(ValueError, match="windows are"):
            window_perplexity(model, wrong)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_combinations_are_judged_natively_as_by_emulation(family):
    model, windows = tiny.make(family), tiny.windows()
    compress_model(model, COMPRESSED)
    types = classify(model)
    for name, layer in list(packed_layers(model)):
        if name not in types:  # which some processors compute with weights rounded to bf16
            replace_layer(model, name, tiny.dense_layer(layer))
    native = judge_of(model)((6, 5, 5, 4))
    unpack_layers(model)
    reference = window_perplexity(model, windows)
    with emulated(model, layer_formats(types, Anda((6, 5, 5, 4)))):
        emulation = window_perplexity(model, windows)
    assert native == pytest.approx(emulation, rel=1e-3)
    assert abs(native / emulation - 1) < 0.1 * abs(native / reference - 1)


def test_each_type_of_tensors_counts_on_its_own():
    judge = judge_of(tiny.make("opt"))
    combinations = [tuple(2 if index == short else 13 for index in range(4)) for short in range(4)]
    assert len({judge(mantissas) for mantissas in combinations}) == 4
    assert judge((13, 13, 13, 13)) == pytest.approx(judge(None), rel=1e-3)


def test_a_search_on_a_model_keeps_to_its_tolerance():
    model = tiny.make("llama")
    compress_model(model, COMPRESSED)
    judge, types = judge_of(model), classify(model)
    precision = find_precision(judge, products(model, types), AndaSearch(0.02), prove=False)
    assert precision.result.within and judge(precision.result.mantissas) <= 1.02 * judge(None)
    assert {layer.activations for _, layer in packed_layers(model)} == {"float"}  # as before


def test_compression_in_memory_ends_with_the_search():
    model, windows = tiny.make("llama"), tiny.windows()
    recipe = {**COMPRESSED, "activations": {"format": "anda:2%"}}
    compress_model(model, recipe, windows=windows)
    stated = model.config.quantization_config
    bits = stated.recipe["activations"]["format"].removeprefix("anda:").split(",")
    assert model.model.layers[0].self_attn.k_proj.activations == f"bfp:g64:m{bits[0]}"
    assert stated.layers["model.layers.0.mlp.up_proj"]["activations"] == f"bfp:g64:m{bits[2]}"
    perplexity = window_perplexity(model, windows)
    assert perplexity <= 1.0201 * window_perplexity(unpack_layers(model), windows)


def test_without_text_or_windows():
    with pytest.raises(ValueError, match="anda:2% looks at calibration inputs: give a tokenizer"):
        compress_model(tiny.make("llama"), {"activations": {"format": "anda:2%"}})


def test_a_compressed_folder_is_restored_with_its_activations(llama_folder, tmp_path):
    folder, text = llama_folder
    calibration = {"text": str(text), "sequences": 2, "length": 16}
    recipe = {"activations": {"format": "anda:8,7,6,5", "types": {"lm_head": "d"}}, "calibration": calibration}
    compress_folder(str(folder), tmp_path / "out", {**recipe, "weights": {"lm_head": "compress"}})
    model = load_model(str(tmp_path / "out")).model
    layers = {name: layer.activations for name, layer in packed_layers(model)}
    assert layers["model.layers.2.self_attn.q_proj"] == "bfp:g64:m8" and layers["lm_head"] == "bfp:g64:m5"
    tokens = tiny.windows(1, 8)
    assert model.generate(tokens, max_new_tokens=4, do_sample=False).shape == (1, 12)
    model.save_pretrained(tmp_path / "again")
    again = load_model_without_tokenizer(tmp_path / "again")
    assert {name: layer.activations for name, layer in packed_layers(again)} == layers


def load_model_without_tokenizer(folder):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder)


def test_an_interrupted_search_inside_compress_goes_on(llama_folder, tmp_path, monkeypatch):
    from tilepress.models import precision

    folder, text = llama_folder
    recipe = {
        "activations": {"format": "anda:3%"},
        "calibration": {"text": str(text), "sequences": 2, "length": 16},
    }
    steps, computed = [], []
    real = precision.Judge._compute

    def interrupt(judge, mantissas):
        computed.append(mantissas)
        if len(computed) == 4:
            raise KeyboardInterrupt
        return real(judge, mantissas)

    monkeypatch.setattr(precision.Judge, "_compute", interrupt)
    with pytest.raises(KeyboardInterrupt):
        compress_folder(str(folder), tmp_path / "out", recipe)
    assert not (tmp_path / "out").exists() and (tmp_path / "out.partial/model/search.json").exists()
    outcome = compress_folder(str(folder), tmp_path / "out", recipe, track=steps.append)
    assert computed[3] == computed[4] and len(set(computed)) == len(computed) - 1
    assert outcome.precision.result.steps == tuple(steps) and outcome.precision.result.within
    stored = json.loads((tmp_path / "out/search.json").read_text())["perplexities"]
    assert len(stored) == 1 + len(steps)


def test_evaluations_are_kept(tmp_path):
    path = tmp_path / "e.json"
    evaluations = Evaluations(path, {"model": ("a", 1)})
    evaluations.put(None, 2.5)
    evaluations.put((7, 7, 6, 5), math.inf)
    again = Evaluations(path, {"model": ("a", 1)})
    assert again.get(None) == 2.5 and again.get((7, 7, 6, 5)) == math.inf and again.get((1, 1, 1, 1)) is None
    with pytest.raises(EvaluationsError, match="evaluations of another model"):
        Evaluations(path, {"model": ("b", 1)})
