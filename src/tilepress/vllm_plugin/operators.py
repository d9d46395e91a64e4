"""Packed layers as operators, for `torch.compile` to leave them as they are.

vLLM keeps compiled graphs on disk and takes them up again in other processes, so nothing in a graph may name a matrix
of this process, as the numbers of `kernels.register` would. A layer is known by the address of its codes: the graph
gets them as an input.
"""

from collections.abc import Sequence
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from ..nn import PackedEmbedding, PackedLinear

_library = torch.library.Library("tilepress", "FRAGMENT")
_library.define("joined_linear(Tensor x, Tensor codes, int rows) -> Tensor")
_library.define("table_rows(Tensor ids, Tensor codes, int cols, ScalarType dtype) -> Tensor")
_linears: WeakValueDictionary[int, "JoinedLinear"] = WeakValueDictionary()
_tables: WeakValueDictionary[int, "Table"] = WeakValueDictionary()


class JoinedLinear(nn.Module):
    """Packed layers with the same inputs; their outputs end to end."""

    def __init__(self, parts: Sequence[PackedLinear]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.rows = sum(part.out_features for part in parts)
        _linears[parts[0].codes.data_ptr()] = self

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            joined: Tensor = torch.ops.tilepress.joined_linear(x, self.parts[0].codes, self.rows)
            return joined
        return self.compute(x)

    def compute(self, x: Tensor) -> Tensor:
        outputs = [part(x) for part in self.parts]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)


class Table(nn.Module):
    """A packed embedding."""

    def __init__(self, table: PackedEmbedding) -> None:
        super().__init__()
        self.table = table
        _tables[table.codes.data_ptr()] = self

    def forward(self, ids: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            size, dtype = self.table.embedding_dim, self.table.dtype
            rows: Tensor = torch.ops.tilepress.table_rows(ids, self.table.codes, size, dtype)
            return rows
        return self.compute(ids)

    def compute(self, ids: Tensor) -> Tensor:
        rows: Tensor = self.table(ids)
        return rows


def _joined_linear(x: Tensor, codes: Tensor, rows: int) -> Tensor:
    return _linears[codes.data_ptr()].compute(x)


def _joined_linear_shape(x: Tensor, codes: Tensor, rows: int) -> Tensor:
    return x.new_empty((*x.shape[:-1], rows))


def _table_rows(ids: Tensor, codes: Tensor, cols: int, dtype: torch.dtype) -> Tensor:
    return _tables[codes.data_ptr()].compute(ids)


def _table_rows_shape(ids: Tensor, codes: Tensor, cols: int, dtype: torch.dtype) -> Tensor:
    return torch.empty((*ids.shape, cols), dtype=dtype, device=ids.device)


_library.impl("joined_linear", _joined_linear, "CPU")
_library.impl("table_rows", _table_rows, "CPU")
torch.library.register_fake("tilepress::joined_linear", _joined_linear_shape, lib=_library)
torch.library.register_fake("tilepress::table_rows", _table_rows_shape, lib=_library)
