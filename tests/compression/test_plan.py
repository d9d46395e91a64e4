import pytest
import torch

from tests.compression.layers import statistics
from tilepress.compression import InputStatistics, WeightPlan
from tilepress.formats import parse_weight

INT4 = parse_weight("int4:g32")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"prune": "random"}, "prune is one of magnitude, wanda, sparsegpt, not 'random'"),
        ({"quantize": "awq"}, "quantize is one of rtn, gptq, learned-clip, not 'awq'"),
        ({"prune_scope": "column"}, "prune_scope is one of row, layer, not 'column'"),
        ({"prune": "wanda", "prune_scope": "layer"}, "'layer' goes with prune 'magnitude' only, not with 'wanda'"),
        ({"density": 1.5}, "a density lies between 0 and 1, not 1.5"),
        ({"density": float("nan")}, "a density lies between 0 and 1, not nan"),
        (
            {"format": parse_weight("bf8"), "quantize": "learned-clip"},
            "scales of groups, and bf8 has none; take rtn or",
        ),
    ],
)
def test_impossible_plans_are_refused_by_name(options, text):
    with pytest.raises(ValueError, match=text):
        WeightPlan(**{"format": INT4, **options})


def test_a_format_is_not_its_name():
    with pytest.raises(TypeError, match="as parse_weight makes it of a name, not 'int4:g32'"):
        WeightPlan("int4:g32")


@pytest.mark.parametrize(
    ("options", "needs"),
    [
        ({}, (False, False)),
        ({"prune": "wanda"}, (False, False)),
        ({"prune": "sparsegpt"}, (False, False)),
        ({"density": 0.5}, (False, False)),
        ({"density": 0.5, "prune": "wanda"}, (True, False)),
        ({"density": 0.5, "prune": "sparsegpt"}, (True, True)),
        ({"quantize": "gptq"}, (True, True)),
        ({"quantize": "learned-clip", "density": 0.5, "prune": "wanda"}, (True, True)),
    ],
)
def test_what_a_plan_needs(options, needs):
    plan = WeightPlan(INT4, **options)
    assert (plan.needs_statistics, plan.needs_hessian) == needs
    plan.check_statistics(statistics(8, hessian=plan.needs_hessian), 8)
    if plan.needs_statistics:
        for missing in (None, InputStatistics(8)):
            with pytest.raises(ValueError, match="needs calibration"):
                plan.check_statistics(missing, 8)
    else:
        plan.check_statistics(None, 8)
    if plan.needs_hessian:
        with pytest.raises(ValueError, match=r"needs the Hessian: gather it with InputStatistics\(8, hessian=True\)"):
            plan.check_statistics(statistics(8, hessian=False), 8)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"density": 0.5, "prune": "wanda"}, "wanda"),
        ({"density": 0.5, "prune": "sparsegpt"}, "sparsegpt"),
        ({"quantize": "gptq"}, "gptq"),
        ({"quantize": "learned-clip", "density": 0.5, "prune": "wanda"}, "learned-clip"),
    ],
)
def test_the_method_that_needs_calibration_is_named(options, name):
    with pytest.raises(ValueError, match=f"^{name} needs calibration: statistics of the layer's inputs"):
        WeightPlan(INT4, **options).check_statistics(None, 8)


def test_statistics_of_another_layer_are_refused():
    seen = InputStatistics(8, hessian=False)
    seen.add(torch.ones(8))
    with pytest.raises(ValueError, match="the layer has 16 inputs, its statistics 8"):
        WeightPlan(INT4).check_statistics(seen, 16)
