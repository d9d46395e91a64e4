"""SHA256SUMS: the SHA-256 of each file that Tilepress wrote to a compressed model's folder, as `sha256sum -c` reads it.

The list holds every file but itself, the model card and records of the model (`kept_records`), and whatever changes in
it contradicts a file, so no bit of the rest can change unseen. It also tells our files from the user's own, which are
not listed. It guards against damage, not forgery.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .._files import write_text
from .._safetensors import DamagedError

SUMS = "SHA256SUMS"
CARD = "README.md"  # people edit it, so it is not listed: it ends with a checksum of its own
LONGEST = 1 << 20  # bytes of a list: more than ten thousand files
THREADS = 4  # more would be faster than most disks
_MARK = "<!-- as tilepress wrote it: "
_LINE = re.compile(r"([0-9a-f]{64})  ([^/\\\x00-\x1f\x7f]+)")


def sealed_card(text: str) -> str:
    """The model card with a last line that tells whether somebody has changed it."""
    return f"{text}{_seal(text)}"


def is_own_card(path: Path) -> bool:
    """Whether `path` is a model card as Tilepress wrote it."""
    if path.name != CARD or not path.is_file() or path.stat().st_size > LONGEST:
        return False
    text, mark, _ = path.read_text("utf-8", "replace").rpartition(_MARK)
    return bool(mark) and path.read_text("utf-8", "replace") == sealed_card(text)


def unsealed(card: Path) -> str:
    """The text that `sealed_card` got, of a card that `is_own_card`."""
    return card.read_text("utf-8").rpartition(_MARK)[0]


def _seal(text: str) -> str:
    return f"{_MARK}{hashlib.sha256(text.encode()).hexdigest()} -->\n"


def is_weights(name: str) -> bool:
    return name.endswith(".safetensors")


def can_be_listed(name: str) -> bool:
    """`sha256sum` would have to escape other names."""
    return name.isprintable() and "\\" not in name


def digests_of(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Name → SHA-256, sorted by name; several files are read at a time."""
    names = sorted(names)
    with ThreadPoolExecutor(THREADS) as pool:
        return dict(zip(names, pool.map(lambda name: _sha256(folder / name), names), strict=True))


def write_sums(folder: Path, digests: Mapping[str, str]) -> None:
    write_text(folder / SUMS, "".join(f"{digests[name]}  {name}\n" for name in sorted(digests)))


def read_sums(folder: Path) -> dict[str, str]:
    """Name → SHA-256, empty where there is no list; DamagedError if it is no such list."""
    path = folder / SUMS
    if not path.is_file():
        return {}
    try:
        if path.stat().st_size > LONGEST:
            raise ValueError(f"it is longer than {LONGEST} bytes")
        *lines, rest = path.read_text("utf-8").split("\n")
        if rest:
            raise ValueError("its last line does not end")
        return _parse(lines)
    except ValueError as error:
        raise DamagedError(f"{path} is no list of checksums ({error}): copy or compress the model again") from error


def check_sums(folder: Path, selects: Callable[[str], bool] = lambda _: True) -> set[str]:
    """Check the listed files that `selects` picks, and return their names; DamagedError names the first bad one."""
    stated = {name: digest for name, digest in read_sums(folder).items() if selects(name)}
    for name in stated:
        if not (folder / name).is_file():
            raise DamagedError(f"{folder} lacks {name}, which {SUMS} lists: copy or compress the model again")
    for name, digest in digests_of(folder, stated).items():
        if digest != stated[name]:
            raise DamagedError(
                f"{folder / name} is damaged: its checksum in {SUMS} does not match. Copy or compress the model again; "
                f"if you changed the file yourself, remove its line from {SUMS}"
            )
    return set(stated)


def _parse(lines: Iterable[str]) -> dict[str, str]:
    sums: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if match is None or match[2] in ("", ".", "..", SUMS) or match[2] in sums:
            raise ValueError(f"line {number} is not a checksum and the name of a file")
        sums[match[2]] = match[1]
    return sums


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
