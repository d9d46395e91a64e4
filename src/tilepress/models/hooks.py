"""What later packages do to models."""

from collections.abc import Callable
from typing import Any

once_packed: list[Callable[[Any], None]] = []  # called with each model whose layers are packed now
