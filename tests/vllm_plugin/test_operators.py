"""Packed layers as operators: the same numbers as plain layers give, compiled or not."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tilepress.nn import PackedEmbedding, PackedLinear
from tilepress.tiles import pack, unpack
from tilepress.vllm_plugin.operators import JoinedLinear, Table

ROWS = (32, 16, 48)


def joined():
    return JoinedLinear([PackedLinear(pack(torch.randn(rows, 64), "int4:g32")) for rows in ROWS])


def expected(layer, x):
    return torch.cat([F.linear(x, unpack(part.matrix)) for part in layer.parts], -1)


@pytest.mark.parametrize("batch", [1, 5])
def test_outputs_stand_end_to_end(batch):
    layer, x = joined(), torch.randn(batch, 64)
    torch.testing.assert_close(layer(x), expected(layer, x), rtol=1e-4, atol=1e-4)


def test_an_operator_gives_what_the_layer_gives():
    layer, x = joined(), torch.randn(3, 64)
    assert torch.equal(torch.ops.tilepress.joined_linear(x, layer.parts[0].codes, sum(ROWS)), layer(x))


def test_a_table_gives_rows():
    weight = torch.randn(40, 64)
    table = Table(PackedEmbedding(pack(weight, "int8:row"), torch.bfloat16))
    ids = torch.tensor([[3, 0], [39, 3]])
    rows = unpack(table.table.matrix)[ids].bfloat16()
    assert torch.equal(table(ids), rows)
    assert torch.equal(torch.ops.tilepress.table_rows(ids, table.table.codes, 64, torch.bfloat16), rows)


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = Table(PackedEmbedding(pack(torch.randn(40, 64), "int8:row")))
        self.first, self.second = joined(), joined()

    def forward(self, ids):
        x = self.table(ids)
        return self.first(x) + self.second(x)


def test_a_compiled_graph_has_no_matrix_of_one_process_in_it():
    """The same graph computes another model of the same shape."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph.code)
        return graph.forward

    ids = torch.tensor([3, 1, 2])
    with torch.no_grad():
        for _ in range(2):
            torch._dynamo.reset()
            model = Tiny()
            assert torch.equal(torch.compile(model, backend=backend, fullgraph=True)(ids), model(ids))
    assert graphs[0] == graphs[1] and "joined_linear" in graphs[0] and "table_rows" in graphs[0]
