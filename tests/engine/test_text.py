"""Tokens to text: held back while what follows can change it."""

import pytest

from tilepress.engine.text import TextStream


def letters(ids):
    return "".join(map(chr, ids))


def as_bytes(ids):
    """Tokens are bytes, as those of byte-level tokenizers may be."""
    return bytes(ids).decode(errors="replace")


def stripped(ids):
    """As of tokenizers that drop the first space."""
    return letters(ids).removeprefix(" ")


def feed(stream, ids):
    """Pieces until the end, and whether a stop ended it."""
    pieces = []
    for token in ids:
        piece, stopped = stream.add(token)
        pieces.append(piece)
        if stopped:
            return pieces, True
    return pieces, False


@pytest.mark.parametrize("text", ["plain", "a long text, longer than a window. " * 9, "żółw 🐢 and 日本語 " * 9])
def test_pieces_are_the_text(text):
    ids = list(text.encode())
    stream = TextStream(as_bytes)
    pieces, stopped = feed(stream, ids)
    assert "".join(pieces) == text and not stopped and stream.rest() == ""


def test_incomplete_characters_are_held_back():
    pieces, _ = feed(TextStream(as_bytes), list("a🐢b".encode()))
    assert pieces == ["a", "", "", "", "🐢", "b"]


def test_incomplete_characters_are_left_out_at_the_end():
    stream = TextStream(as_bytes)
    assert feed(stream, list("a🐢".encode())[:-1])[0] == ["a", "", "", ""] and stream.rest() == ""


def test_spaces_between_tokens_stay():
    text = "many words with spaces " * 9
    assert "".join(feed(TextStream(stripped), map(ord, text))[0]) == text


def test_what_may_be_a_stop_is_held_back():
    pieces, stopped = feed(TextStream(letters, ["END"]), map(ord, "xENyEEND."))
    assert pieces == ["x", "", "", "ENy", "", "E", "", ""] and stopped


def test_what_is_held_back_is_given_at_the_end():
    stream = TextStream(letters, ["END"])
    assert feed(stream, map(ord, "xEN")) == (["x", "", ""], False)
    assert stream.rest() == "EN" and stream.rest() == ""


def test_the_first_of_several_stops_counts_and_stops_may_be_inside_a_token():
    words = ["one two three four", " five"]
    stream = TextStream(lambda ids: "".join(words[token] for token in ids), ["three", "two"])
    assert stream.add(0) == ("one ", True) and stream.rest() == ""


def test_stops_over_the_end_of_a_window():
    text = "0123456789" * 7
    for place in range(20, 60):
        ids = list(map(ord, text[:place] + "STOP" + text[place:]))
        pieces, stopped = feed(TextStream(letters, ["STOP", "TO"]), ids)
        assert stopped and "".join(pieces) == text[:place] + "S"
