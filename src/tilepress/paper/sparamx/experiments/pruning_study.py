"""A model pruned more and more, and what of it is timed and judged: what SparAMX' figure 10 is made of."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from ....bench.model import Entrant, Settings, TransformersWriter
from ....evaluate import Estimate, Windowing, accuracy, beginning, perplexity, read_task, tokenize
from ....models import compress_model
from ....models.texts import TextUnavailableError, read_text
from ....nn import decode_natively
from ...item import NotPossible, Track
from ...options import Checked
from .speed_study import load_here, race


@dataclass(frozen=True)
class PrunedModels:
    """Per cent of zeros → the model, which is as it comes where there are none."""

    models: dict[int, Any]
    tokenizer: Any

    def judge(self, level: int, text: str, task: str, items: int, checked: Checked) -> tuple[Estimate, Estimate]:
        """Perplexity, and accuracy on the first `items` of a task."""
        model, windowing = (
            self.models[level],
            Windowing(window=checked.tokens, limit=checked.windows, begin=beginning(self.tokenizer)),
        )
        try:
            quality = perplexity(model, tokenize(self.tokenizer, read_text(text)), windowing)
            return quality.perplexity, accuracy(model, self.tokenizer, read_task(task)[:items]).plain
        except TextUnavailableError as error:
            raise NotPossible(str(error)) from error

    def speeds(self, track: Track, settings: Settings) -> dict[int, float]:
        """Per cent of zeros → tokens a second of decoding."""
        entrants = [Entrant(str(level), 0, partial(self._load, level), level == 0) for level in self.models]
        rates = race(track, "decoding", entrants, settings, self.models[0].config.vocab_size).decode
        return {level: rates[str(level), 1] for level in self.models}

    def _load(self, level: int, threads: int) -> TransformersWriter:
        return TransformersWriter(self.models[level])


def prune_models(track: Track, name: str, levels: list[int], recipe: dict[str, Any]) -> PrunedModels:
    """`recipe`: what is done beside setting a density; nothing where `levels` has 0 %."""
    models: dict[int, Any] = {}
    try:
        for level in track(levels, "pruning"):
            loaded = load_here(name)
            if level:
                weights = {**recipe["weights"], "density": 1 - level / 100}
                compress_model(loaded.model, {**recipe, "weights": weights}, tokenizer=loaded.tokenizer)
                decode_natively(loaded.model)
            models[level] = loaded.model
    except TextUnavailableError as error:
        raise NotPossible(str(error)) from error
    return PrunedModels(models, loaded.tokenizer)
