"""What notes of several papers say."""

from .options import SUBJECT

ABSENT = "its weights are not here"
HERE = (
    f"Ours is {SUBJECT.model} unless told otherwise, with weights as they come (4 bits); the paper's models are larger."
)
