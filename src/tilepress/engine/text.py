"""Tokens to text, a token at a time, up to a text that ends it."""

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]

_WINDOW = 32  # tokens that are decoded at once, at most, as long as all of them are whole characters
_OVERLAP = 8  # tokens before a new one that may change its text, as spaces and joined bytes do
_INCOMPLETE = "�"  # what a decoder writes for the first bytes of a character


class TextStream:
    """Text of an answer, given out as soon as nothing that follows can change it.

    Held back is what may be the beginning of a text that ends the answer, and characters that are not complete.

    Args:
        decode: ids of tokens to text.
        stops: texts that end the answer; they are not given out, and nothing after them.
    """

    def __init__(self, decode: Decode, stops: Sequence[str] = ()) -> None:
        self._decode = decode
        self._stops = stops
        self._window: list[int] = []
        self._decoded = ""  # text of the window that is in `_held` already, or was
        self._held = ""

    def add(self, token: int) -> tuple[str, bool]:
        """Text that can be given out now, and whether the answer ends with it."""
        self._window.append(token)
        text = self._decode(self._window)
        if text.endswith(_INCOMPLETE):
            return "", False
        self._held += text[len(self._decoded) :]
        self._decoded = text
        self._shorten()
        return self._give()

    def rest(self) -> str:
        """What is held back, of an answer that ends for another reason; never characters that are not complete."""
        text, self._held = self._held, ""
        return text

    def _shorten(self) -> None:
        if len(self._window) > _WINDOW:
            self._window = self._window[-_OVERLAP:]
            self._decoded = self._decode(self._window)

    def _give(self) -> tuple[str, bool]:
        places = [place for stop in self._stops if (place := self._held.find(stop)) >= 0]
        if places:
            text, self._held = self._held[: min(places)], ""
            return text, True
        cut = len(self._held) - max((_begun(self._held, stop) for stop in self._stops), default=0)
        text, self._held = self._held[:cut], self._held[cut:]
        return text, False


def _begun(text: str, stop: str) -> int:
    """Characters at the end of a text that `stop` begins with."""
    longest = min(len(text), len(stop) - 1)
    return next((length for length in range(longest, 0, -1) if stop.startswith(text[-length:])), 0)
