"""Offline smoothing of keys: scales of their channels, learned block by block and folded into weights.

Keys times S and queries over S give the scores of before; S goes into the rows of the key and query projections, once
and for all. The two channels that a rotary embedding turns into each other share a scale, or S would not pass through
it. Scales are learned as Harmonia has it: the least squared error of the block's output on calibration text, with the
cache rounded. They start from the best of a few powers of the keys' extremes, and go on by gradient descent through the
rounding as if it were not there; a block keeps the best scales seen, which may be ones.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..formats.kv import KvBfp, KvFormat, of_cache, parse_kv, smoothed_channels
from .blocks import find_blocks
from .calibration import State, find_chain, first_inputs

SEQUENCES = 4  # of a recipe's calibration text that scales are learned on
STEPS = 32
LEARNING_RATE = 0.1  # of exponents of two
POWERS = (0.25, 0.5, 0.75)  # of the keys' extremes, to start from
EXACT = 1e-3  # relative change of attention's output that float32 may make of folding
INSTEAD = "take rotated keys (bfp4n+rotate), online smoothing, or none"
ONE = "leave rotate out, or take smoothing none or online"

Run = Callable[[], Tensor]  # computes a block's output on one sequence


class SmoothingError(ValueError):
    """A model whose keys cannot be scaled by its weights."""


def smooth_model(
    model: Any,
    windows: Tensor,
    format: str | KvFormat,
    smoothing: str = "offline",
    track: Callable[[Sequence[str]], Iterable[str]] = iter,
    *,
    steps: int | None = None,
) -> None:
    """Fold scales into `model`, which keeps its outputs but for rounding; `windows` [sequences, length] of tokens.

    `format`: of the cache that it shall have; `smoothing`: "hybrid" learns with offsets subtracted, too. Blocks are
    given what the model itself gives them. The model, of float32, may be on any device. `steps`: of descent, if not as
    many as usual.
    """
    check_smoothing(model)
    for name, runs in block_runs(model, windows, track):
        smooth_block(model, name, runs, parse_kv(format), smoothing, steps)


def learn_before_rotation(
    model: Any,
    windows: Tensor,
    format: str | KvFormat,
    track: Callable[[Sequence[str]], Iterable[str]] = iter,
    *,
    steps: int | None = None,
) -> dict[str, Tensor]:
    """Name of a block → scales [heads, channels] for a cache of keys before they are rotated, as if there were one. No
    weights can hold them: what is cached would be divided by them when it is read."""
    scales = {}
    for name, runs in block_runs(model, windows, track):
        scales[name] = _learn(model, name, runs, _packed(parse_kv(format)), 0, steps, find_rotary(model))
    return scales


def block_runs(
    model: Any, windows: Tensor, track: Callable[[Sequence[str]], Iterable[str]] = iter
) -> Iterator[tuple[str, Sequence[Run]]]:
    """Each block's name and what computes it on each of `windows`, given what the blocks before it give."""
    blocks = find_blocks(model)
    windows = windows.to(next(model.parameters()).device)
    chain = find_chain(model, list(blocks.values()), windows)
    hidden = list(first_inputs(model, chain.blocks[0], windows))
    states: list[State] = [{}] * len(windows)
    for number, name in enumerate(track(list(blocks))):
        runs = list(chain.runs(number, windows, hidden, states))
        yield name, runs
        with torch.no_grad():
            hidden, states = [run() for run in runs], [run.state for run in runs]


def check_smoothing(model: Any) -> None:
    """SmoothingError where scales cannot be folded into `model`."""
    blocks = find_blocks(model)
    if not blocks or not hasattr(model, "set_attn_implementation"):
        raise SmoothingError(f"{type(model).__name__} is no model of transformers with decoder blocks: {INSTEAD}")
    for name, block in blocks.items():
        _check_projections(find_attention(block, name), name)


