"""The embedding, and the output layer that shares its matrix."""

import copy
import pickle

import pytest
import torch
from torch import nn

from tilepress import kernels, tiles
from tilepress.kernels import reference
from tilepress.nn import PackedEmbedding, TiedLinear
from tilepress.nn.fingerprint import fingerprint

GENERATOR = torch.Generator().manual_seed(0)
WEIGHT, BIAS = torch.randn(48, 64, generator=GENERATOR), torch.randn(48, generator=GENERATOR)
IDS = torch.tensor([[3, 47, 0]])


class Tied(nn.Module):
    """An embedding and, with its matrix, an output layer."""

    def __init__(self, scale=1.0, format="int8:row", activations="float"):
        super().__init__()
        self.embed = PackedEmbedding(tiles.pack(scale * WEIGHT, format))
        self.head = TiedLinear(self.embed, BIAS, activations)

    def forward(self, ids):
        return self.head(self.embed(ids))


def is_one(model):
    arrays = (model.embed.codes, model.head.codes)
    return model.embed.matrix is model.head.matrix and len({array.data_ptr() for array in arrays}) == 1


def test_it_gives_the_rows_of_its_matrix():
    module = PackedEmbedding(tiles.pack(WEIGHT, "int4:g32"), padding_idx=2)
    assert torch.equal(module(IDS), reference.embedding(IDS, module.matrix))
    assert (module.num_embeddings, module.embedding_dim, module.padding_idx) == (48, 64, 2)
    assert "int4:g32" in repr(module) and not list(module.parameters())


def test_a_cast_changes_what_it_gives_and_nothing_else():
    module = PackedEmbedding(tiles.pack(WEIGHT, "int8:row"))
    matrix, rows = module.matrix, module(IDS)
    assert torch.equal(module.to(torch.bfloat16)(IDS), rows.to(torch.bfloat16)) and module.matrix is matrix
    with pytest.raises(TypeError, match=r"an embedding gives float32, bfloat16 or float16, not torch.float64"):
        module.double()
    assert module.dtype == torch.bfloat16


def test_the_output_layer_has_the_matrix_once_and_no_state():
    model = Tied(activations="int8")
    assert is_one(model) and set(model.head.state_dict()) == {"bias"}
    expected = kernels.linear(model.embed(IDS), model.embed.matrix, BIAS, activations="int8")
    assert torch.equal(model(IDS), expected)


def test_the_output_layers_weight_says_the_type_of_its_inputs():
    """Mamba casts hidden states to it."""
    model = Tied()
    assert model.head.weight.dtype == torch.float32
    model.to(torch.bfloat16)
    assert model.head.weight.dtype == torch.bfloat16 == copy.deepcopy(model).head.weight.dtype


def test_state_of_one_model_makes_another():
    first, second = Tied(), Tied(scale=3.0)
    assert not torch.equal(first(IDS), second(IDS))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(IDS), second(IDS)) and is_one(second)
    assert fingerprint(first) == fingerprint(second) != fingerprint(Tied(scale=3.0))


@pytest.mark.parametrize("again", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_shares_one_matrix_too_and_follows_its_own_embedding(again):
    model, other = Tied(), Tied(scale=3.0)
    copied = again(model)
    assert is_one(copied) and torch.equal(copied(IDS), model(IDS))
    copied.load_state_dict(other.state_dict())
    assert torch.equal(copied(IDS), other(IDS)) and not torch.equal(model(IDS), other(IDS))


def test_modules_that_await_their_arrays():
    first, plain = Tied(), nn.Embedding(48, 64, device="meta", dtype=torch.bfloat16)
    streams = {name: array.dtype for name, array in first.embed.matrix.streams.items()}
    second = PackedEmbedding.awaiting(plain, streams)
    head = TiedLinear(second, BIAS)
    for module, given in ((second, IDS), (head, torch.zeros(1, 64))):
        with pytest.raises(RuntimeError, match="no weights were loaded into this layer yet"):
            module(given)
    for name, array in first.embed.state_dict().items():
        setattr(second, name, array.clone())
    second.complete()
    head.follow()
    assert torch.equal(second(IDS), first.embed(IDS).to(torch.bfloat16)) and head.matrix is second.matrix


def test_damaged_state_is_refused():
    model = Tied()
    state = {name: array.clone() for name, array in model.state_dict().items()}
    state["embed.codes"][7] ^= 1
    with pytest.raises(RuntimeError, match=r"embed.codes is damaged: its checksum does not match"):
        model.load_state_dict(state)


def test_a_model_compiles_to_one_graph():
    torch._dynamo.reset()
    model = Tied().eval()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        for ids in (IDS, IDS.expand(2, 3)):
            assert torch.allclose(compiled(ids), model(ids), rtol=1e-5, atol=1e-5)


def test_the_operator_keeps_torchs_rules():
    module = Tied().embed
    arguments = (IDS, module.codes, module.handle, 48, 64, torch.float32)
    checks = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(torch.ops.tilepress.embedding.default, arguments, test_utils=checks)
