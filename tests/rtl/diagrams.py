"""The block diagrams that docs/rtl.md shows: `python -m tests.rtl.diagrams` draws them again, with Graphviz."""

import subprocess
import sys

from tests.docs.pages import ROOT, Page

IMAGES = ROOT / "docs" / "images" / "rtl"
LARGEST = 60_000  # bytes of a picture


def drawings() -> dict[str, tuple[str, ...]]:
    """Name of an SVG → the words of the command that makes it, as the page has it."""
    commands = [one.words for one in Page(ROOT / "docs" / "rtl.md").mentions if one.words[1:3] == ("rtl", "draw")]
    return {words[words.index("-o") + 1]: words for words in commands if "-o" in words}


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, words in drawings().items():
        subprocess.run([sys.executable, "-m", *words], cwd=IMAGES, check=True)
        size = (IMAGES / name).stat().st_size
        if size > LARGEST:
            sys.exit(f"{name} has {size} bytes, more than {LARGEST}: open fewer levels, or draw a part")


if __name__ == "__main__":
    main()
