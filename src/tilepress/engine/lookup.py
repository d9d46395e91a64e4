"""Guesses of what comes next, from what the text has said before: prompt look-up."""

from array import array

GRAMS = (4, 3, 2)  # tokens that have to be said again, the most first


def look_up(tokens: "array[int]", most: int) -> tuple[int, ...]:
    """At most `most` tokens: those that came after the last place where the text's last tokens were said before; none
    if there is no such place."""
    data, size = tokens.tobytes(), tokens.itemsize
    for gram in GRAMS:
        at = _last_place(data, data[-gram * size :], size) if len(tokens) > gram else -1
        if at >= 0:
            return tuple(tokens[at + gram : at + gram + most])
    return ()


def _last_place(data: bytes, pattern: bytes, size: int) -> int:
    """The last number, of `size` bytes each, where the pattern begins, but for the one that the data ends with; -1 if
    there is none."""
    at = data.rfind(pattern, 0, len(data) - size)
    while at % size and at >= 0:
        at = data.rfind(pattern, 0, at + len(pattern) - 1)
    return at // size
