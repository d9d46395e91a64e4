"""Whether a fact far back in a text is still found through a KV cache: its answer exact, to the token."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .accuracy import are_greedy, encode
from .estimate import Estimate
from .kv_studies import Setting, folded
from .windows import Track, window_length


@dataclass(frozen=True)
class Fact:
    """A text of about so many tokens with a fact in it, and its last words, which are the fact's but for the answer."""

    text: str
    answer: str


NAMES = ("Anna", "Boris", "Clara", "David", "Elena", "Felix", "Greta", "Henry", "Irene", "Jonas", "Karla", "Louis")
PLACES = ("garden", "harbour", "library", "market", "museum", "station", "theatre", "village", "workshop", "castle")
COLOURS = ("black", "blue", "brown", "golden", "green", "grey", "pink", "purple", "red", "silver", "white", "yellow")
THINGS = ("apple", "button", "candle", "hammer", "jacket", "ladder", "mirror", "needle", "pencil", "saddle", "umbrella")


def make_fact(tokenizer: Any, tokens: int, depth: float, seed: int) -> Fact:
    """A text of at most `tokens` tokens with its answer, the fact at `depth` of it: 0 is its beginning, 1 its end."""
    choice = random.Random(seed)
    name, answer = choice.choice(NAMES), f"{choice.choice(COLOURS)} {choice.choice(THINGS)}"
    question = f"The treasure of {name} is the"
    strangers = [other for other in NAMES if other != name]
    sentences: list[str] = []
    length = len(tokenizer(f"{question} {answer}. {question} {answer}")["input_ids"])
    while True:
        sentence = f"{choice.choice(strangers)} walks from the {choice.choice(PLACES)} to the {choice.choice(PLACES)}."
        length += len(tokenizer(" " + sentence, add_special_tokens=False)["input_ids"])
        if length > tokens:
            break
        sentences.append(sentence)
    sentences.insert(round(depth * len(sentences)), f"{question} {answer}.")
    return Fact(" ".join([*sentences, question]), answer)


def retrieval(
    model: Any,
    tokenizer: Any,
    setting: Setting,
    tokens: int,
    items: int,
    batch: int = 1,
    seed: int = 0,
    track: Track = iter,
    *,
    smoothed: Mapping[Setting, Any] | None = None,
) -> Estimate:
    """Share of `items` facts at random depths of texts of `tokens` tokens whose answer greedy decoding would write.

    Nothing is decoded: one pass over a text and its answer tells, `batch` of them at once. Emulation takes every token
    for a decoded one, as a packed cache does, so answers are seen through the cache that decoding would have by then.
    `smoothed`: see `judge`.
    """
    choice = random.Random(seed)
    places = [(choice.random(), choice.randrange(1 << 30)) for _ in range(items)]
    facts = [make_fact(tokenizer, window_length(tokens, [model]), *place) for place in places]
    reader = folded(model, setting, smoothed or {})
    with setting.emulated(reader):
        sequels = [encode(tokenizer, fact.text, f" {fact.answer}") for fact in facts]
        return Estimate.of_share(sum(are_greedy(reader, sequels, batch, track)), items)
