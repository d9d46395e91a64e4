"""What a number is: frozen descriptors with a plain reference encode and decode, and fast tensor versions.

Descriptors and names need no torch; what works on tensors is imported when first used.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from .activations import TENSOR_TYPES, Anda, AndaSearch, TensorType, parse_activations, parse_tolerance
from .bfp_format import BFP
from .element import Element
from .floats import BF8, BF16, E2M1, E2M3, E3M2, E4M3, FLOATS, FP16, Float
from .integers import SIGNED, UNSIGNED, Integer
from .names import FormatError, parse, parse_weight, weight_names
from .tables import NF4, Table, read_table
from .weight import SCALE_TYPES, Scaling, WeightFormat

if _TYPE_CHECKING:
    from .tensors import Quantized, decode, dequantize, encode, quantize

__all__ = [
    "BF8", "BF16", "BFP", "E2M1", "E2M3", "E3M2", "E4M3", "FLOATS", "FP16", "NF4", "SCALE_TYPES", "SIGNED",
    "TENSOR_TYPES", "UNSIGNED", "Anda", "AndaSearch", "Element", "Float", "FormatError", "Integer", "Quantized",
    "Scaling", "Table", "TensorType", "WeightFormat", "decode", "dequantize", "encode", "parse", "parse_activations",
    "parse_tolerance", "parse_weight", "quantize", "read_table", "weight_names",
]  # fmt: skip

_OF_TENSORS = ("Quantized", "decode", "dequantize", "encode", "quantize")


def __getattr__(name: str) -> _Any:
    if name not in _OF_TENSORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_import_module(f"{__name__}.tensors"), name)
