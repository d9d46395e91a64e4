"""Linear layers with float activations: within the stated bound of the exact product, by every way there is."""

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiles.cases import FORMATS, matrix

from tilepress import kernels, tiles
from tilepress.formats import Integer, Quantized, Scaling, Table, WeightFormat
from tilepress.kernels import reference
from tilepress.kernels.linear import FLOAT_WAYS

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
EPS = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
SMALLEST = {torch.float32: 2.0**-149, torch.bfloat16: 2.0**-133, torch.float16: 2.0**-24}


def ways(packed):
    """Those that have a kernel on the instruction set in force and take such weights."""
    found = []
    for way in FLOAT_WAYS:
        try:
            kernels.chosen(way)
        except ValueError:
            continue
        takes = {
            "linear_f32_bf16_any_groups": groups_take,
            "linear_f32_i8_int": digits_take,
            "linear_f32_f16_any": halves_take,
        }
        if takes.get(way, lambda packed: True)(packed):
            found.append(way)
    return found


def groups_take(packed):
    group, most_bits = packed.layout.group, 4 if packed.format.has_zero_point else 6
    return group and group < packed.cols and group % 32 == 0 and packed.layout.bits <= most_bits


def digits_take(packed):
    element = packed.format.element
    operand_bits = 8 if isinstance(element, Integer) else 16
    return bool(reference.integer_steps(element) and packed.format.scaling and packed.operand_bits == operand_bits)


def halves_take(packed):
    """Formats that fp16 holds to all its bits, in whole 16-bit tiles, and matrices of which it holds products."""
    element, group, weight = packed.format.element, packed.layout.group, tiles.unpack(packed).abs()
    if packed.operand_bits != 16 or (group and group < packed.cols and group % 32) or not weight.isfinite().all():
        return False
    if element.name in ("fp16", "bf8"):
        return packed.format.scaling is None and bool(weight.max() >= 2**-5)
    if element.bits > 6 or isinstance(element, Integer):
        return element.name == "e4m3"
    values = torch.tensor([abs(element.decode(code)) for code in range(element.codes)])
    zero = element.bits < 6 or (values == 0).any()
    return bool(values[values > 0].min() >= values.max() * 2**-13 and zero)


def integer_table(step, scale):
    """A table of multiples of half of `step`, of which the first is not zero."""
    values = [step * value for value in (-3, 3, 1, -1, 0, 2, -2, 3.5)]
    return WeightFormat(Table("lut4:steps", 4, tuple(values)), Scaling(32, scale))


