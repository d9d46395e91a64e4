"""Boolean expressions of Liberty files: `!`, `'`, `^`, `*`, `&`, a blank, `+` and `|`, as their standard ranks them."""

import re
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]

_WORD = re.compile(r"\s*([A-Za-z_][\w\[\]]*|[01]|[!'^*&+|()])")


def variables(text: str) -> set[str]:
    return {word for word in _words(text) if word[0].isalpha() or word[0] == "_"}


def evaluate(text: str, values: Mapping[str, Bools]) -> Bools:
    """Its value for each element of the arrays; ValueError if it is no expression, or names what has no value."""
    words = _words(text)
    unknown = variables(text) - values.keys()
    if unknown:
        raise ValueError(f"the expression {text!r} names {', '.join(sorted(unknown))}, which the cell does not have")
    parser = _Parser(words, values)
    result = parser.alternatives()
    if parser.words:
        raise ValueError(f"{text!r} is no boolean expression")
    return result


def _words(text: str) -> list[str]:
    words, position, text = [], 0, text.rstrip()
    while position < len(text):
        match = _WORD.match(text, position)
        if match is None:
            raise ValueError(f"{text!r} is no boolean expression")
        words.append(match[1])
        position = match.end()
    return words


class _Parser:
    """Recursive descent; a method a rank, the weakest first."""

    def __init__(self, words: list[str], values: Mapping[str, Bools]) -> None:
        self.words, self.values = words, values

    def alternatives(self) -> Bools:
        result = self._product()
        while self._next() in ("+", "|"):
            self.words.pop(0)
            result = result | self._product()
        return result

    def _product(self) -> Bools:
        result = self._difference()
        while (word := self._next()) not in ("", ")", "+", "|", "'", "^"):
            if word in ("*", "&"):
                self.words.pop(0)
            result = result & self._difference()
        return result

    def _difference(self) -> Bools:
        result = self._factor()
        while self._next() == "^":
            self.words.pop(0)
            result = result ^ self._factor()
        return result

    def _factor(self) -> Bools:
        word = self.words.pop(0) if self.words else ""
        if word == "!":
            return ~self._factor()
        if word == "(":
            result = self.alternatives()
            if not self.words or self.words.pop(0) != ")":
                raise ValueError("a bracket of a boolean expression is not closed")
        elif word in ("0", "1"):
            result = np.full_like(next(iter(self.values.values())), word == "1")
        elif word in self.values:
            result = self.values[word]
        else:
            raise ValueError(f"{word or 'the end'} stands where a boolean expression wants a value")
        while self._next() == "'":
            self.words.pop(0)
            result = ~result
        return result

    def _next(self) -> str:
        return self.words[0] if self.words else ""
