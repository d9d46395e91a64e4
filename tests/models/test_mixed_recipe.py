"""Recipes within a budget, beside what compression makes of them."""

import math
from itertools import pairwise

import pytest
import torch
from safetensors.torch import load_file

from tests.models import mixtures, tiny
from tilepress.models import compress_folder, read_recipe
from tilepress.models.choices import Budget, Choice, parse_choice
from tilepress.models.mixed_recipe import measure_choices
from tilepress.models.recipe import to_toml

CHOICES = [Choice("int3:g32"), Choice("int4:g32"), Choice("int8:row"), Choice("int8:row", 0.5)]
FOUR_BITS, SIX_BITS, EIGHT_BITS = Budget(bits=4), Budget(bits=6), Budget(bits=8)


@pytest.fixture(scope="module")
def base(llama_folder):
    return {"calibration": {"text": str(llama_folder[1]), "sequences": 3, "length": 16}}


def measured_of(folder, base, path, choices=CHOICES, budget=EIGHT_BITS):
    return measure_choices(str(folder), read_recipe(base), choices, budget, path / "losses.json")


def tensor_bytes(folder):
    """Of tensors in the folder's files, without the descriptions of packed ones."""
    tensors = {name: one for path in folder.glob("*.safetensors") for name, one in load_file(path).items()}
    described = {name for name in tensors if name.removesuffix("weight") + "codes" in tensors}
    return sum(one.nbytes for name, one in tensors.items() if name not in described)


@pytest.mark.parametrize("family", ["llama", "qwen2", "opt"])
@pytest.mark.parametrize(
    "weights",
    [
        {},
        {"embedding": "keep"},
        {"lm_head": "int4:g32", "embedding": "int8:g32"},
        {"lm_head": "compress", "prune": "wanda", "density": 0.5},
    ],
    ids=str,
)
def test_the_size_is_what_compression_writes(family, weights, base, tmp_path):
    folder, _ = tiny.save(tmp_path / "model", family)
    recipe = read_recipe({**base, "weights": weights})
    measured = measured_of(folder, recipe, tmp_path, CHOICES[1:])
    allocation = measured.allocate(Budget(bits=5.5))
    mixed = measured.recipe(recipe, allocation)
    (tmp_path / "mixed.toml").write_text(to_toml(mixed))
    assert read_recipe(tmp_path / "mixed.toml") == mixed
    outcome = compress_folder(str(folder), tmp_path / "out", tmp_path / "mixed.toml")
    assert tensor_bytes(tmp_path / "out") == allocation.nbytes + measured.rest
    layers = {layer.name: layer for layer in outcome.layers}
    for unit, index in zip(measured.units, allocation.chosen, strict=True):
        (name,) = unit.layers
        choice = measured.choices[index]
        assert layers[name].format == choice.format and (layers[name].density < 1) == (choice.density < 1)
    assert len(set(allocation.chosen)) > 1


