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


class PackedEmbedding(PackedModule):
    """The rows of a packed matrix [tokens, hidden] that ids [...] on the CPU name: [..., hidden].

    Args:
        matrix: the packed weights.
        dtype: of the rows; a cast of the module, `to(dtype)` say, changes it.
        padding_idx: as that of `nn.Embedding`, for who asks; it has no part in lookups.
    """

    def __init__(
        self, matrix: PackedMatrix, dtype: torch.dtype = torch.float32, padding_idx: int | None = None
    ) -> None:
        super().__init__()
        self._begin(matrix.rows, matrix.cols, dtype, padding_idx)
        self._take(matrix)

    @classmethod
    def awaiting(cls, like: nn.Embedding, streams: Mapping[str, torch.dtype]) -> "PackedEmbedding":
        """A module in the place of `like` whose arrays are to be put into its buffers; `complete` it then."""
        module = cls.__new__(cls)
        nn.Module.__init__(module)
        module._begin(like.num_embeddings, like.embedding_dim, like.weight.dtype, like.padding_idx)
        return module._await(streams, like.weight.device)

    def _begin(self, rows: int, cols: int, dtype: torch.dtype, padding_idx: int | None) -> None:
        check_row_type(dtype)
        self.num_embeddings, self.embedding_dim = rows, cols
        self.dtype, self.padding_idx = dtype, padding_idx

    @property
    def _shape(self) -> tuple[int, int]:
        return (self.num_embeddings, self.embedding_dim)

    def forward(self, ids: Tensor) -> Tensor:
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
        return self

    def _copied(self) -> "PackedEmbedding":
        return PackedEmbedding(self._whole(), self.dtype, self.padding_idx)


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

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, metadata: Any, strict: bool, *reports: list[str]
    ) -> None:
        self.follow()
        self._load_bias(state_dict.get(prefix + "bias"), prefix, *reports)

    def __deepcopy__(self, memo: dict[int, Any]) -> "TiedLinear":
        """Follows the embedding's copy, which is the model's own where all of that is copied."""
        copy = memo[id(self)] = TiedLinear(deepcopy(self._tied[0], memo), self.bias, self.activations)
        return copy.train(self.training)