def activations(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_within_bound(x, packed, bias=None, **options):
    rounds = "f16" in options.get("way", "") and x.dtype == torch.float32
    wanted = expected(x, packed, bias, "bf16" if rounds else options.get("activations", "float"))
    assert_near(kernels.linear(x, packed, bias, **options), x.dtype, *wanted)


def expected(x, packed, bias=None, activations="float"):
    """(The exact product, how far from it a kernel may be.)"""
    exact = reference.linear(x, packed, bias)
    shift = 0 if bias is None else bias.double().abs() * 2.0**-22
    bound = kernels.error_bound(x, tiles.unpack(packed), activations) + shift
    return exact, bound + (exact.abs() + bound) * EPS[x.dtype] + SMALLEST[x.dtype]


def assert_near(y, dtype, exact, bound):
    assert y.dtype == dtype
    wrong = (y.double() - exact).abs() > bound
    assert not wrong.any(), (
        f"{int(wrong.sum())} of {wrong.numel()}: {(y.double() - exact)[wrong][:3]} {bound[wrong][:3]}"
    )


def pack(format, rows, cols, density, seed=0, **options):
    weight = matrix(rows, cols, 1.0 if density is None else density, seed)
    return tiles.pack(weight, format, sparse=density is not None, **options)


@cache
def case(format, density):
    """(Packed weights, bias, [(activations, what to expect if they are taken as float, and as bf16)]): the same for
    every way and every instruction set."""
    packed, bias = pack(format, 37, 150, density), activations(37, seed=1)
    rows = [activations(batch, 150) for batch in (1, 2, 3, 5, 20)]
    return packed, bias, [(x, *(expected(x, packed, bias, taken) for taken in ("float", "bf16"))) for x in rows]


@pytest.mark.parametrize("density", [None, 0.5, 0.0])
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_every_format_by_every_way(format, density, isa):
    packed, bias, rows = case(format, density)
    for way in ways(packed):
        for x, exactly, rounded in rows:
            assert_near(kernels.linear(x, packed, bias, way=way), x.dtype, *(rounded if "f16" in way else exactly))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("format", ["mxfp4", "int4:g32"])
def test_many_rows_are_cut_in_parts_where_blocks_are_few(format, dtype, isa):
    packed = pack(format, 37, 96, None)
    for batch in (150, 1100):
        assert_within_bound(activations(batch, 96, dtype=dtype), packed, threads=4)


@pytest.mark.parametrize("format", ["bf16", "e4m3", "nf4:g64", "int4:g32", "uint4:g32", "int8:row", "mxfp4", "mxfp8"])
def test_float32_has_the_accuracy_of_float32(format, isa):
    """On every instruction set and for any number of rows, unless bf16 is asked for."""
    for density in (None, 0.5):
        packed = pack(format, 48, 320, density)
        for batch in (1, 2, 4, 7, 12, 16, 17, 32, 33, 100):
            x = activations(batch, 320)
            exact = reference.linear(x, packed)
            assert (kernels.linear(x, packed) - exact).abs().max() < 3e-5 * exact.abs().max()
            assert "bf16" not in kernels.linear_kernel(packed, batch).split("/")[0]


@pytest.mark.parametrize("format", ["bf16", "e4m3", "nf4:g64", "int4:g32", "uint4:g32", "int8:row", "mxfp4"])
def test_float32_may_be_rounded_to_bf16_where_that_is_asked_for(format, isa):
    packed = pack(format, 48, 320, None)
    for batch in (1, 3, 16, 40, 100):
        x, bias = activations(batch, 320), activations(48, seed=1)
        y = kernels.linear(x, packed, bias, activations="bf16")
        assert y.dtype == torch.float32
        assert_within_bound(x, packed, bias, activations="bf16")
        kernel = kernels.linear_kernel(packed, batch, activations="bf16")
        assert kernel == kernels.linear_kernel(packed, batch, torch.bfloat16)
        if "bf16" in kernel.split("/")[0]:  # then it is what bf16 activations give, before their results are rounded
            half = kernels.linear(x.to(torch.bfloat16), packed, bias)
            assert torch.equal(y.to(torch.bfloat16), half)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("format", ["bf16", "e4m3", "nf4:g64", "int4:g32", "uint4:g32", "int8:row", "mxfp4"])
def test_a_row_is_the_same_in_any_batch_where_that_is_asked_for(format, dtype, isa):
    for density in (None, 0.5):
        packed = pack(format, 50, 300, density)
        x = activations(70, 300, dtype=dtype)
        with kernels.batch_invariant():
            whole = kernels.linear(x, packed)
            for batch in (1, 2, 3, 5, 8, 17, 33, 64):
                for threads in (1, 3):
                    assert torch.equal(kernels.linear(x[-batch:], packed, threads=threads), whole[-batch:])


@pytest.mark.parametrize("format", ["bf16", "e4m3", "nf4:g64", "int4:g32", "uint4:g32", "int8:row", "mxfp4"])
def test_the_order_of_a_batch_invariant_sum_is_the_reference(format, isa):
    if isa == "portable" and "avx2" in kernels.supported_isas():
        pytest.skip("plain x86-64 has no fused multiply-add")
    packed, bias = pack(format, 20, 150, 0.5), activations(20, seed=1)
    x = activations(9, 150)
    with kernels.batch_invariant():
        assert torch.equal(kernels.linear(x, packed, bias), reference.linear_in_order(x, packed, bias))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 2.0**100])
@pytest.mark.parametrize("dtype", DTYPES[:2])
@pytest.mark.parametrize("format", ["bf16", "fp16", "e4m3", "nf4:g64", "int4:g32", "uint4:g32", "int8:row", "mxfp4"])
def test_what_is_not_finite_or_too_large_stays_in_its_row(format, dtype, bad, isa):
    """Kernels of integers and of fp16 cannot take such a row: others must not be computed otherwise for its sake."""
    for density in (None, 0.5):
        packed = pack(format, 37, 150, density)
        for batch in (2, 3, 4, 16, 33):
            clean = activations(batch, 150, dtype=dtype)
            x = clean.clone()
            x[1, 7] = bad
            y = kernels.linear(x, packed)
            others = torch.arange(batch) != 1
            assert torch.equal(y[others], kernels.linear(clean, packed)[others])
            met = tiles.unpack(packed)[:, 7] != 0
            assert not (y[1, met].abs() < 2.0**80).any()


