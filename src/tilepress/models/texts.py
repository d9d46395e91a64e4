"""Texts to calibrate with and to measure on: any text file, or one of a few by name.

Named ones are looked for in the folder TILEPRESS_DATA, then in `data` in the cache folder. "pydoc", the English
documentation of the Python language, comes with CPython and is always there.
"""

import os
from difflib import get_close_matches
from pathlib import Path

from .._files import cache_folder

FILES = {"wikitext2": "wikitext2-test.txt", "wikitext2-train": "wikitext2-train.txt", "ptb": "ptb-valid.txt"}
PYDOC = "pydoc"


class TextUnavailableError(RuntimeError):
    """A text that is not where it is looked for, or is none."""


def read_text(name: str) -> str:
    """The text in a file, or the one of that name: "wikitext2" (its test part), "wikitext2-train", "ptb" (its
    validation part) or "pydoc". A file called like one of them is `./wikitext2`. Nothing is stripped; a line ends with
    a line feed, whatever the file ends it with, so that a copy made elsewhere gives the same tokens."""
    if name == PYDOC:
        return _pydoc_text()
    return _decoded(data_file(FILES[name]) if name in FILES else _existing_file(name))


def calibration_text(path: str | None) -> tuple[str, str]:
    """(name, text) to calibrate with: what is asked for, else WikiText-2's training part where it is there, else the
    documentation in CPython."""
    name = calibration_name(path)
    return name, read_text(name)


def calibration_name(path: str | None) -> str:
    """Of the text that `calibration_text` gives."""
    return path or _name_or_pydoc("wikitext2-train")


def evaluation_text(path: str | None) -> tuple[str, str]:
    """(name, text) to measure on: what is asked for, else WikiText-2's test part where it is there, else the
    documentation in CPython."""
    name = path or _name_or_pydoc("wikitext2")
    return name, read_text(name)


def data_file(file_name: str) -> Path:
    """Where the file `file_name` of a named text or task lies."""
    if (path := _find_file(file_name)) is None:
        places = " nor in ".join(map(str, _folders()))
        raise TextUnavailableError(
            f"{file_name} is not in {places}; put it there, name its folder in TILEPRESS_DATA, "
            "or give the path of another file"
        )
    return path


def _name_or_pydoc(name: str) -> str:
    return name if _find_file(FILES[name]) else PYDOC


def _folders() -> list[Path]:
    named = [Path(folder)] if (folder := os.environ.get("TILEPRESS_DATA")) else []
    return [*named, cache_folder() / "data"]


def _find_file(file_name: str) -> Path | None:
    return next((folder / file_name for folder in _folders() if (folder / file_name).is_file()), None)


def _existing_file(name: str) -> Path:
    path = Path(name)
    if path.is_dir():
        raise TextUnavailableError(f"{name} is a folder; give one text file")
    if not path.is_file():
        names = [*FILES, PYDOC]
        near = get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"give a text file or one of {', '.join(names)}"
        raise TextUnavailableError(f"there is no file {name}: {hint}")
    return path


def _decoded(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise TextUnavailableError(f"{path} is not text in UTF-8 (byte {error.start} is none of it)") from error
    if not text.strip():
        raise TextUnavailableError(f"{path} is empty; give a file with some text in it")
    return text


def _pydoc_text() -> str:
    """All topics in the order of their names; their order in the module differs between versions."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))
