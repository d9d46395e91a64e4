"""Answers of a given form: which tokens a JSON schema, a regular expression or a grammar allows next, by llguidance."""

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from .._extras import need_grammar

_STATES = 64  # of answers, whose parsers and masks are kept at most
_THREADS = ThreadPoolExecutor(2, thread_name_prefix="tilepress-grammar")  # none is started before it is needed
_TOKENIZERS: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()  # llguidance's, by how they were made


class GrammarError(ValueError):
    """What was given as a schema, an expression or a grammar is none."""


class Grammar:
    """A form of answers, for `Sampling(mask=…)`. It serves any number of requests at once.

    An answer ends, by one of the tokenizer's end-of-sequence ids, where the form is complete.

    Args:
        text: in llguidance's dialect of Lark; see `json_schema` and `regex` for other forms.
        tokenizer: a fast one of transformers. The first grammar of a tokenizer takes about a second.
        vocabulary: tokens that the model knows; by default as many as the tokenizer.
        eos: ids that end an answer, if not the tokenizer's own.
    """

    def __init__(
        self, text: str, tokenizer: Any, *, vocabulary: int | None = None, eos: Sequence[int] | None = None
    ) -> None:
        need_grammar("a grammar")
        import llguidance

        self.vocabulary = len(tokenizer) if vocabulary is None else vocabulary
        if tokenizer.eos_token_id is None and not eos:
            raise GrammarError(
                "an answer could never end: this tokenizer has no end-of-sequence id, so give some as eos"
            )
        ends = tuple(eos) if eos else (tokenizer.eos_token_id,)
        first = llguidance.LLMatcher(_tokenizer(tokenizer, self.vocabulary, ends), text, log_level=0)
        if first.is_error():
            raise GrammarError(f"this is no form of answers: {first.get_error()}")
        self._lock = Lock()
        self._matchers: OrderedDict[tuple[int, ...], Any] = OrderedDict({(): first})
        self._first = first
        self._masks: OrderedDict[tuple[int, ...], Future[Tensor]] = OrderedDict()

    @classmethod
    def json_schema(cls, schema: Mapping[str, Any] | str, tokenizer: Any, **options: Any) -> "Grammar":
        """JSON that a schema describes; `{}` allows any."""
        need_grammar("a JSON schema")
        import llguidance

        try:
            known = json.loads(schema) if isinstance(schema, str) else dict(schema)
        except ValueError as error:
            raise GrammarError(f"this is no JSON schema: {error}") from error
        return cls(llguidance.LLMatcher.grammar_from_json_schema(known), tokenizer, **options)

    @classmethod
    def regex(cls, pattern: str, tokenizer: Any, **options: Any) -> "Grammar":
        """Text that a regular expression matches from beginning to end."""
        need_grammar("a regular expression")
        import llguidance

        return cls(llguidance.LLMatcher.grammar_from_regex(pattern), tokenizer, **options)

    def prepare(self, tokens: Sequence[int]) -> None:
        """Begin to compute what comes after an answer's tokens, in another thread."""
        key = tuple(tokens)
        with self._lock:
            if key not in self._masks:
                self._masks[key] = _THREADS.submit(self._mask, key)
            if len(self._masks) > _STATES:
                self._masks.popitem(last=False)[1].cancel()

    def __call__(self, tokens: Sequence[int]) -> Tensor:
        """Which tokens may come after an answer's tokens: bool [vocabulary]."""
        key = tuple(tokens)
        with self._lock:
            known = self._masks.get(key)
        return self._mask(key) if known is None else known.result()

    def _mask(self, tokens: tuple[int, ...]) -> Tensor:
        words = torch.zeros((self.vocabulary + 31) // 32, dtype=torch.int32)
        with self._lock:
            matcher = self._matcher(tokens)
            matcher.unsafe_compute_mask_ptr(words.data_ptr(), words.nbytes)
        _check(matcher)
        bits = np.unpackbits(words.numpy().view(np.uint8), count=self.vocabulary, bitorder="little")
        return torch.from_numpy(bits.view(np.bool_))

    def _matcher(self, tokens: tuple[int, ...]) -> Any:
        """After these tokens: kept from before, or that before the last token and one step on."""
        if tokens not in self._matchers:
            known = tokens[:-1] in self._matchers
            matcher = (self._matchers[tokens[:-1]] if known else self._first).deep_copy()
            for token in tokens[-1:] if known else tokens:
                matcher.consume_token(token)
            self._matchers[tokens] = matcher
            if len(self._matchers) > _STATES:
                self._matchers.popitem(last=False)
        self._matchers.move_to_end(tokens)
        return self._matchers[tokens]


def _tokenizer(tokenizer: Any, vocabulary: int, ends: tuple[int, ...]) -> Any:
    import llguidance.hf

    made = _TOKENIZERS.setdefault(tokenizer, {})
    if (vocabulary, ends) not in made:
        try:
            made[vocabulary, ends] = llguidance.hf.from_tokenizer(tokenizer, n_vocab=vocabulary, eos_token=list(ends))
        except ValueError as error:
            raise GrammarError(f"llguidance cannot read this tokenizer: {error}") from error
    return made[vocabulary, ends]


def _check(matcher: Any) -> None:
    if matcher.is_error():
        raise ValueError(f"the grammar cannot go on: {matcher.get_error()}")
