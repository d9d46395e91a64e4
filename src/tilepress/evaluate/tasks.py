"""Tasks of multiple choice, asked the way lm-eval asks them."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..models.texts import data_file


@dataclass(frozen=True)
class Question:
    """A prompt and what may follow it, after a space; `answer` is the index of the right choice."""

    prompt: str
    choices: tuple[str, ...]
    answer: int


def read_task(name: str) -> list[Question]:
    """The questions of the task `name`, from its file where named texts lie; of "piqa:FILE" from that file."""
    kind, _, given = name.partition(":")
    if kind not in TASKS:
        raise ValueError(f"unknown task {kind!r}; there is {', '.join(TASKS)}, and {next(iter(TASKS))}:FILE")
    file_name, read = TASKS[kind]
    path = _own_file(kind, given) if ":" in name else data_file(file_name)
    questions = [_parsed(line, number, path, read) for number, line in enumerate(_lines(path), 1)]
    if not questions:
        raise ValueError(f"{path} is empty; it should have a JSON object a line")
    return questions


def _own_file(kind: str, given: str) -> Path:
    if not Path(given).is_file():
        raise ValueError(f"{kind}:{given} names no file of items: give the path of one, a JSON object a line")
    return Path(given)


def _lines(path: Path) -> list[str]:
    # Not splitlines: JSON strings may hold separators that only Python takes for the end of a line.
    return path.read_text(encoding="utf-8").rstrip("\n").split("\n") if path.stat().st_size else []


def _parsed(line: str, number: int, path: Path, read: Callable[[dict[str, str | int]], Question]) -> Question:
    try:
        return read(json.loads(line))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"line {number} of {path} is not an item of this task: {error!r}") from error


def _piqa(item: dict[str, str | int]) -> Question:
    choices = (str(item["sol1"]), str(item["sol2"]))
    if (answer := item["label"]) not in (0, 1):
        raise ValueError(f"label is {answer!r}, not 0 or 1")
    return Question(f"Question: {item['goal']}\nAnswer:", choices, int(answer))


TASKS: dict[str, tuple[str, Callable[[dict[str, str | int]], Question]]] = {"piqa": ("piqa-valid.jsonl", _piqa)}