def test_the_size_of_sparsegpt_is_the_most(llama_folder, base, tmp_path):
    recipe = read_recipe({**base, "weights": {"prune": "sparsegpt"}})
    choices = [Choice("int8:row", 0.5), Choice("int8:row", 0.6)]
    measured = measured_of(llama_folder[0], recipe, tmp_path, choices, SIX_BITS)
    allocation = measured.allocate(Budget(bits=6.5))
    compress_folder(str(llama_folder[0]), tmp_path / "out", measured.recipe(recipe, allocation))
    real = tensor_bytes(tmp_path / "out")
    blocks = sum(unit.shape[0] // 16 for unit in measured.units)
    assert real <= allocation.nbytes + measured.rest <= real + blocks


def test_experts_have_one_override(base, tmp_path):
    folder = tmp_path / "model"
    mixtures.make("qwen3_moe", num_hidden_layers=1).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    recipe = read_recipe(base)
    measured = measured_of(folder, recipe, tmp_path, CHOICES[1:3])
    allocation = measured.allocate(Budget(bits=6))
    mixed = measured.recipe(recipe, allocation)
    outcome = compress_folder(str(folder), tmp_path / "out", mixed)
    assert tensor_bytes(tmp_path / "out") == allocation.nbytes + measured.rest
    formats = {layer.name: layer.format for layer in outcome.layers}
    for unit, index in zip(measured.units, allocation.chosen, strict=True):
        assert {formats[name] for name in unit.layers} == {measured.choices[index].format}


def test_more_bytes_lose_less(llama_folder, base, tmp_path):
    measured = measured_of(llama_folder[0], base, tmp_path)
    results = [measured.allocate(Budget(bits=bits)) for bits in (4.5, 5, 6, 7, 8, 9)]
    assert all(a.loss > b.loss and a.nbytes < b.nbytes for a, b in pairwise(results[:-1]))
    for index in range(len(CHOICES)):
        uniform = measured.uniform(index)
        same = measured.allocate(Budget(bits=8 * uniform.nbytes / measured.weights))
        assert same.nbytes <= uniform.nbytes and same.loss <= uniform.loss


def test_the_same_again_from_the_file(llama_folder, base, tmp_path):
    first = measured_of(llama_folder[0], base, tmp_path, CHOICES[:2], FOUR_BITS)
    text = (tmp_path / "losses.json").read_text()
    assert measured_of(llama_folder[0], base, tmp_path, CHOICES[:2], FOUR_BITS) == first
    (tmp_path / "losses.json").unlink()
    assert measured_of(llama_folder[0], base, tmp_path, CHOICES[:2], FOUR_BITS) == first
    assert (tmp_path / "losses.json").read_text() == text


def test_a_streamed_model_is_measured_like_one_in_memory(llama_folder, base, tmp_path, monkeypatch):
    from tilepress.models.streaming import StreamedModel

    streamed = measured_of(llama_folder[0], base, tmp_path, CHOICES[:2], FOUR_BITS)
    (tmp_path / "losses.json").unlink()
    monkeypatch.setattr(StreamedModel, "_is_complete", lambda _: False)
    assert measured_of(llama_folder[0], base, tmp_path, CHOICES[:2], FOUR_BITS) == streamed


def test_budgets():
    assert Budget(bits=4).nbytes(50, 100, 7) == 50 and Budget(megabytes=1).nbytes(50, 100, 7) == 999_993
    for wrong in ({}, {"bits": 4.0, "megabytes": 3.0}):
        with pytest.raises(ValueError, match="a budget is --bits or --megabytes: give one of them"):
            Budget(**wrong)
    for number in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="a budget is a number above 0"):
            Budget(bits=number)


def test_a_budget_that_is_too_small_names_the_least(llama_folder, base, tmp_path):
    measured = measured_of(llama_folder[0], base, tmp_path)
    least = min(8 * measured.uniform(index).nbytes / measured.weights for index in range(len(CHOICES)))
    with pytest.raises(ValueError, match=r"^3 bits a weight are too few: the smallest choices take 3\.50$"):
        measured.allocate(Budget(bits=3))
    assert least == 3.5 and measured.allocate(Budget(bits=least)).nbytes
    with pytest.raises(ValueError, match="2 bits a weight are too few"):
        measured_of(llama_folder[0], base, tmp_path / "none", budget=Budget(bits=2))
    assert not (tmp_path / "none").exists()
    with pytest.raises(ValueError, match=r"^0.001 MB are too few: with the smallest choices the model takes 0\.\d\d$"):
        measured.allocate(Budget(megabytes=0.001))
    with pytest.raises(ValueError, match=r"^0.001 MB are too few"):
        measured_of(llama_folder[0], base, tmp_path / "none", budget=Budget(megabytes=0.001))
    assert not (tmp_path / "none").exists()


def test_a_budget_that_is_too_large_names_the_most(llama_folder, base, tmp_path):
    measured = measured_of(llama_folder[0], base, tmp_path)
    most = max(measured.uniform(index).nbytes for index in range(len(CHOICES)))
    bits, megabytes = (
        math.ceil(100 * one) / 100 for one in (8 * most / measured.weights, (most + measured.rest) / 1e6)
    )
    for budget, message in (
        (Budget(bits=99), f"^99 bits a weight are more than the largest choices take: give {bits:.2f} or less$"),
        (Budget(megabytes=12), f"^12 MB are more than the largest choices take: give {megabytes:.2f} or less$"),
    ):
        with pytest.raises(ValueError, match=message):
            measured_of(llama_folder[0], base, tmp_path / "none", budget=budget)
    assert not (tmp_path / "none").exists()
    for budget in (Budget(bits=bits), Budget(megabytes=megabytes)):
        assert measured_of(llama_folder[0], base, tmp_path, budget=budget).allocate(budget).nbytes <= most


