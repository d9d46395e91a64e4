"""What layers lose, measured one by one in the dense stream."""

import pytest
import torch

from tests.models import mixtures, tiny
from tests.models.test_compress_to_folder import Stop
from tilepress.compression import WeightPlan, compress_weight
from tilepress.compression.weight import decompress_weight
from tilepress.formats import parse_weight
from tilepress.models.blocks import REST, find_blocks, linear_layers
from tilepress.models.linear_form import to_linear_form
from tilepress.models.measured_losses import LossesError, MeasuredLosses
from tilepress.models.sensitivity import Sensitivity, units_of
from tilepress.models.storage import MemoryStorage

PLANS = {name: WeightPlan(parse_weight(name)) for name in ("int3:g32", "int8:row")}


def measure(model, results, plans=PLANS, windows=None, calibrated=False, progress=lambda _: None):
    windows = tiny.windows(3) if windows is None else windows
    sensitivity = Sensitivity(model, plans, windows, MemoryStorage(), calibrated=calibrated)
    sensitivity.run(results, progress)
    return [unit for units in sensitivity.units.values() for unit in units]


@pytest.fixture
def results(tmp_path):
    return MeasuredLosses(tmp_path / "losses.json", {"of": "this"})


def block_outputs(model, stage, tokens):
    outputs = []
    block = model.get_submodule(stage)
    handle = block.register_forward_hook(lambda _, __, y: outputs.append(y[0] if isinstance(y, tuple) else y))
    with torch.no_grad():
        for window in tokens:
            model(window[None])
    handle.remove()
    return torch.stack(outputs)


@pytest.mark.parametrize("name", ["model.layers.0.self_attn.v_proj", "model.layers.2.mlp.down_proj"])
def test_a_loss_is_what_the_block_of_the_whole_model_loses(name, results):
    model, tokens = tiny.make("llama"), tiny.windows(3)
    (unit,) = (one for one in measure(model, results) if one.match == name)
    stage = ".".join(name.split(".")[:3])
    before, layer = block_outputs(model, stage, tokens), model.get_submodule(name)
    original = layer.weight.data
    for choice, plan in PLANS.items():
        layer.weight.data = decompress_weight(compress_weight(original, plan), plan.format)
        lost = (block_outputs(model, stage, tokens) - before).square().sum(-1)
        expected = float((lost / before.square().sum(-1)).mean())
        assert results.of(unit, choice) == pytest.approx(expected, rel=1e-3, abs=1e-12)


def test_more_bits_lose_less_and_the_model_stays_as_it_is(results):
    model, before = tiny.make("llama"), tiny.make("llama")
    units = measure(model, results)
    assert len(units) == 21 and all(0 < results.of(u, "int8:row") < results.of(u, "int3:g32") < 1 for u in units)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before.parameters(), strict=True))


@pytest.mark.parametrize("family", ["qwen2", "opt", "gpt_neox"])
def test_families(family, results):
    units = measure(tiny.make(family), results)
    assert units and all(0 < results.of(unit, "int8:row") < results.of(unit, "int3:g32") for unit in units)


def test_methods_that_look_at_inputs(results):
    format = parse_weight("int3:g32")
    plans = {"rtn": WeightPlan(format), "gptq": WeightPlan(format, quantize="gptq")}
    windows = tiny.windows(12, 32)
    units = measure(tiny.make("llama"), results, plans, windows, calibrated=True)
    assert sum(results.of(unit, "gptq") for unit in units) < 0.9 * sum(results.of(unit, "rtn") for unit in units)


def test_experts_of_a_mixture_take_a_format_together(results):
    model = mixtures.make("qwen3_moe")
    to_linear_form(model)
    units = {unit.match: unit for unit in measure(model, results)}
    unit = units["model.layers.1.mlp.experts.*.down_proj"]
    assert len(unit.layers) == 4 and unit.weights == 4 * unit.shape[0] * unit.shape[1]
    assert 0 < results.of(unit, "int8:row") < results.of(unit, "int3:g32")
    names = {name for stage, block in find_blocks(model).items() for name in linear_layers(block, stage)}
    assert sorted(name for one in units.values() for name in one.layers) == sorted(names)


def test_experts_that_no_token_reaches_are_rounded_without_statistics(results):
    model = mixtures.make("qwen3_moe")
    to_linear_form(model)
    plans = {"gptq": WeightPlan(parse_weight("int3:g32"), quantize="gptq")}
    units = measure(model, results, plans, tiny.windows(1, 4), calibrated=True)
    assert all(results.of(unit, "gptq") >= 0 for unit in units)


def test_interrupted_it_goes_on(tmp_path, results):
    whole = measure(tiny.make("llama"), results)

    def progress(state):
        if state.done == 20:  # in the second of three blocks, of 14 candidates each
            raise Stop

    path = tmp_path / "again.json"
    model = tiny.make("llama")
    with pytest.raises(Stop):
        measure(model, MeasuredLosses(path, {}), progress=progress)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), tiny.make("llama").parameters(), strict=True))
    seen, again = [], MeasuredLosses(path, {})
    measure(model, again, progress=seen.append)
    assert seen[0].total == 28 and seen[-1].done == 28
    assert all(again.of(unit, choice) == results.of(unit, choice) for unit in whole for choice in PLANS)
    assert again.others == results.others and {"model.embed_tokens.weight", "model.norm.weight"} <= again.others.keys()


def test_what_is_known_is_not_measured_again(tmp_path, results, monkeypatch):
    model = tiny.make("llama")
    measure(model, results)
    monkeypatch.setattr(MemoryStorage, "fetch", lambda *_: pytest.fail("the model was run"))
    measure(model, MeasuredLosses(tmp_path / "losses.json", {"of": "this"}))
    monkeypatch.undo()
    seen = []
    measure(model, results, PLANS | {"int4:g32": WeightPlan(parse_weight("int4:g32"))}, progress=seen.append)
    assert seen[-1].total == 21


def test_losses_of_something_else_are_refused(tmp_path, results):
    results.put(REST, {"a": {"int4:g32": float("nan")}}, {})
    kept = MeasuredLosses(tmp_path / "losses.json", {"of": "this"})
    assert kept.has(REST) and not kept.has("a")
    with pytest.raises(LossesError, match="holds losses of another model, method, text or version"):
        MeasuredLosses(tmp_path / "losses.json", {"of": "that"})
    for text in ("{}", "[1]", '{"job": {}, "losses": {"a": 3}, "others": {}}'):
        (tmp_path / "losses.json").write_text(text)
        with pytest.raises(LossesError, match="is not what allocate left"):
            MeasuredLosses(tmp_path / "losses.json", {})


def test_a_model_without_blocks_is_refused():
    with pytest.raises(ValueError, match="Sequential has no list of blocks with linear layers"):
        units_of(torch.nn.Sequential(torch.nn.Linear(16, 16)))
