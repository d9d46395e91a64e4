"""SparAMX: unstructured-sparse weights and KV caches on CPUs with AMX."""

from .cache import CACHE
from .layers import LAYERS
from .models import MODELS
from .pruned import PRUNED

ITEMS = (*LAYERS, *MODELS, *PRUNED, *CACHE)

__all__ = ["ITEMS"]
