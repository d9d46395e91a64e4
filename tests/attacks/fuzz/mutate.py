"""Mutations: of bytes, of text by its words, of trees as JSON has them. All choices come from the Random given."""

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

INTEGERS = (
    *(0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 65535, 65536),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30),
)
DEEP: list[Any] = []
for _ in range(300):
    DEEP = [DEEP]
VALUES: tuple[Any, ...] = (
    *INTEGERS, *(-number for number in INTEGERS[1:]), None, True, False, 0.5, -0.0, 1e308, 5e-324, float("nan"),
    float("inf"), float("-inf"), "", "x", "0", "\0", "é", "\U0001f600" * 50, "a" * 10_000, [], {}, [[]], [None],
    {"": {}}, [0] * 1000, DEEP,
)  # fmt: skip
WORDS = (
    *map(str, INTEGERS), "-1", "-0", "0.5", "1e999", "-1e-999", "nan", "inf", "-inf", "0x7f", "1_000", "9" * 5000,
    "true", "null", "", "'", '"', '"""', "\\", "\\ud800", "\\u0000", "[", "]", "{", "}", "(", "<<", ":", ",", ".", "=",
    "#", "-", "*a", "&a ", "|", ">", "%", "@", "!!python/name:os.system ", "1979-05-27", "\n", "\t", "\0", "\ufeff",
    "\u2028", "é", "[" * 3000, "{" * 3000, "a." * 500, "a" * 5000, "/dev/zero", "../../etc/passwd",
)  # fmt: skip
TOKEN = re.compile(r"\w+|\s+|[^\w\s]")


def mutated_bytes(data: bytes, random: Random) -> bytes:
    """`data` with one to three changes; never empty."""
    mutant = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        random.choice(_BYTE_CHANGES)(mutant, random.randrange(len(mutant)), random)
        if not mutant:
            mutant += b"\0"
    return bytes(mutant)


def mutated_text(text: str, random: Random, words: Sequence[str] = ()) -> str:
    """`text` with one to four words, blanks or signs changed; half of the new ones are of `words` if there are any."""
    tokens = TOKEN.findall(text) or [""]
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(len(tokens))
        word = random.choice(words if words and random.random() < 0.5 else WORDS)
        random.choice(_TOKEN_CHANGES)(tokens, at, word, random)
        tokens = tokens or [""]
    return "".join(tokens)


def mutated_tree(tree: Any, random: Random) -> Any:
    """A copy of nested dictionaries and lists with one to three of their values, keys or places changed."""
    root = {"": copy.deepcopy(tree)}
    for _ in range(random.choice((1, 1, 2, 3))):
        slots = list(_slots(root))
        holder, key = random.choice(slots[1:] or slots)
        other, from_key = random.choice(slots)
        _change_slot(holder, key, copy.deepcopy(other[from_key]), random)
        root.setdefault("", None)
    return root[""]


def _flip(data: bytearray, at: int, random: Random) -> None:
    data[at] ^= 1 << random.randrange(8)


def _put_byte(data: bytearray, at: int, random: Random) -> None:
    data[at] = random.randrange(256)


def _put_integer(data: bytearray, at: int, random: Random) -> None:
    """An extreme number over a field of 1, 2, 4 or 8 bytes, little endian."""
    width = random.choice((1, 2, 4, 8))
    number = random.choice(INTEGERS) * random.choice((1, -1))
    data[at : at + width] = (number % (1 << 8 * width)).to_bytes(width, "little")


def _cut(data: bytearray, at: int, random: Random) -> None:
    del data[at : at + random.randrange(1, 64)]


def _truncate(data: bytearray, at: int, random: Random) -> None:
    del data[at:]


def _insert(data: bytearray, at: int, random: Random) -> None:
    data[at:at] = random.randbytes(random.randrange(1, 64))


def _overwrite(data: bytearray, at: int, random: Random) -> None:
    length = min(random.randrange(1, 64), len(data) - at)
    data[at : at + length] = random.randbytes(length)


def _splice(data: bytearray, at: int, random: Random) -> None:
    """A stretch of the file over another place of it, or between."""
    start, length = random.randrange(len(data)), random.randrange(1, 256)
    data[at : at + random.choice((0, length))] = data[start : start + length]


_BYTE_CHANGES: tuple[Callable[[bytearray, int, Random], None], ...] = (
    _flip, _flip, _put_byte, _put_byte, _put_integer, _put_integer, _cut, _truncate, _insert, _overwrite, _splice,
)  # fmt: skip


def _put_word(tokens: list[str], at: int, word: str, random: Random) -> None:
    tokens[at] = word


def _insert_word(tokens: list[str], at: int, word: str, random: Random) -> None:
    tokens.insert(at, word)


def _delete_words(tokens: list[str], at: int, word: str, random: Random) -> None:
    del tokens[at : at + random.choice((1, 1, 2, 10))]


def _copy_word(tokens: list[str], at: int, word: str, random: Random) -> None:
    tokens[at] = random.choice(tokens)


def _repeat_words(tokens: list[str], at: int, word: str, random: Random) -> None:
    stretch = tokens[at : at + random.choice((1, 3, 10, 30))]
    tokens[at:at] = stretch * random.choice((1, 1, 2, 100))


_TOKEN_CHANGES: tuple[Callable[[list[str], int, str, Random], None], ...] = (
    _put_word, _put_word, _put_word, _insert_word, _delete_words, _copy_word, _repeat_words,
)  # fmt: skip


def _slots(holder: Any) -> Iterator[tuple[Any, Any]]:
    """(dictionary or list, key or index) of everything in it, the outermost first; DEEP counts as one."""
    keys = holder if isinstance(holder, dict) else range(len(holder))
    for key in list(keys):
        yield holder, key
        if isinstance(holder[key], dict | list) and holder[key] != DEEP:
            yield from _slots(holder[key])


def _change_slot(holder: Any, key: Any, other: Any, random: Random) -> None:
    how = random.randrange(8)
    if how == 0:
        del holder[key]
    elif how == 1 and isinstance(holder, dict):
        holder[random.choice(("", "x", key + "x", "digest", "0"))] = holder.pop(key)
    elif how == 2:
        holder[key] = other
    elif how == 3 and isinstance(holder, list):
        holder[key:key] = [holder[key]] * random.choice((1, 2, 100))
    elif how < 6 and type(holder[key]) is int:
        holder[key] += random.choice((-1, 1, -16, 16, holder[key], 2**32))
    else:
        holder[key] = copy.deepcopy(random.choice(VALUES))  # or later changes would get into it