def smooth_block(
    model: Any, name: str, runs: Sequence[Run], format: KvFormat, smoothing: str, steps: int | None = None
) -> Tensor:
    """Learn scales [heads, channels] of the block called `name`, which `runs` compute in float32, and fold them."""
    attention = find_attention(model.get_submodule(name), name)
    offsets = smoothed_channels(format, of_cache(smoothing), int(attention.head_dim))
    scales = _learn(model, name, runs, _packed(format), offsets, steps)
    before = _output_of(attention, runs[0])
    fold(attention, scales)
    if float(_distance(_output_of(attention, runs[0]), before)) > EXACT**2:
        fold(attention, 1 / scales)
        raise SmoothingError(
            f"{name}: scales of keys change its attention, so it rotates them otherwise than Llama: {INSTEAD}"
        )
    return scales


def find_attention(block: nn.Module, name: str) -> Any:
    """The attention module of a block."""
    modules = [module for module in block.modules() if "head_dim" in module.__dict__ and "layer_idx" in module.__dict__]
    if len(modules) != 1:
        raise SmoothingError(f"{name} has {len(modules)} attention modules, and scales are learned for one: {INSTEAD}")
    return modules[0]


def find_rotary(model: nn.Module) -> Any:
    """What gives the model's cosines and sines."""
    modules = [module for name, module in model.named_modules() if name.rpartition(".")[2] == "rotary_emb"]
    if len(modules) != 1:
        raise SmoothingError(
            f"{type(model).__name__} has no rotary embedding of its own that keys could be kept before"
        )
    return modules[0]


@torch.no_grad()
def fold(attention: Any, scales: Tensor) -> None:
    """Multiply keys by `scales` [heads, channels] and divide queries by them, in the weights that make them."""
    keys = scales.to(attention.k_proj.weight)
    rows = attention.q_proj.out_features // attention.k_proj.out_features
    _multiply_rows(attention.k_proj, keys.flatten())
    _multiply_rows(attention.q_proj, 1 / keys.repeat_interleave(rows, 0).flatten())


def _multiply_rows(layer: nn.Linear, factors: Tensor) -> None:
    layer.weight.mul_(factors[:, None])
    if layer.bias is not None:
        layer.bias.mul_(factors)


def _check_projections(attention: Any, name: str) -> None:
    for part in ("q_proj", "k_proj"):
        if type(getattr(attention, part, None)) is not nn.Linear:
            raise SmoothingError(f"{name} has no linear {part} of its own to fold scales into: {INSTEAD}")
    for part in ("q_norm", "k_norm"):
        if getattr(attention, part, None) is not None:
            raise SmoothingError(f"{name} normalises queries or keys ({part}), which undoes scales: {INSTEAD}")


def _packed(format: KvFormat) -> KvBfp:
    if format.bfp is None:
        raise SmoothingError(f"smoothing is for caches in block floating point, and the format is {format}")
    if format.rotated:
        raise SmoothingError(f"scales of channels are for keys that are not rotated, and the format is {format}: {ONE}")
    return format.bfp


def _learn(
    model: Any,
    name: str,
    runs: Sequence[Run],
    format: KvBfp,
    offsets: int,
    steps: int | None,
    rotary: Any | None = None,
) -> Tensor:
    block = model.get_submodule(name)
    with torch.no_grad():
        targets = [run() for run in runs]
    with torch.inference_mode(False), torch.enable_grad(), _frozen(block), _rounding(model):
        return _Learning(find_attention(block, name), runs, targets, format, offsets, rotary).run(
            STEPS if steps is None else steps
        )


