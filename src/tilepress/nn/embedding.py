"""`nn.Embedding` with packed weights, and the output layer that computes with the same matrix."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from ..kernels import embedding
from ..kernels.embedding import check_row_type
from ..tiles import PackedMatrix
from .linear import PackedLinear
from .packed import PackedModule
from .row_scale import RowScale, scale_of


class PackedEmbedding(PackedModule):
    """The rows of a packed matrix [tokens, hidden] that ids [...] on the CPU name, times `scale` if there is one:
    [..., hidden].

    Args:
        matrix: the packed weights.
        dtype: of the rows; a cast of the module, `to(dtype)` say, changes it.
        padding_idx: as that of `nn.Embedding`, for who asks; it has no part in lookups.
        scale: what rows are multiplied by in their type, as transformers' `*ScaledWordEmbedding` do; see `scale_of`.
    """

    def __init__(
        self,
        matrix: PackedMatrix,
        dtype: torch.dtype = torch.float32,
        padding_idx: int | None = None,
        scale: RowScale | None = None,
    ) -> None:
        super().__init__()
        self._begin(matrix.rows, matrix.cols, dtype, padding_idx, scale)
        self._take(matrix)

    @classmethod
    def awaiting(cls, like: nn.Embedding, streams: Mapping[str, torch.dtype]) -> "PackedEmbedding":
        """A module in the place of `like` whose arrays are to be put into its buffers; `complete` it then."""
        module = cls.__new__(cls)
        nn.Module.__init__(module)
        shape, scale = (like.num_embeddings, like.embedding_dim), scale_of(like)
        module._begin(*shape, like.weight.dtype, like.padding_idx, scale)
        return module._await(streams, like.weight.device)

    def _begin(self, rows: int, cols: int, dtype: torch.dtype, padding_idx: int | None, scale: RowScale | None) -> None:
        check_row_type(dtype)
        self.num_embeddings, self.embedding_dim = rows, cols
        self.dtype, self.padding_idx, self.scale = dtype, padding_idx, scale

    @property
    def _shape(self) -> tuple[int, int]:
        return (self.num_embeddings, self.embedding_dim)

    def forward(self, ids: Tensor) -> Tensor:
        rows = self._rows(ids)
        return rows if self.scale is None else self.scale.times(rows)

    def _rows(self, ids: Tensor) -> Tensor:
        matrix = self._whole()
        if torch.compiler.is_compiling():
            rows: Tensor = torch.ops.tilepress.embedding(ids, self.codes, self.handle, *self._shape, self.dtype)
            return rows
        return embedding(ids, matrix, self.dtype)

    def extra_repr(self) -> str:
        return f"{self.matrix}, {self.dtype}"

    def _apply(self, fn: Any, recurse: bool = True) -> "PackedEmbedding":
        cast = fn(torch.empty(0, dtype=self.dtype)).dtype
        check_row_type(cast)
        self.dtype = cast
        if self.scale is not None:
            self.scale = self.scale.cast(fn)
        return self

    def _copied(self) -> "PackedEmbedding":
        return PackedEmbedding(self._whole(), self.dtype, self.padding_idx, self.scale)


class TiedLinear(PackedLinear):
    """The output layer of a model whose embedding gives the logits too: it computes with the embedding's matrix, and
    has nothing but the bias in its own state."""

    is_saved = False

    def __init__(self, embedding: PackedEmbedding, bias: Tensor | None = None, activations: str = "float") -> None:
        nn.Module.__init__(self)
        self._begin(embedding.num_embeddings, embedding.embedding_dim, bias, activations)
        self.matrix = None
        self._tied = (embedding,)  # a tuple hides it from torch: the module has its place elsewhere
        if embedding.matrix is not None:
            self.follow()

    def follow(self) -> None:
        """Compute with the matrix that the embedding has now."""
        self._take(self._tied[0]._whole())

    def _take(self, matrix: PackedMatrix) -> None:
        """`weight` is empty, and says the type of the hidden states that Mamba's code is to give."""
        super()._take(matrix)
        self.register_buffer("weight", torch.empty(0, dtype=self._tied[0].dtype), persistent=False)

    def _apply(self, fn: Any, recurse: bool = True) -> "TiedLinear":
        super()._apply(fn, recurse)
        if self.matrix is not None:
            self.weight = fn(self.weight)
        return self

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, metadata: Any, strict: bool, *reports: list[str]
    ) -> None:
        self.follow()
        self._load_bias(state_dict.get(prefix + "bias"), prefix, *reports)

    def __deepcopy__(self, memo: dict[int, Any]) -> "TiedLinear":
        """Follows the embedding's copy, which is the model's own where all of that is copied."""
        copy = memo[id(self)] = TiedLinear(deepcopy(self._tied[0], memo), self.bias, self.activations)
        return copy.train(self.training)
