"""Rotary position embeddings as data: the frequencies of every kind, and the rotation itself.

Two kinds, `Dynamic` and `LongRope`, depend on how long a sequence is. Keys in shared pages cannot, so their frequencies
are those of the longest sequence that a runner takes, fixed when it is made.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Linear:
    """All frequencies divided by `factor`."""

    factor: float
    attention_factor: float = 1.0

    def frequencies(self, rotary: "Rotary", longest: int) -> Tensor:
        return inverse_frequencies(rotary.rope_theta, rotary.rotary_dim) / self.factor


@dataclass(frozen=True)
class Dynamic:
    """A larger base for sequences of more than `max_position_embeddings` tokens ("NTK")."""

    factor: float
    max_position_embeddings: int
    attention_factor: float = 1.0

    def frequencies(self, rotary: "Rotary", longest: int) -> Tensor:
        dim = rotary.rotary_dim
        length = max(longest, self.max_position_embeddings) / self.max_position_embeddings
        growth = self.factor * length - (self.factor - 1)
        return inverse_frequencies(rotary.rope_theta * growth ** (dim / (dim - 2)), dim)


@dataclass(frozen=True)
class Llama3:
    """Low frequencies divided by `factor`, high ones as they are, those between interpolated."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int
    attention_factor: float = 1.0

    def __post_init__(self) -> None:
        if not self.low_freq_factor < self.high_freq_factor:
            raise ValueError(
                f"low_freq_factor, {self.low_freq_factor}, must be less than high_freq_factor, {self.high_freq_factor}"
            )

    def frequencies(self, rotary: "Rotary", longest: int) -> Tensor:
        plain = inverse_frequencies(rotary.rope_theta, rotary.rotary_dim)
        turns = self.original_max_position_embeddings * plain / (2 * math.pi)
        share = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        return _mixed(plain / self.factor, plain, share.clamp(0, 1))


@dataclass(frozen=True)
class Yarn:
    """Channels that turn fewer than `beta_slow` times in the original length have frequencies divided by `factor`,
    those with more than `beta_fast` turns as they are, those between interpolated by their index.

    truncate: whether the two bounds are rounded to whole channels.
    attention_factor: of cosine and sine alike.
    """

    factor: float
    original_max_position_embeddings: int
    beta_fast: float
    beta_slow: float
    truncate: bool
    attention_factor: float

    def frequencies(self, rotary: "Rotary", longest: int) -> Tensor:
        plain = inverse_frequencies(rotary.rope_theta, rotary.rotary_dim)
        low, high = self._channel(rotary, self.beta_fast), self._channel(rotary, self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, rotary.rotary_dim - 1)
        width = high - low or 0.001
        share = (torch.arange(len(plain), dtype=torch.float32) - low) / width
        return _mixed(plain, plain / self.factor, share.clamp(0, 1))

    def _channel(self, rotary: "Rotary", turns: float) -> float:
        """The one, counted in pairs, that turns that often in the original length."""
        wavelength = self.original_max_position_embeddings / (turns * 2 * math.pi)
        return rotary.rotary_dim * math.log(wavelength) / (2 * math.log(rotary.rope_theta))


@dataclass(frozen=True)
class LongRope:
    """Every frequency divided by a factor of its own: one of `long_factor` where sequences may have more than
    `original_max_position_embeddings` tokens, else one of `short_factor`."""

    short_factor: tuple[float, ...]
    long_factor: tuple[float, ...]
    original_max_position_embeddings: int
    attention_factor: float

    def frequencies(self, rotary: "Rotary", longest: int) -> Tensor:
        is_long = longest > self.original_max_position_embeddings
        factors = torch.tensor(self.long_factor if is_long else self.short_factor, dtype=torch.float32)
        return inverse_frequencies(rotary.rope_theta, rotary.rotary_dim) / factors


Scaling = Linear | Dynamic | Llama3 | Yarn | LongRope


