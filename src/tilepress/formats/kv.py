"""What a KV cache keeps of keys and values: block floating point, halves, and any of them thinned out.

Names are parts joined by `+`, of which `str(parse_kv(name))` is canonical:

    fp16, bf16                               halves
    bfp:mM[:near][:hiH:initialI:localL][:gG] block floating point with M bits of magnitude; the first I tokens and the
                                             last L keep H
    bfp8                                     bfp:m8:g32
    bfp4                                     bfp:m4:hi8:initial32:local64:g32, Harmonia's
    bfp4n                                    bfp:m4:near:hi8:initial32:local64:g32
    rotate                                   keys in block floating point are times a Hadamard matrix first, and so are
                                             queries
    sparse:kK,vV                             the smallest K % of a token's keys and V % of its values are left out

Keys are grouped along the channels of a token and a head, values along the tokens of a channel. A token that leaves the
last L is truncated to M bits, or with `near` rounded to the nearest such number; so is each value of a group, which
keeps its exponent.

A sparse cache has all of a token until BLOCK of them are full and the next one comes. Then the smallest of each one's
keys, all heads of the layer taken together, are left out, and a bit for each says which; so for values.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from .bfp_format import GROUPS
from .names import FormatError

# offline: scales of channels, folded into a model's weights; online: half of the extremes of some channels are
# subtracted from keys; hybrid: both. A cache itself knows none and online.
Smoothing = Literal["none", "offline", "online", "hybrid"]
SMOOTHINGS: tuple[Smoothing, ...] = get_args(Smoothing)
SMOOTHED_SHARE = 16  # one channel in so many has an offset
LEAST_BLOCK = 16  # channels that are rotated together: fewer hardly spread what one of them has

BLOCK = 32  # tokens that are thinned out at the same time
WIDEST = 8  # bits of magnitude: what attention multiplies with
MOST_TOKENS = 1 << 20
_EXPONENT_BITS = 5
_SPELLING = (
    "write fp16, bf16, bfp8, bfp4, bfp4n, bfp:m4:near:hi8:initial32:local64:g32, sparse:k30,v50, rotate, or some of "
    "them with +"
)

Half = Literal["fp16", "bf16"]
Rotate = Literal["rotate"]


@dataclass(frozen=True)
class KvBfp:
    """`mantissa` bits of magnitude, `high` for the first `initial` tokens and the last `local`; groups of `group`.

    nearest: fewer bits than 8 are of the nearest number, of two as near the larger; else magnitudes are truncated.
    """

    mantissa: int
    high: int
    initial: int = 0
    local: int = 0
    group: int = 32
    nearest: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.mantissa <= self.high <= WIDEST:
            raise ValueError(
                f"magnitudes have 1 to {WIDEST} bits, hi not fewer than m: not m{self.mantissa}:hi{self.high}"
            )
        if self.group not in GROUPS:
            raise ValueError(f"a group is one of {GROUPS}, not {self.group}")
        if not (0 <= self.initial <= MOST_TOKENS and 0 <= self.local <= MOST_TOKENS):
            raise ValueError(f"initial and local are 0 to {MOST_TOKENS} tokens, not {self.initial} and {self.local}")
        if self.nearest and self.mantissa == WIDEST:
            raise ValueError(f"near is of fewer than {WIDEST} bits, and m{WIDEST} has all that are kept: leave it out")
        if self.nearest and self.mantissa < self.high < WIDEST:
            raise ValueError(f"near rounds what {WIDEST} bits hold: write hi{WIDEST} with it, not hi{self.high}")
        if (self.high > self.mantissa) != (self.initial + self.local > 0):
            raise ValueError("hi needs tokens that have it (initial or local), and they need hi above m")

    def __str__(self) -> str:
        for name, preset in PRESETS.items():
            if self == preset:
                return name
        wide = f":hi{self.high}:initial{self.initial}:local{self.local}" if self.high > self.mantissa else ""
        return f"bfp:m{self.mantissa}{':near' if self.nearest else ''}{wide}:g{self.group}"

    def bits(self, tokens: int) -> float:
        """Bits a channel of `tokens` tokens takes: signs, magnitudes, and its share of exponents."""
        wide = min(tokens, self.initial + self.local)
        return tokens * (1 + self.mantissa + _EXPONENT_BITS / self.group) + wide * (self.high - self.mantissa)


PRESETS = {
    "bfp8": KvBfp(8, 8),
    "bfp4": KvBfp(4, 8, initial=32, local=64),
    "bfp4n": KvBfp(4, 8, initial=32, local=64, nearest=True),
}


@dataclass(frozen=True)
class KvFormat:
    """How numbers are stored, how many % of keys and values are left out, and whether keys are rotated before that."""

    number: KvBfp | Half
    key_sparsity: int = 0
    value_sparsity: int = 0
    rotated: bool = False

    def __post_init__(self) -> None:
        if not (0 <= self.key_sparsity < 100 and 0 <= self.value_sparsity < 100):
            raise ValueError(f"sparsity is 0 to 99 %, not {self.key_sparsity} and {self.value_sparsity}")
        if self.rotated and self.bfp is None:
            raise ValueError(f"rotate is of keys in block floating point, and {self.number} is not: leave it out")

    def __str__(self) -> str:
        number = str(self.number) + ("+rotate" if self.rotated else "")
        if not self.is_sparse:
            return number
        sparse = f"sparse:k{self.key_sparsity},v{self.value_sparsity}"
        return sparse if number == "fp16" else f"{number}+{sparse}"

    @property
    def is_sparse(self) -> bool:
        return self.key_sparsity + self.value_sparsity > 0

    @property
    def bfp(self) -> KvBfp | None:
        return self.number if isinstance(self.number, KvBfp) else None

    def bits(self, tokens: int) -> float:
        """Bits that a channel's key and value of each of `tokens` tokens take."""
        whole = 2 * self.number.bits(tokens) if isinstance(self.number, KvBfp) else 2 * 16 * tokens
        closed = self._closed(tokens) if self.is_sparse else 0
        of_value = 1 + self.number.mantissa if isinstance(self.number, KvBfp) else 16
        left_out = (self.key_sparsity + self.value_sparsity) / 100
        return whole + closed * (2 - of_value * left_out)

    def _closed(self, tokens: int) -> int:
        """Tokens of which zeros are not stored: of full blocks, and no more bits than most."""
        if self.bfp is None:
            return tokens // BLOCK * BLOCK
        wide = self.bfp.local if self.bfp.high > self.bfp.mantissa else 0
        first = -(-self.bfp.initial // BLOCK) * BLOCK if self.bfp.high > self.bfp.mantissa else 0
        return max(max(tokens - wide, 0) // BLOCK * BLOCK - first, 0)


def parse_kv(name: "str | KvFormat") -> KvFormat:
    """The cache format called `name`, or a FormatError that says how one is written."""
    if isinstance(name, KvFormat):
        return name
    if not isinstance(name, str):
        raise TypeError(f"a cache format is a string, not {type(name).__name__}")
    try:
        return _join([_part(text) for text in name.strip().lower().split("+")])
    except ValueError as error:
        raise FormatError(f"{name!r} is no cache format: {error}; {_SPELLING}") from error


def _join(parts: "list[KvBfp | Half | tuple[int, int] | Rotate]") -> KvFormat:
    rotations = parts.count("rotate")
    numbers = [part for part in parts if not isinstance(part, tuple) and part != "rotate"]
    sparse = [part for part in parts if isinstance(part, tuple)]
    if max(len(numbers), len(sparse), rotations) > 1:
        raise ValueError("it names two formats of the same kind")
    shares = sparse[0] if sparse else (0, 0)
    return KvFormat(numbers[0] if numbers else "fp16", *shares, rotated=rotations > 0)


def _part(text: str) -> "KvBfp | Half | tuple[int, int] | Rotate":
    if text in PRESETS:
        return PRESETS[text]
    if text == "rotate":
        return "rotate"
    if text in ("fp16", "bf16"):
        return "fp16" if text == "fp16" else "bf16"
    head, *options = text.split(":")
    if head == "bfp":
        return _bfp(options)
    if head == "sparse" and len(options) == 1:
        shares = _numbers(options[0].split(","), ("k", "v"))
        return shares.get("k", 0), shares.get("v", 0)
    raise ValueError(f"{text!r} is not known")


def _bfp(options: list[str]) -> KvBfp:
    numbers = _numbers([option for option in options if option != "near"], ("initial", "local", "hi", "m", "g"))
    if "m" not in numbers:
        raise ValueError("bfp needs mN, the bits of a magnitude")
    if options.count("near") > 1:
        raise ValueError("'near' is there twice")
    mantissa, wide = numbers["m"], (numbers.get("initial", 0), numbers.get("local", 0))
    return KvBfp(mantissa, numbers.get("hi", mantissa), *wide, numbers.get("g", 32), nearest="near" in options)


def _numbers(options: list[str], keys: tuple[str, ...]) -> dict[str, int]:
    """Options like m4, each at most once."""
    numbers: dict[str, int] = {}
    for option in options:
        key = next((key for key in keys if option.startswith(key)), "")
        digits = option.removeprefix(key)
        if not key or key in numbers or not (digits.isascii() and digits.isdigit()):
            raise ValueError(f"{option!r} is not one of {', '.join(f'{key}N' for key in keys)}, each once")
        numbers[key] = int(digits)
    return numbers


def smoothed_channels(format: KvFormat, smoothing: str, channels: int) -> int:
    """How many of a head's `channels` of keys have an offset in a cache in `format` with that smoothing."""
    if smoothing in ("offline", "hybrid"):
        raise FormatError(
            f"{smoothing} smoothing is folded into weights: compress a model with it (`tilepress compress --smoothing "
            f"{smoothing}`), and its cache has it; for a cache alone take none or online"
        )
    if smoothing not in SMOOTHINGS:
        raise FormatError(f"smoothing of a cache is none or online, not {smoothing}")
    if smoothing == "online" and format.bfp is None:
        raise FormatError(f"smoothing is of keys in block floating point, and {format} has none: leave it out")
    if format.rotated:
        rotated_block(channels)
    return channels // SMOOTHED_SHARE if smoothing == "online" else 0


def rotated_block(channels: int) -> int:
    """How many of a head's channels are rotated together: the largest power of two that divides them. FormatError where
    that is too few."""
    block = channels & -channels
    if block < LEAST_BLOCK:
        raise FormatError(
            f"keys of {channels} channels cannot be rotated: the largest power of two that divides them is {block}, "
            f"and at least {LEAST_BLOCK} are rotated together; leave rotate out"
        )
    return block


def is_folded(smoothing: str) -> bool:
    """Whether that smoothing has a part that is folded into weights."""
    return smoothing in ("offline", "hybrid")


def of_cache(smoothing: str) -> str:
    """What is left for the cache of a model that has the folded part in its weights."""
    return "online" if smoothing in ("online", "hybrid") else "none"