@pytest.mark.parametrize(("format", "density"), [("mxfp4", None), ("bf16", 0.5), ("int8:row", None)])
def test_many_blocks_share_activations_and_the_last_has_none_beside_it(format, density, isa):
    packed = pack(format, 16 * 8 + 5, 150, density)
    for batch in (2, 16, 20):
        x = activations(batch, 150, dtype=torch.bfloat16)
        assert_within_bound(x, packed, way="linear_f32_bf16_any_tiles", threads=1)


@pytest.mark.parametrize("format", ["bf16", "mxfp4", "int8:row", "uint4:g32"])
def test_few_inputs_in_a_thread_whose_memory_is_new(format, isa):
    """Threads keep memory from call to call: only before it has grown do sanitizers see a write past its end."""
    for cols in (3, 33, 70):
        packed = pack(format, 37, cols, None)
        for way in ways(packed):
            with ThreadPoolExecutor(1) as pool:
                pool.submit(assert_within_bound, activations(20, cols), packed, way=way, threads=1).result()


@pytest.mark.parametrize(
    ("format", "density"), [("mxfp4", None), ("bf16", 0.5), ("e4m3", None), ("int4:g32", None), ("uint4:g32", 0.5)]
)
def test_rows_as_they_were_given_and_nothing_behind_them(format, density, isa):
    packed = pack(format, 16 * 9, 128, density)
    for batch in (2, 16, 17, 32, 40, 48):
        x = torch.full((64, 128), torch.nan, dtype=torch.bfloat16)
        x[:batch] = activations(batch, 128, dtype=torch.bfloat16)
        assert_within_bound(x[:batch], packed, way="linear_f32_bf16_any_tiles")
        if groups_take(packed):
            assert_within_bound(x[:batch], packed, way="linear_f32_bf16_any_groups")


@pytest.mark.parametrize(("format", "density"), [("int4:g32", None), ("int4:g32", 0.5), ("uint4:g64", None)])
def test_rows_give_the_same_as_they_were_given_and_laid_out_in_tiles(format, density, isa):
    packed = pack(format, 16 * 20, 128, density)
    for batch in (3, 16, 21):
        x = activations(batch, 128, dtype=torch.bfloat16)
        ours = [kernels.linear(x, packed, way="linear_f32_bf16_any_groups", threads=threads) for threads in (1, 2)]
        assert torch.equal(*ours)  # one thread has more blocks than pay without laying rows out


@settings(max_examples=250, deadline=None)
@given(
    format=st.sampled_from(FORMATS),
    rows=st.integers(1, 70),
    cols=st.one_of(st.integers(1, 200), st.integers(1000, 5000)),
    batch=st.one_of(st.integers(1, 9), st.sampled_from([16, 17, 33, 40, 70])),
    density=st.sampled_from([None, 0.0, 0.05, 0.5, 1.0]),
    threads=st.integers(1, 9),
    dtype=st.sampled_from(DTYPES),
    way=st.integers(0, len(FLOAT_WAYS)),
    operand_bits=st.sampled_from([None, 16]),
    seed=st.integers(0, 2**32),
)
def test_any_shape(format, rows, cols, batch, density, threads, dtype, way, operand_bits, seed):
    packed = pack(format, rows, cols, density, seed, operand_bits=operand_bits)
    x = activations(batch, cols, seed=seed) / 64  # so that no result leaves float16
    assert_within_bound(x.to(dtype), packed, way=(["", *ways(packed)] * 2)[way], threads=threads)


@pytest.mark.parametrize("density", [None, 0.5])
@pytest.mark.parametrize("dtype", DTYPES)
def test_one_hot_activations_read_single_weights(dtype, density, isa):
    """Nothing can hide in a sum of one product: every weight comes out, rounded at most twice."""
    for format in ("int4:g32", "mxfp4", "e4m3", "bf16", "uint4:g32", "uint2:g64", "uint6:g32", "nf4:g32"):
        packed = pack(format, 33, 70, density)
        for way in ways(packed):
            y = kernels.linear(torch.eye(70, dtype=dtype), packed, way=way)
            assert torch.allclose(y.T.float(), tiles.unpack(packed), rtol=2**-7, atol=1e-30)
            assert ((y.T == 0) == (tiles.unpack(packed) == 0)).all()


