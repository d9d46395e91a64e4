"""Options of SparAMX' items on speed, and words that they share."""

from dataclasses import dataclass

LLAMA = "llama3.1-8b"  # has the shape of Llama 3 8B
THEIRS = "Llama 3 8B"
SPARSE = "bf16@50%"
BOTH = f"{SPARSE} int8:row@50%+int8"
GAIN = "speed-up"
FEW_LAYERS = "Of a model as many layers are taken as have so many millions of weights (millions=), with random weights."
FIGURE = "The figure's other values are not in its text."


@dataclass(frozen=True)
class Decoding:
    """A model of which as many layers are taken as have so many `millions` of weights, with a vocabulary cut alike; a
    context of `depth` tokens, and so many tokens `written` after it, `repeats` times."""

    millions: int = 450
    depth: int = 512
    written: int = 6
    repeats: int = 2


def numbers(text: str) -> list[int]:
    """1 8 32, say."""
    try:
        return [int(word) for word in text.split()]
    except ValueError as error:
        raise ValueError(f"{text!r}: write whole numbers with spaces between them") from error


def named(model: str, row: str) -> str:
    """A row of the paper's model as it is, of another with its name."""
    return row if model in (LLAMA, "llama3-8b") else f"{model}, {row}"


def core_text(count: int) -> str:
    return "1 core" if count == 1 else f"{count} cores"


def joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)
