"""What a reader of a Markdown page would type, in the page's order: commands, Python, and the files that it shows.

Commands are the lines of ```sh blocks and those lines of indented blocks that begin with a program; in an indented
block two blanks end the command and begin what is said of it. A comment that begins with MARK says why tests do not run
a command. A block whose first line is `# NAME.ext` is the file NAME.ext.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARK = "# not run by tests:"
PROGRAMS = ("tilepress", "make", "python", "pip")
FENCE = re.compile(r"^```(\w*)$")
FILE = re.compile(r"^(?:#|//) ([\w./-]+\.\w+)$")
INLINE = re.compile(r"`(tilepress [^`]+)`")


@dataclass(frozen=True)
class Block:
    """`language`: of the fence, "" of an indented block; `line`: number of its first one, from 1."""

    language: str
    line: int
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)

    @property
    def file(self) -> str | None:
        """The file that the block shows, if it names one."""
        match = FILE.match(self.lines[0]) if self.language not in ("", "sh") else None
        return match[1] if match else None


@dataclass(frozen=True)
class Command:
    """`words`: as a shell would have them; `reason`: why tests do not run it, if the page says so."""

    page: str
    line: int
    words: tuple[str, ...]
    reason: str | None = None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {' '.join(self.words)}"

    @property
    def is_synopsis(self) -> bool:
        """Whether it has places to be filled in: MODEL, PAPER/ITEM, `a, b` for either, … for more."""
        return any(re.fullmatch(r"[A-Z]+(/[A-Z]+)?|.*[,…]", word) for word in self.words)


@dataclass(frozen=True)
class Page:
    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        return self.path.read_text("utf-8")

    @cached_property
    def blocks(self) -> list[Block]:
        return list(_blocks(self.text.splitlines()))

    @property
    def steps(self) -> Iterator[Command | Block]:
        """Commands and blocks of Python, in order."""
        for block in self.blocks:
            if block.language == "python" and not block.file:
                yield block
            if block.language in ("sh", ""):
                yield from self._commands(block)

    @property
    def commands(self) -> list[Command]:
        return [step for step in self.steps if isinstance(step, Command)]

    @property
    def files(self) -> dict[str, str]:
        """Name → text of the files that the page shows; what has a folder is part of a file of ours."""
        return {block.file: block.text for block in self.blocks if block.file and "/" not in block.file}

    @property
    def mentions(self) -> list[Command]:
        """Commands in running text, of which some are only named."""
        prose = _without_blocks(self.text)
        mentions = ((prose.count("\n", 0, match.start()) + 1, match[1]) for match in INLINE.finditer(prose))
        return [Command(self.name, line, tuple(_split(text))) for line, text in mentions]

    def _commands(self, block: Block) -> Iterator[Command]:
        for number, line in enumerate(block.lines, block.line):
            is_command = line.split(" ")[0] in PROGRAMS
            assert is_command or block.language != "sh" or not line, f"{self.name}:{number}: which program is {line}?"
            if is_command:
                typed, _, reason = line.partition(MARK)
                typed = typed if block.language else re.split(" {2,}", typed)[0]
                yield Command(self.name, number, tuple(_split(typed)), reason.strip() or None)


def _split(text: str) -> list[str]:
    return shlex.split(text, comments=True)


def _blocks(lines: list[str]) -> Iterator[Block]:
    at = 0
    while at < len(lines):
        if fence := FENCE.match(lines[at]):
            end = lines.index("```", at + 1)
            yield Block(fence[1] or "text", at + 2, tuple(lines[at + 1 : end]))
            at = end
        elif lines[at].startswith("    ") and (not at or not lines[at - 1].strip()):
            end = next((i for i in range(at, len(lines)) if not lines[i].startswith("    ")), len(lines))
            yield Block("", at + 1, tuple(line.removeprefix("    ") for line in lines[at:end]))
            at = end
        at += 1


def _without_blocks(text: str) -> str:
    """As many lines, with those of fenced blocks empty."""
    return re.sub(r"^```.*?^```$", lambda match: "\n" * match[0].count("\n"), text, flags=re.S | re.M)
