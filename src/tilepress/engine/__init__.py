"""Many sequences at once: what a step is given, models that compute it, and the engine that plans it."""

from .engine import Engine
from .sampling import Sampling
from .stats import Stats
from .stream import Answer, Result, Stream

__all__ = ["Answer", "Engine", "Result", "Sampling", "Stats", "Stream"]
