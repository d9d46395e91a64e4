"""SparAMX' items: layers, whole models, pruned models, and caches."""

from .cache import CACHE
from .layers import LAYERS
from .models import MODELS
from .pruned import PRUNED

ITEMS = (*LAYERS, *MODELS, *PRUNED, *CACHE)
