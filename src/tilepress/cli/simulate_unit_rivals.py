"""What `simulate unit` runs of rival units: beside kernels where they compute the same, else beside torch."""

from dataclasses import replace
from typing import TYPE_CHECKING

from ..records import Labels
from .simulate_unit_settings import Outcome, Settings, check_span, dot_outcome, neuron, random_halves, row

if TYPE_CHECKING:
    from torch import Generator, Tensor

GROUP = 64


def rival(name: str, settings: Settings) -> Outcome:
    from ..simulate.units import rivals

    x, mantissa = row(settings, GROUP), settings.mantissa or rivals.FIGNA_MANTISSA
    check_span(x)
    weights, product = neuron(len(x), GROUP, settings.seed, f"bfp:g64:m{mantissa}")
    kind = rivals.Rival(name)
    if kind is rivals.Rival.figna:
        dot = rivals.Figna(mantissa).dot(x, weights)
        return dot_outcome(Labels(mantissa=mantissa), dot, rivals.cycles(kind, len(x)), product(x), True)
    dot = (rivals.FpFp() if kind is rivals.Rival.fp_fp else rivals.FpInt()).dot(x, weights)
    return dot_outcome(Labels(), dot, rivals.cycles(kind, len(x)), 0.0, False)


def fp16_mac(name: str, settings: Settings) -> Outcome:
    import torch

    from ..simulate.units import fp16_mac as unit

    x, weights = row(settings, GROUP), unit.WeightFormat(settings.weight_format)
    generator = _generator(settings)
    others = torch.randn(len(x), generator=generator).half()
    if weights is unit.WeightFormat.int4:
        others = torch.randint(-8, 8, (len(x),), generator=generator)
    dot = unit.Fp16Mac(weights).dot(x, others)
    return dot_outcome(Labels(weights=weights.value), dot, unit.cycles(len(x)), 0.0, False)


def int_mac(name: str, settings: Settings) -> Outcome:
    """Two chunks: values above half of the largest, and the others at half the scale."""
    import torch

    from ..simulate.units import int_mac as unit

    x = row(settings, GROUP)
    largest = float(x.abs().max())
    is_large = x.abs() > largest / 2
    parts = [_integers(x[is_large], largest), _integers(x[~is_large], largest / 2)]
    chunks = [len(part) for part in parts if len(part)]
    values, weights = torch.cat(parts), torch.randint(-128, 128, (len(x),), generator=_generator(settings))
    dot = unit.IntMac().dot(values, weights, chunks)
    factors = torch.where(torch.arange(len(x)) < len(parts[0]), 1 << len(chunks) - 1, 1)
    return dot_outcome(Labels(), dot, unit.cycles(len(x)), int((factors * values * weights).sum()), True, "torch")


def m_ant_mac(name: str, settings: Settings) -> Outcome:
    import torch

    from ..simulate.units import m_ant_mac as unit

    x, generator = row(replace(settings, groups=1), GROUP), _generator(settings)
    if len(x) > GROUP:
        raise ValueError(f"the unit takes one group, at most {GROUP} values, not {len(x)}: give less data")
    values, codes = _integers(x, float(x.abs().max())), torch.randint(unit.CODES, (len(x),), generator=generator)
    coefficient = int(torch.randint(1 << unit.COEFFICIENT_BITS, (1,), generator=generator))
    dot = unit.MAntMac().dot(values, codes, coefficient)
    table = torch.tensor([unit.value(code, coefficient) for code in range(unit.CODES)])
    labels = Labels(coefficient=coefficient)
    return dot_outcome(labels, dot, unit.cycles(len(x)), int((values * table[codes]).sum()), True, "torch")


def int8_quantiser(name: str, settings: Settings) -> Outcome:
    import numpy as np

    from ..simulate.units import int8_quantiser as unit

    x, scale = settings.data, unit.Scale(settings.scale)
    x = random_halves(settings, unit.ROWS, GROUP * settings.groups) if x is None else x
    if scale is unit.Scale.offline:
        scales = (unit.MOST / x.float().abs().amax(0).clamp(min=unit.MOST / 65504)).half()
        result, of_values = unit.OfflineQuantiser().quantise(x, scales), scales
    else:
        result = unit.OnlineQuantiser().quantise(x)
        of_values = result.scales.repeat_interleave(unit.GROUP, 1)[:, : x.shape[1]]
    expected = (x.double() * of_values.double()).round().clamp(-unit.MOST, unit.MOST)
    equal = np.array_equal(result.codes, expected.numpy())
    formula = unit.cycles(x.shape[0], x.shape[1], scale)
    return Outcome(Labels(scale=scale.value), result.cycles, formula, result.events, equal, "torch")


def _generator(settings: Settings) -> "Generator":
    import torch

    return torch.Generator().manual_seed(settings.seed)


def _integers(x: "Tensor", largest: float) -> "Tensor":
    """INT8, of which 127 is `largest`."""
    import torch

    return (x.double() * (127 / (largest or 1))).round().to(torch.int64)