@pytest.mark.parametrize(
    ("family", "dtype"), [("llama", torch.float32), ("qwen2", torch.bfloat16), ("opt", torch.float32)]
)
@pytest.mark.parametrize("weights", [{}, {"embedding": "keep"}, {"lm_head": "compress"}], ids=str)
def test_the_rest_is_known_before_anything_is_measured(family, dtype, weights, base, tmp_path, monkeypatch):
    folder, known = tiny.save(tmp_path / "model", family)[0], []
    tiny.make(family).to(dtype).save_pretrained(folder)
    monkeypatch.setattr(Budget, "check", lambda self, *arguments: known.append(arguments))
    measured = measured_of(folder, {**base, "weights": weights}, tmp_path, [CHOICES[1], CHOICES[3]])
    sizes = [[pick(one) for one in measured.sizes] for pick in (min, max)]
    assert known == [(sum(sizes[0]), sum(sizes[1]), measured.weights, measured.rest)]


@pytest.mark.parametrize(
    "text, choice",
    [
        ("int4:g32", Choice("int4:g32", 0.25)),
        ("int8:row@0.5", Choice("int8:row", 0.5)),
        (" INT8:row@50% ".lower(), Choice("int8:row", 0.5)),
        ("int4:g32@1", Choice("int4:g32", 1)),
    ],
)
def test_choices_in_words(text, choice):
    assert parse_choice(text, 0.25) == choice and parse_choice(str(choice)) == choice


@pytest.mark.parametrize(
    "wrong", ["int44:g32", "int4:g32@", "int4:g32@0", "int4:g32@1.5", "int4:g32@200%", "int4:g32@x"]
)
def test_choices_that_are_none(wrong):
    with pytest.raises(ValueError, match=f"--choose {wrong}: (unknown format|a density is written)"):
        parse_choice(wrong)


@pytest.mark.parametrize(
    "weights, choices, message",
    [
        ({}, CHOICES[:1] * 2, "there is nothing to choose from"),
        ({"override": [{"match": "*", "density": 0.5}]}, CHOICES, "the recipe has overrides"),
        ({"quantize": "learned-clip"}, [CHOICES[0], Choice("bf16")], "--choose bf16: learned-clip trains the scales"),
        ({"grid": "source"}, CHOICES, "keeps the formats that weights came in"),
    ],
)
def test_recipes_that_cannot_be_are_refused(llama_folder, base, tmp_path, weights, choices, message):
    with pytest.raises(ValueError, match=message):
        measured_of(llama_folder[0], {**base, "weights": weights}, tmp_path, choices)
    assert not (tmp_path / "losses.json").exists()


def test_integer_activations_want_integer_choices(llama_folder, base, tmp_path):
    recipe = {**base, "activations": {"format": "int8"}}
    with pytest.raises(ValueError, match=r"^--choose bf8: activations.format int8 wants integer weights"):
        measured_of(llama_folder[0], recipe, tmp_path, [CHOICES[0], Choice("bf8")])


def test_compressed_models_are_refused(llama_folder, base, tmp_path):
    compress_folder(str(llama_folder[0]), tmp_path / "out", {"weights": {"format": "int4:g32"}})
    with pytest.raises(ValueError, match="is compressed already: measure the model it was made from"):
        measured_of(tmp_path / "out", base, tmp_path)


def test_weights_on_a_grid_lose_nothing(tmp_path, base):
    torch.manual_seed(0)
    model = tiny.llama()
    for layer in (module for module in model.modules() if type(module) is torch.nn.Linear):
        steps = torch.randint(-7, 8, layer.weight.shape).float()
        steps.view(-1, 32)[:, 0] = 7
        layer.weight.data = steps / 64
    model.save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    measured = measured_of(tmp_path / "model", base, tmp_path, [Choice("int3:g32"), Choice("int4:g32")], FOUR_BITS)
    assert measured.uniform(1).loss == 0 < measured.uniform(0).loss
