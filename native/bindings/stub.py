"""Write src/tilepress/_native.pyi from the compiled module: `make stubs`. A test fails where the two differ.

nanobind reads the signatures; stub.pat adds what C++ does not say. Arrays may be torch's or numpy's, and get names, so
that a signature can be read: `const_uint8_1d` is an array of bytes that is not written to.
"""

import re
import subprocess
import sys
from pathlib import Path

from nanobind.stubgen import StubGen, load_pattern_file

from tilepress import _native

HERE = Path(__file__).parent
STUB = HERE.parents[1] / "src/tilepress/_native.pyi"
HEAD = "# Written by `make stubs` from the compiled module and native/bindings/stub.pat: change those.\n"
ARRAY = re.compile(r"Annotated\[NDArray\[numpy\.(\w+)\], dict\((shape=\(([^)]*)\)[^)]*)\)\]")


def stub() -> str:
    patterns = load_pattern_file(str(HERE / "stub.pat"))
    generator = StubGen(_native, patterns=patterns)
    generator.put(_native)
    unused = [one.query.pattern for one in patterns if not one.matches]
    if unused:
        raise SystemExit(f"stub.pat: nothing is called {', '.join(unused)}")
    return _formatted(HEAD + _with_named_arrays(generator.get()))


def _with_named_arrays(text: str) -> str:
    """Each kind of array gets a name, defined once before the first function."""
    kinds = {match[0]: match for match in ARRAY.finditer(text)}
    for kind, match in kinds.items():
        text = text.replace(kind, _name(match))
    aliases = [f"{_name(one)} = Annotated[NDArray[numpy.{one[1]}] | Tensor, dict({one[2]})]" for one in kinds.values()]
    head, first, rest = text.partition("\ndef ")
    return f"{head}\n" + "\n".join(sorted(aliases)) + f"\n{first}{rest}"


def _name(array: re.Match[str]) -> str:
    dimensions = array[3].count("None")
    return f"{'const_' if 'writable=False' in array[2] else ''}{array[1]}_{dimensions}d"


def _formatted(text: str) -> str:
    """As `make lint` wants it."""
    for words in (["check", "--fix-only", "--quiet"], ["format", "--quiet"]):
        command = [sys.executable, "-m", "ruff", *words, "--stdin-filename", str(STUB), "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    STUB.write_text(stub(), "utf-8")
