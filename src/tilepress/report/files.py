"""Files that are there whole or not at all."""

import os
from pathlib import Path


def write_text(path: Path, content: str) -> None:
    """Write it beside `path`, and rename it."""
    beside = path.with_name(path.name + ".part")
    beside.write_text(content, "utf-8", newline="")
    os.replace(beside, path)