@dataclass(frozen=True)
class Rotary:
    """The first `rotary_dim` channels of a head, in pairs, turn with a token's position.

    interleaved: channels 2i and 2i + 1 are a pair; otherwise i and i + rotary_dim / 2 are.
    """

    rope_theta: float
    rotary_dim: int
    scaling: Scaling | None = None
    interleaved: bool = False

    def __post_init__(self) -> None:
        if self.rotary_dim < 2 or self.rotary_dim % 2:
            raise ValueError(f"rotary channels are in pairs: {self.rotary_dim} of a head cannot be")
        if not self.rope_theta > 1:
            raise ValueError(f"rope_theta is more than 1, not {self.rope_theta}")
        if isinstance(self.scaling, LongRope):
            lengths = {len(self.scaling.short_factor), len(self.scaling.long_factor)}
            if lengths != {self.rotary_dim // 2}:
                raise ValueError(f"short_factor and long_factor must have {self.rotary_dim // 2} numbers each")

    @property
    def attention_factor(self) -> float:
        """What cosine and sine are multiplied by."""
        return 1.0 if self.scaling is None else self.scaling.attention_factor

    def frequencies(self, longest: int) -> Tensor:
        """float32 [rotary_dim / 2]: radians per token, for sequences of at most `longest` tokens."""
        if self.scaling is None:
            return inverse_frequencies(self.rope_theta, self.rotary_dim)
        return self.scaling.frequencies(self, longest)

    def rotate(self, x: Tensor, positions: Tensor, frequencies: Tensor) -> Tensor:
        """x [tokens, heads, head_dim] turned to `positions` [tokens]: float32, of the same shape."""
        angles = positions[:, None, None].float() * frequencies
        cos, sin = angles.cos() * self.attention_factor, angles.sin() * self.attention_factor
        turned, rest = x.float().tensor_split([self.rotary_dim], -1)
        if self.interleaved:
            a, b = turned[..., ::2], turned[..., 1::2]
            turned = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
        else:
            a, b = turned.chunk(2, -1)
            turned = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
        return torch.cat([turned, rest], -1)


def inverse_frequencies(rope_theta: float, rotary_dim: int) -> Tensor:
    """float32 [rotary_dim / 2]: rope_theta^(-2i / rotary_dim)."""
    return 1.0 / rope_theta ** (torch.arange(0, rotary_dim, 2, dtype=torch.float32) / rotary_dim)


def read_rotary(parameters: Mapping[str, Any], head_dim: int, max_position_embeddings: int) -> Rotary:
    """As `rope_parameters` of a transformers config say, for one kind of layer."""
    kind = parameters.get("rope_type", "default")
    if kind not in _READERS:
        raise ValueError(f"rope_type {kind!r} is not known; {', '.join(_READERS)} are")
    own = _Parameters(kind, parameters)
    scaling = _READERS[kind](own, max_position_embeddings)
    share = own.optional("partial_rotary_factor") or 1.0
    return Rotary(own.number("rope_theta"), int(head_dim * share), scaling)


@dataclass(frozen=True)
class _Parameters:
    kind: str
    values: Mapping[str, Any]

    def number(self, name: str) -> float:
        value = self.optional(name)
        if value is None:
            raise ValueError(f"rope_parameters of type {self.kind!r} need {name}")
        return value

    def optional(self, name: str) -> float | None:
        value = self.values.get(name)
        if value is not None and (not isinstance(value, int | float) or not 0 < value < math.inf):
            raise ValueError(f"{name} of rope_parameters is a positive number, not {value!r}")
        return value

    def original_length(self) -> int:
        return int(self.number("original_max_position_embeddings"))

    def numbers(self, name: str) -> tuple[float, ...]:
        value = self.values.get(name)
        if not isinstance(value, list | tuple):
            raise ValueError(f"rope_parameters of type {self.kind!r} need a list {name}")
        return tuple(map(float, value))


def _read_llama3(parameters: _Parameters, longest: int) -> Llama3:
    return Llama3(
        factor=parameters.number("factor"),
        low_freq_factor=parameters.number("low_freq_factor"),
        high_freq_factor=parameters.number("high_freq_factor"),
        original_max_position_embeddings=parameters.original_length(),
    )


def _read_yarn(parameters: _Parameters, longest: int) -> Yarn:
    original = parameters.original_length()
    factor = parameters.optional("factor") or longest / original
    return Yarn(
        factor=factor,
        original_max_position_embeddings=original,
        beta_fast=parameters.optional("beta_fast") or 32.0,
        beta_slow=parameters.optional("beta_slow") or 1.0,
        truncate=bool(parameters.values.get("truncate", True)),
        attention_factor=_yarn_attention_factor(parameters, factor),
    )


def _yarn_attention_factor(parameters: _Parameters, factor: float) -> float:
    """Given, or grows with the logarithm of `factor`."""
    given = parameters.optional("attention_factor")
    if given is not None:
        return given
    log = 0.1 * math.log(factor) if factor > 1 else 0.0
    mscale, all_dim = parameters.optional("mscale"), parameters.optional("mscale_all_dim")
    return (1 + mscale * log) / (1 + all_dim * log) if mscale and all_dim else 1 + log


def _read_longrope(parameters: _Parameters, longest: int) -> LongRope:
    original = parameters.original_length()
    attention_factor = parameters.optional("attention_factor")
    if attention_factor is None:
        factor = parameters.optional("factor") or longest / original
        attention_factor = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return LongRope(parameters.numbers("short_factor"), parameters.numbers("long_factor"), original, attention_factor)


def _mixed(first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    return first * (1 - share) + second * share


_READERS: dict[str, Callable[[_Parameters, int], Scaling | None]] = {
    "default": lambda parameters, longest: None,
    "linear": lambda parameters, longest: Linear(parameters.number("factor")),
    "dynamic": lambda parameters, longest: Dynamic(parameters.number("factor"), longest),
    "llama3": _read_llama3,
    "yarn": _read_yarn,
    "longrope": _read_longrope,
}