@pytest.mark.parametrize("exponent", [-110, -3, 0, 20, 120])
def test_powers_of_two_for_scales_of_any_size(exponent, isa):
    """Large and small ones in one group of one neuron, where all others are moderate: no normal number is rounded."""
    weight = matrix(16 * 8, 150) / 1024
    weight[40, 64:96] *= 2.0**exponent
    packed = tiles.pack(weight, "mxfp4")
    x = torch.eye(150, dtype=torch.bfloat16)
    for way in ways(packed):
        for rows in (x[:4], x[64:80], x[60:90], x):
            y = kernels.linear(rows, packed, way=way, threads=1)
            assert ((y.double() - rows.double() @ tiles.unpack(packed).double().T).abs() < 2.0**-126).all()


def test_bf16_weights_and_activations_lose_nothing_but_in_sums(isa):
    packed = pack("bf16", 40, 64, None)
    x = activations(6, 64, dtype=torch.bfloat16).float()
    exact = reference.linear(x, packed)
    bound = 64 * 2.0**-23 * (x.double().abs() @ tiles.unpack(packed).double().abs().T)
    for way in ways(packed):
        assert ((kernels.linear(x, packed, way=way) - exact).abs() <= bound).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("density", [None, 0.5, 0.02])
@pytest.mark.parametrize(
    "format",
    [
        *("int4:g32", "int8:row", "uint4:g32", "int5:g48", "uint8:g80:bf16", "int2:g16", "mxfp4", "e2m1:g48:fp16"),
        *("e2m1:row", integer_table(1, "bf16"), integer_table(0.25, "e8m0"), integer_table(32, "fp32")),
    ],
    ids=str,
)
def test_digits_are_the_reference_to_the_bit(format, density, dtype, isa):
    packed = pack(format, 37, 150, density)
    for batch in (1, 3, 6):
        x = activations(batch, 150, dtype=dtype) * torch.logspace(-6, 3, 150).to(dtype)  # small beside large
        y = kernels.linear(x, packed, activations(37, seed=1), way="linear_f32_i8_int")
        assert torch.equal(y, reference.linear_digits(x, packed, activations(37, seed=1)).to(dtype))


@pytest.mark.parametrize("size", [2.0**-24, 2.0**-10, 0.03, 0.5, 1.7, 60.0, 400.0, 5e4])
@pytest.mark.parametrize("format", ["e4m3", "bf8", "fp16", "nf4:g32", "mxfp8", "e2m3:g64"])
def test_halves_have_room_for_the_largest_and_the_smallest(format, size, isa):
    """Products of one sign, the largest that there can be, and beside them the smallest."""
    weight = torch.full((32, 96), size)
    weight[5:, 40:] = size / 3
    weight[16:, ::3] *= 2.0**-9
    packed = tiles.pack(weight, format)
    for dtype in (torch.bfloat16, torch.float16):
        x = torch.full((3, 96), 1.99).to(dtype) * torch.tensor([[1.0], [-1.0], [2.0**-12]]).to(dtype)
        x[:, 64:80] *= 2.0**-9
        for way in ways(packed):
            exact = reference.linear(x, packed)
            if exact.abs().max() < torch.finfo(dtype).max:
                assert_within_bound(x, packed, way=way)


@pytest.mark.parametrize(("format", "code"), [("e4m3", 0x7F), ("e4m3", 0xFF), ("bf8", 0x7C), ("bf8", 0xFE)])
@pytest.mark.parametrize("sparse", [False, True])
def test_weights_that_are_no_numbers_pass_through(format, code, sparse, isa):
    codes = torch.full((16, 64), 0x30, dtype=torch.uint8)
    codes[3, 7] = code
    keep = torch.ones(16, 64, dtype=torch.bool) if sparse else None
    packed = tiles.pack_codes(Quantized(codes), format, mask=keep)
    y = kernels.linear(torch.ones(1, 64, dtype=torch.bfloat16), packed)
    assert y.isfinite().sum() == 15 and not y[0, 3].isfinite()
    with pytest.raises(ValueError, match=r"no kernel for|wants weights that fp16 holds"):
        kernels.linear(torch.ones(1, 64), packed, way="linear_f32_f16_any")


