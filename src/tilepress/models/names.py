"""What the names of a model's layers say."""

import re

# Linear layers whose weights transformers' code reads by itself: those of Mamba and its kin, and Gemma 3n's.
READ_BY_CODE = ("dt_proj", "prediction_coefs", "correction_coefs")


def pattern(name: str) -> str:
    """A layer's name with * for the number of its block."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", name)
