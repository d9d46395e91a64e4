import os
import subprocess
import sys

import pytest

from tilepress import kernels


def test_portable_is_supported_everywhere_and_has_every_operation():
    assert kernels.supported_isas()[0] == "portable"
    assert {
        "quantize_any_f32",
        "dequantize_f32_any",
        "pack_tiles_codes",
        "unpack_codes_tiles",
        "read_u8",
    } <= kernels.registered().keys()
    special = {"linear_f32_bf16_any", "linear_f32_f16_any", "quantize_f16_fp"}  # for instructions that others lack
    assert all(isas[-1] == "portable" for name, isas in kernels.registered().items() if name not in special)


@pytest.mark.isas
def test_the_highest_supported_set_is_in_force_unless_the_environment_forces_another():
    assert kernels.active_isa() == (os.environ.get("TILEPRESS_ISA") or kernels.supported_isas()[-1])


def test_a_forced_set_is_in_force_and_nothing_above_it_runs(isa):
    assert kernels.active_isa() == isa
    below = kernels.supported_isas()[: kernels.supported_isas().index(isa) + 1]
    for operation, isas in kernels.registered().items():
        best = next((candidate for candidate in isas if candidate in below), None)
        if best is None:
            with pytest.raises(ValueError, match=f"no kernel for {operation} on {isa}"):
                kernels.chosen(operation)
        else:
            assert kernels.chosen(operation) == best


@pytest.mark.parametrize("name", ["mmx", "PORTABLE", "avx-512"])
def test_an_unknown_set_is_refused_with_the_list(name):
    before = kernels.active_isa()
    with (
        pytest.raises(ValueError, match=f"^{name} is not an instruction set we know; .*here: portable"),
        kernels.forced_isa(name),
    ):
        pass
    assert kernels.active_isa() == before


def test_a_set_of_another_processor_is_refused_with_the_list():
    other = next(isa for isa in ("avx2", "neon_dotprod") if isa not in kernels.supported_isas())
    with (
        pytest.raises(ValueError, match=f"{other} is not supported by this machine; those that work here: portable"),
        kernels.forced_isa(other),
    ):
        pass


def test_forced_sets_nest():
    highest = kernels.active_isa()
    with kernels.forced_isa("portable"):
        with kernels.forced_isa(None):
            assert kernels.active_isa() == highest
        assert kernels.active_isa() == "portable"
    assert kernels.active_isa() == highest


@pytest.mark.parametrize("value", ["portable", "", "mmx"])
def test_the_variable_works_from_outside(value):
    command = [sys.executable, "-c", "from tilepress import _native; print(_native.active_isa())"]  # without torch
    done = subprocess.run(command, env=os.environ | {"TILEPRESS_ISA": value}, capture_output=True, text=True)
    if value == "mmx":
        assert "ValueError: TILEPRESS_ISA=mmx is not an instruction set we know" in done.stderr
    else:
        assert done.stdout.strip() == (value or kernels.active_isa())
