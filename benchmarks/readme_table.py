"""`make readme`: put the table that `tilepress formats --markdown` prints into README.md."""

import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
START, END = "<!-- tilepress formats --markdown -->\n", "<!-- end -->\n"


def table() -> str:
    command = [sys.executable, "-m", "tilepress", "formats", "--markdown"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def with_table(readme: str, new: str) -> str:
    before, rest = readme.split(START)
    _, after = rest.split(END)
    return before + START + new + END + after


if __name__ == "__main__":
    README.write_text(with_table(README.read_text(), table()))