def test_halves_serve_a_few_rows_and_no_float32():
    isas = kernels.supported_isas()
    isa = next((name for name in ("amx", "neon_dotprod") if name in isas), None)
    if isa is None:
        pytest.skip("no arithmetic of fp16 here")
    for format in ("e4m3", "bf8", "fp16", "nf4:g64"):
        packed = pack(format, 16, 64, 0.5)
        assert kernels.linear_kernel(packed, 1, torch.bfloat16) == f"linear_f32_f16_any/{isa}"
        assert kernels.linear_kernel(packed, 1, torch.float16) == f"linear_f32_f16_any/{isa}"
        assert "f16_f16" not in kernels.linear_kernel(packed, 1, torch.float32).replace("bf16_bf16", "")
        assert "f16_f16" not in kernels.linear_kernel(packed, 16, torch.bfloat16).replace("bf16_bf16", "")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [2.0**95, 1 - 2.0**-24, 1 - 2.0**-19, 1 - 2.0**-18, 2.0**-101, 2.0**-130, 0.0])
def test_digits_of_the_largest_and_smallest_floats(size, dtype, isa):
    """Beside ones that are just rounded to the next power of two, and just not."""
    packed = pack("int4:g32:fp32", 16, 96, None)
    x = torch.full((2, 96), size).to(dtype) * torch.tensor([[1.0], [-1.0]]).to(dtype)
    x[:, 40:] /= 3
    x[:, ::5] *= 2.0**-9
    y = kernels.linear(x, packed, way="linear_f32_i8_int")
    assert torch.equal(y, reference.linear_digits(x, packed).to(dtype))
    assert_within_bound(x, packed, way="linear_f32_i8_int")


@pytest.mark.parametrize("format", ["bf16", "int4:g32", "mxfp4", "e4m3:g32", "bf16:g32"])
def test_infinite_and_undefined_activations_pass_through(format, isa):
    packed = tiles.pack(torch.full((16, 64), 6.0), format)
    x = torch.zeros(4, 64)
    x[0, 5], x[1, 6], x[2, 7], x[3, 8] = torch.inf, torch.nan, 1.0, 7e28  # the last is nearly 2^96
    for way in ["", *ways(packed)]:
        for rows in (slice(0, 4), slice(0, 2), slice(3, 4)):
            y = kernels.linear(x[rows], packed, way=way)
            exact = x[rows].sum(1, keepdim=True) * 6
            assert torch.allclose(y, exact.expand(-1, 16), rtol=2**-7, equal_nan=True)


def test_the_kernel_that_runs_can_be_asked_for(isa):
    packed = tiles.pack(torch.ones(16, 64), "mxfp4")
    for batch in (1, 4, 16, 512):
        operation, where = kernels.linear_kernel(packed, batch, torch.bfloat16).split("/")
        assert operation in FLOAT_WAYS and where in kernels.registered()[operation]
    integers = tiles.pack(torch.ones(16, 64), "int4:g32")
    assert kernels.linear_kernel(integers, 1, activations="int8").startswith("linear_f32_i8_int/")


def test_an_unknown_way_is_refused_with_the_list():
    packed = tiles.pack(torch.ones(16, 64), "mxfp4")
    listed = "linear_f32_i8_int, .*matmul_f32_f32_f32, matmul_f32_bf16_bf16; not magic"
    with pytest.raises(ValueError, match=listed):
        kernels.linear(torch.ones(1, 64), packed, way="magic")


def test_digits_want_integers():
    for packed in (
        tiles.pack(torch.ones(16, 64), "nf4"),
        tiles.pack(torch.ones(16, 64), "mxfp4", operand_bits=8),
        tiles.pack(torch.ones(16, 64), "int4:g32", operand_bits=16),
    ):
        with pytest.raises(ValueError, match="linear_f32_i8_int wants integer weights in 8-bit tiles"):
            kernels.linear(torch.ones(1, 64), packed, way="linear_f32_i8_int")


def test_sums_of_groups_want_groups_of_whole_tiles():
    packed = tiles.pack(torch.ones(16, 64), "int4:g16")
    with pytest.raises(
        ValueError, match=r"linear_f32_bf16_any_groups wants codes of at most 6 bits.* of a multiple of 32"
    ):
        kernels.linear(torch.ones(1, 64), packed, way="linear_f32_bf16_any_groups")


@pytest.mark.parametrize("density", [0.02, 0.13, 0.5, 0.8])
@pytest.mark.parametrize("format", ["mxfp4", "bf16", "e4m3", "uint4:g32", "fp16", "nf4"])
def test_a_matrix_that_changed_is_refused(format, density, isa):
    packed = pack(format, 16, 2048, density)
    found = ways(packed)
    packed.native  # noqa: B018
    packed.mask.fill_(255)
    for way in found:
        for batch in (1, 20):
            with pytest.raises(RuntimeError, match="the matrix changed while it was used"):
                kernels.linear(torch.ones(batch, 2048), packed, way=way)
