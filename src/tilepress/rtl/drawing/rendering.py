"""A diagram as a file: DOT as it is, pictures by Graphviz."""

import re
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

from ..._files import replacing, write_text

TEXT = ".dot"
PICTURES = (".svg", ".png", ".pdf")
_MARK = re.compile(r"<!-- (.*); sha256 of its DOT: ([0-9a-f]{64}) -->\n")


def check_ending(path: Path) -> None:
    """Before the work: a ValueError for an ending that cannot be written, a RuntimeError where Graphviz is missing."""
    if path.suffix not in (TEXT, *PICTURES):
        raise ValueError(f"{path}: a diagram is a file that ends with {', '.join((TEXT, *PICTURES))}")
    if path.suffix != TEXT and shutil.which("dot") is None:
        raise RuntimeError(f"{path} needs Graphviz: apt-get install graphviz, or write {path.with_suffix(TEXT).name}")


def write(dot: str, path: Path, drawn: str) -> None:
    """As the ending of `path` asks for. An SVG says in a comment what was `drawn`, and of which DOT it is."""
    check_ending(path)
    if path.suffix == TEXT:
        write_text(path, dot)
    elif path.suffix == ".svg":
        mark = f"<!-- {drawn}; sha256 of its DOT: {dot_hash(dot)} -->\n"
        write_text(path, _graphviz(dot, "svg").decode().replace("<svg", f"{mark}<svg", 1))
    else:
        with replacing(path) as made:
            made.write_bytes(_graphviz(dot, path.suffix[1:]))


def dot_hash(dot: str) -> str:
    return sha256(dot.encode()).hexdigest()


def hash_in(svg: str) -> str:
    """Of the DOT that an SVG was made of."""
    if mark := _MARK.search(svg):
        return mark[2]
    raise ValueError("this SVG does not say of which DOT it is: it was not written by `tilepress rtl draw`")


def _graphviz(dot: str, format: str) -> bytes:
    done = subprocess.run(["dot", f"-T{format}"], input=dot.encode(), capture_output=True)
    if done.returncode:
        raise RuntimeError(f"Graphviz failed: {done.stderr.decode(errors='replace').strip()[-200:]}")
    return done.stdout