class _Learning:
    """One block's scales, as exponents of two: of each pair of channels that are rotated together, and of each channel
    that is not rotated, [heads, pairs and the rest]. `targets`: what `runs` give with nothing rounded."""

    def __init__(
        self,
        attention: Any,
        runs: Sequence[Run],
        targets: Sequence[Tensor],
        format: KvBfp,
        offsets: int,
        rotary: Any | None,
    ) -> None:
        self.attention, self.runs, self.targets = attention, runs, targets
        self.format, self.offsets, self.rotary = format, offsets, rotary
        self.channels = int(attention.head_dim)
        self.heads = attention.k_proj.out_features // self.channels
        self.pairs = 0 if rotary is not None else _rotated_channels(attention, self.channels) // 2

    def run(self, steps: int) -> Tensor:
        """Scales [heads, channels]."""
        extremes, least = self._look()
        best = self._exponents(torch.ones_like(extremes))
        for power in POWERS:
            best, least = self._better(self._exponents(extremes**-power), best, least)
        learned = best.clone().requires_grad_()
        adam = torch.optim.Adam([learned], lr=LEARNING_RATE)
        for step in range(steps):
            adam.zero_grad()
            self._loss(learned, step % len(self.runs)).backward()
            adam.step()
        best, _ = self._better(learned.detach(), best, least)
        return self._scales(best)

    def _better(self, candidate: Tensor, best: Tensor, least: float) -> tuple[Tensor, float]:
        error = self._judge(candidate)
        return (candidate, error) if error < least else (best, least)

    @torch.no_grad()
    def _judge(self, exponents: Tensor) -> float:
        return sum(float(self._loss(exponents, number)) for number in range(len(self.runs)))

    def _loss(self, exponents: Tensor, number: int) -> Tensor:
        """Squared error of the block's output on one sequence, as a share of its power."""
        # Imported here: transformers is not whole yet when this module is imported.
        from ..nn.kv_smoothing import Scaling

        scaling = Scaling(self._scales(exponents), self.format, self.offsets, self.rotary)
        self.attention.__dict__["tilepress_scaling"] = scaling
        try:
            return _distance(self.runs[number](), self.targets[number])
        finally:
            del self.attention.__dict__["tilepress_scaling"]

    def _look(self) -> tuple[Tensor, float]:
        """The largest magnitude of each channel of keys, before rotation, [heads, channels]; and the error without
        scales."""
        seen: list[Tensor] = []
        handle = self.attention.k_proj.register_forward_hook(lambda _, __, keys: seen.append(keys.flatten(0, -2)))
        try:
            error = self._judge(self._exponents(self.targets[0].new_ones(self.heads, self.channels)))
        finally:
            handle.remove()
        return torch.cat(seen).abs().amax(0).view(self.heads, self.channels).clamp(min=1e-4), error

    def _exponents(self, scales: Tensor) -> Tensor:
        """The two of a pair become their mean."""
        logs = scales.log2()
        pairs = (logs[:, : self.pairs] + logs[:, self.pairs : 2 * self.pairs]) / 2
        return torch.cat([pairs, logs[:, 2 * self.pairs :]], 1)

    def _scales(self, exponents: Tensor) -> Tensor:
        return torch.cat([exponents[:, : self.pairs], exponents], 1).exp2()


def _rotated_channels(attention: Any, channels: int) -> int:
    """How many of a head's channels are rotated, the first half of them with the second."""
    config = getattr(attention, "config", None)
    share = (getattr(config, "rope_parameters", None) or {}).get("partial_rotary_factor")
    share = share or getattr(config, "partial_rotary_factor", None) or 1.0
    return int(channels * share) // 2 * 2


@torch.no_grad()
def _output_of(module: nn.Module, run: Run) -> Tensor:
    """What the module gives in a run: the first of it."""
    seen: list[Tensor] = []
    handle = module.register_forward_hook(lambda _, __, output: seen.append(output[0]))
    try:
        run()
    finally:
        handle.remove()
    return seen[0]


def _distance(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).pow(2).sum() / target.pow(2).sum()


@contextmanager
def _rounding(model: Any) -> Iterator[None]:
    """The model with an attention that rounds as its modules' "tilepress_scaling" says."""
    from ..nn.kv_smoothing import ATTENTION

    before = model.config._attn_implementation
    model.set_attn_implementation(ATTENTION)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


@contextmanager
def _frozen(module: nn.Module) -> Iterator[None]:
    """No gradient for the module's own parameters."""
    learning = [parameter for parameter in module.parameters() if parameter.requires_grad]
    for parameter in learning:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)
