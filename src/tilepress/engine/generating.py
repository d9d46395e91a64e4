"""`model.generate` of packed models, in the engine where its arguments permit: greedy batches, and beams."""

import copy
from typing import Any

import torch
from torch import Tensor

from ..nn.fingerprint import weights_state
from .engine import Engine
from .equivalent import cache_of_model, equivalent_runner, is_watched, may_stand_in
from .sampling import Sampling

_ARGUMENTS = {"input_ids", "attention_mask", "max_new_tokens", "max_length", "eos_token_id", "pad_token_id"}
_BEAMS = {"num_beams", "length_penalty", "early_stopping", "num_return_sequences"}
_ARGUMENTS |= {"do_sample", "use_cache", "generation_config"} | _BEAMS
_UNUSED = {"temperature", "top_k", "top_p", "min_p", "typical_p"}  # by greedy decoding
_PLAIN = {"bos_token_id", "eos_token_id", "pad_token_id", "max_length", "max_new_tokens", "transformers_version"}


def generate_in_engine(model: Any) -> None:
    """Let `model.generate` use the engine where it gives the same: all linear layers packed, several sequences without
    holes in their masks, or beams, greedy, nothing but tokens to be returned, and nobody who watches modules."""
    if may_stand_in(model):
        model.generate = _Generating(model)


class _Generating:
    """A model's `generate`."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._engine: Engine | None = None
        self._state: tuple[Any, ...] = ()  # modules and weights that the engine has, and its cache

    def __getstate__(self) -> dict[str, Any]:
        return {"model": self.model, "_engine": None, "_state": ()}

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Generating":
        return _Generating(memo.get(id(self.model), self.model))

    def __call__(self, inputs: Tensor | None = None, *others: Any, **options: Any) -> Any:
        if not others and options.keys() <= _ARGUMENTS:
            ids = options.get("input_ids") if inputs is None else inputs
            config = self._config(options)
            rows = None if config is None else _rows(ids, options.get("attention_mask"), _least(config))
            if ids is not None and rows is not None and config is not None:
                out = self._generate(ids, rows, config)
                if out is not None:
                    return out
        return type(self.model).generate(self.model, inputs, *others, **options)

    def _config(self, options: dict[str, Any]) -> Any:
        """The generation config as transformers would have it; None where it asks for more than the engine gives."""
        own = options.get("generation_config")
        config = copy.deepcopy(self.model.generation_config if own is None else own)
        config.update(**{name: value for name, value in options.items() if name not in ("input_ids", "attention_mask")})
        asked = {name for name, value in config.to_diff_dict().items() if value and not name.startswith("_")}
        greedy = not config.do_sample and config.use_cache is not False
        known = _PLAIN | _UNUSED | _BEAMS | {"do_sample", "use_cache"}
        return config if greedy and (config.num_return_sequences or 1) <= _beams(config) and asked <= known else None

    def _generate(self, ids: Tensor, rows: list[list[int]], config: Any) -> Tensor | None:
        width = ids.shape[1]
        most = config.max_new_tokens
        if most is None:
            most = (config.max_length or 0) - width
        pad = config.pad_token_id
        ends = config.eos_token_id
        ends = [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
        engine = self._current() if most >= 1 and (pad is not None or not ends) else None
        if engine is None or max(map(len, rows)) + most > engine.longest:
            return None
        sampling = _sampling(config, most, frozenset(ends))
        if sampling is None or sampling.computed > engine.scheduler.max_sequences or (sampling.beams > 1 and not ends):
            return None
        streams = [engine.submit(row, sampling) for row in rows]
        try:
            answers = [answer.tokens for stream in streams for answer in stream.wait().answers]
        finally:  # an interrupt leaves nothing to be computed
            for stream in streams:
                stream.cancel()
        if any(answer.error for stream in streams for answer in stream.answers):
            return None
        return _padded(ids.repeat_interleave(sampling.n, 0), answers, _filling(sampling, pad, ends))

    def _current(self) -> Engine | None:
        """An engine with the model's weights and cache as they are; None where there is none such, or modules are
        watched."""
        model = self.model
        state = (list(model.modules()), weights_state(model), *cache_of_model(model), model.training)
        if self._engine is None or state != self._state or is_watched(model):
            runner = equivalent_runner(model)
            self._engine = None if runner is None else Engine(runner, prefix_cache=False)
            self._state = state
        return self._engine


def _beams(config: Any) -> int:
    return config.num_beams or 1


def _least(config: Any) -> int:
    """Sequences that there have to be: transformers computes a single one as fast."""
    return 2 if _beams(config) == 1 else 1


def _sampling(config: Any, most: int, ends: frozenset[int]) -> Sampling | None:
    """None where transformers would look at an option that the engine does not know."""
    try:
        return Sampling(
            max_tokens=most,
            stop_tokens=ends,
            ignore_eos=True,
            n=config.num_return_sequences or 1,
            beams=_beams(config),
            length_penalty=1.0 if config.length_penalty is None else config.length_penalty,
            early_stopping=config.early_stopping or False,
        )
    except ValueError:
        return None


def _filling(sampling: Sampling, pad: int | None, ends: list[int]) -> int:
    """What stands after the ends of answers; for beams, transformers takes an end where padding is 0."""
    return pad or (0 if sampling.beams == 1 else ends[0])


def _padded(prompts: Tensor, answers: list[list[int]], filling: int) -> Tensor:
    """[answers, prompt and longest answer]"""
    width = prompts.shape[1]
    out = prompts.new_full((len(answers), width + max(map(len, answers))), filling)
    out[:, :width] = prompts
    for row, answer in zip(out, answers, strict=True):
        row[width : width + len(answer)] = torch.tensor(answer)
    return out


def _rows(ids: Any, mask: Any, least: int) -> list[list[int]] | None:
    """The tokens of each of at least so many sequences, without padding, which is on the left; None where they are not
    so."""
    if not isinstance(ids, Tensor) or ids.ndim != 2 or len(ids) < least or not ids.shape[1] or not ids.is_cpu:
        return None
    if mask is None:
        return ids.tolist()
    if not isinstance(mask, Tensor) or mask.shape != ids.shape or not bool((mask.diff(dim=1) >= 0).all()):
        return None
    counts = mask.long().sum(1).tolist()
    return [row[len(row) - count :] for row, count in zip(ids.tolist(), counts, strict=True)] if min(counts) else None
