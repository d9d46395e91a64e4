import numpy as np
import pytest
import torch

from tilepress import tiles
from tilepress.formats import parse_weight
from tilepress.hardware import MachineError, read_machine
from tilepress.kernels import active_isa, linear_kernel
from tilepress.roofsurface import Deca, Libxsmm, Nothing, bubbles, parse_decompressor, tile_bytes
from tilepress.roofsurface.decompressors import LIBXSMM_COUNTS, table_lookups
from tilepress.roofsurface.kernels import COUNTS, Kernel, floats_as, isa_of, isas_of, kernel_on

BF8, BF16, MXFP4 = map(parse_weight, ("bf8", "bf16", "mxfp4"))


@pytest.mark.parametrize(
    "format, density, expected", [(BF16, 1, 1024), (BF8, 1, 512), (MXFP4, 1, 272), (BF8, 0.5, 320), (BF16, 0.1, 166.4)]
)
def test_bytes_of_a_tile(format, density, expected):
    assert tile_bytes(format, density) == pytest.approx(expected)


def literal_bubbles(width, lookups, density):
    """Section 6.2's sum, term by term, with the cumulative distribution added up from its definition."""
    from math import comb

    def cumulative(n):
        return sum(comb(width, i) * density**i * (1 - density) ** (width - i) for i in range(min(n, width) + 1))

    spans = range(-(-width // lookups))
    return sum(k * (cumulative((k + 1) * lookups) - cumulative(k * lookups)) for k in spans)


@pytest.mark.parametrize("width, lookups", [(8, 4), (32, 8), (32, 32), (64, 16), (16, 16), (32, 5)])
@pytest.mark.parametrize("density", [0.05, 0.3, 0.5, 0.97])
def test_bubbles_are_the_papers_sum(width, lookups, density):
    assert bubbles(width, lookups, density) == pytest.approx(literal_bubbles(width, lookups, density), abs=1e-12)


def test_bubbles_of_dense_weights():
    assert bubbles(32, 8, 1.0) == 3 and bubbles(32, 5, 1.0) == 6 and bubbles(32, 32, 1.0) == 0


def test_bubbles_are_those_of_real_bitmasks():
    kept = (np.random.default_rng(0).random((20000, 32)) < 0.3).sum(1)
    waits = np.maximum(-(-kept // 8) - 1, 0)
    assert bubbles(32, 8, 0.3) == pytest.approx(waits.mean(), abs=0.02)


def test_an_engine_shares_its_tables_among_narrow_codes():
    engine = Deca(32, 8)
    assert [engine.lookups(bits) for bits in (8, 7, 6, 4, 1, 16)] == [8, 16, 32, 32, 32, 32]
    assert engine.operations(BF8, 1) == 64 and engine.operations(MXFP4, 1) == 16 and engine.operations(BF16, 0.5) == 16
    assert Deca(8, 4).operations(BF8, 1) == 128
    assert [table_lookups(bits) for bits in range(1, 9)] == [4, 4, 4, 4, 4, 4, 2, 1]
    assert Deca() == Deca(32, 8)


def test_libxsmm_has_what_the_paper_says_and_no_more():
    assert Libxsmm().operations(BF8, 0.3) == 142 and Libxsmm().operations(BF16, 1) == 0
    assert Libxsmm(4).rates(read_machine("spr-hbm"))["vector"] == 4 * 280e9
    sparse, dense = (Libxsmm().operations(BF8, density) for density in (0.5, 1))
    assert Libxsmm().operations(MXFP4, 0.5) - Libxsmm().operations(MXFP4, 1) == sparse - dense  # an estimate
    with pytest.raises(ValueError, match="nobody has counted libxsmm's operations for sparse int2:g32"):
        Libxsmm().operations(parse_weight("int2:g32"), 0.5)


def test_every_tile_is_one_matrix_operation():
    for decompressor, vector in ((Nothing(), None), (Deca(), 16), (Libxsmm(), 195)):
        demands = decompressor.demands(MXFP4, 1)
        assert demands["matrix"] == 1 and demands["memory"] == 272 and demands.get("vector") == vector


def test_libxsmm_counts_one_by_one():
    """Literally, so that none changes unseen."""
    counts = {key: count.value for key, count in LIBXSMM_COUNTS.items()}
    assert counts == {(16, True): 100, (8, True): 142, (8, False): 114, (4, False): 195, (4, True): 223}


def test_libxsmm_with_wider_vectors():
    """Section 8.1: a quarter of the operations; of instructions, accesses of a cache line each stay: 3 for 16 rows."""
    normal, wide = Libxsmm(), Libxsmm(vector_bits=2048)
    assert wide.operations(BF8, 0.3) == 142 / 4 and wide.demands(BF8, 0.3)["vector"] == 142 / 4
    assert normal.instructions(BF8, 0.3, 2.7) == pytest.approx(2.7 * 142)
    assert wide.instructions(BF8, 0.3, 2.7) == pytest.approx(48 + (2.7 * 142 - 48) / 4)
    assert wide.instructions(BF16, 1, 2.7) == 0
    machine = read_machine("spr-hbm").changed(vector={"bits": 2048})
    assert wide.rates(machine)["vector"] == 280e9 and parse_decompressor("libxsmm", machine) == wide
    assert parse_decompressor("libxsmm", read_machine("spr-hbm")) == normal
    assert parse_decompressor("libxsmm", read_machine("a100-80gb-pcie")) == normal


def test_libxsmm_with_other_vectors_than_were_counted():
    with pytest.raises(MachineError, match="spr-hbm has vectors of 512 bits; these operations of libxsmm are of 1024"):
        Libxsmm(vector_bits=1024).rates(read_machine("spr-hbm"))
    narrow = read_machine("spr-hbm").changed(vector={"bits": 256})
    with pytest.raises(MachineError, match="vectors of 256 bits; these operations of libxsmm are of 512"):
        Libxsmm().rates(narrow)
    for bits in (256, 768, 0):
        with pytest.raises(ValueError, match=f"counted with AVX-512: vectors have 512 bits or a multiple, not {bits}"):
            Libxsmm(vector_bits=bits)
    with pytest.raises(ValueError, match="not 256"):
        parse_decompressor("libxsmm", narrow)


def test_names():
    assert parse_decompressor("deca") == Deca(32, 8) and parse_decompressor("deca:w64:l64") == Deca(64, 64)
    assert parse_decompressor("none") == Nothing() and parse_decompressor("libxsmm") == Libxsmm()
    assert str(parse_decompressor("deca:w8:l4")) == "deca:w8:l4"
    assert str(parse_decompressor("ops:26.5")) == "ops:26.5" and parse_decompressor("ops:26").count == 26
    for text, message in (("dca", "no decompressor"), ("deca:w33:l8", "a width divides 512"), ("deca:w8:l0", "table")):
        with pytest.raises(ValueError, match=message):
            parse_decompressor(text)


def test_our_kernels():
    kernel = Kernel("linear_f32_i8_int/neon_dotprod", "int8")
    assert kernel.demands(parse_weight("int4:g32"), 0.5) == {"memory": 224, "vector": 176, "front end": 571}
    assert kernel.demands(parse_weight("int4:g32"), 0.1)["vector"] == pytest.approx(150.4)
    assert Kernel("linear_f32_bf16_any_tiles/amx").demands(MXFP4, 1)["matrix"] == 1
    assert Kernel("linear_f32_i8_int/neon_dotprod", "bfp:g32:m8").demands(parse_weight("int4:g32"), 1)["vector"] == 108
    floats = Kernel("linear_f32_i8_int/neon_dotprod").demands(MXFP4, 0.5)
    assert floats["vector"] == pytest.approx(356) and floats["memory"] == 208
    halves = Kernel("linear_f32_i8_int/neon_dotprod", "bf16")
    assert halves.demands(MXFP4, 1)["vector"] == 198
    assert halves.demands(MXFP4, 0.5) == floats  # where bf16 was not counted
    with pytest.raises(ValueError, match=r"was not counted for bf8\+float; there are int4:g32\+int8"):
        Kernel("linear_f32_i8_int/neon_dotprod").demands(BF8, 1)
    with pytest.raises(ValueError, match="there are none of this kernel"):
        Kernel("linear_f32_f32_any/avx2").demands(MXFP4, 1)
    with pytest.raises(ValueError, match="activations are float, bf16, int8 or bfp"):
        Kernel("linear_f32_i8_int/neon_dotprod", "mxfp4").demands(MXFP4, 1)


def test_each_kernel_is_counted_once():
    keys = [(one.kernel, one.weights, one.sparse, one.activations) for one in COUNTS]
    assert len(set(keys)) == len(keys)
    assert all(str(parse_weight(one.weights)) == one.weights for one in COUNTS)


def test_what_was_not_counted_is_said():
    with pytest.raises(ValueError, match=r"nobody has counted 7 rows of int4:g32\+int8 on amx, only 1 and 16"):
        kernel_on("amx", parse_weight("int4:g32"), 1, "int8", 7)
    with pytest.raises(ValueError, match=r"nobody has counted 1 rows of sparse mxfp4\+int8 on neon_dotprod$"):
        kernel_on("neon_dotprod", MXFP4, 0.5, "int8", 1)


def test_the_instruction_set_of_a_machine_by_its_vectors():
    spr = read_machine("spr-ddr")
    assert isa_of(spr) == "amx"
    assert isa_of(spr.changed(matrix={"rows": 1})) == "avx512_bf16"
    assert isa_of(spr.changed(vector={"bits": 128})) == "neon_dotprod"
    with pytest.raises(MachineError, match="none of our kernels was counted for vectors of 256 bits, as spr-ddr has"):
        isa_of(spr.changed(vector={"bits": 256}))


NAMES = {"bfp7": "bfp:g32:m7", "bfp8": "bfp:g32:m8"}
COUNTED_ON = ("neon_dotprod", "avx512_vnni", "amx")  # with all that goes with them
HERE = [one for one in COUNTS if active_isa() in COUNTED_ON and one.isa in isas_of(active_isa())]


@pytest.mark.parametrize("count", HERE, ids=lambda one: f"{one.weights}-{one.sparse}-{one.activations}-{one.rows}")
def test_of_counted_kernels_the_one_that_runs_here_is_known(count):
    format, activations = parse_weight(count.weights), NAMES.get(count.activations, count.activations)
    matrix = tiles.pack(torch.ones(16, 256), format, sparse=count.sparse)
    dtype = torch.bfloat16 if active_isa() == "amx" or activations == "bf16" else torch.float32
    taken = "float" if activations == "bf16" else activations
    runs = linear_kernel(matrix, count.rows, dtype, activations=taken)
    result = kernel_on(active_isa(), format, 0.5 if count.sparse else 1, floats_as(taken, dtype), count.rows)
    assert result.name == runs
