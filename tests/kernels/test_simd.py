"""simd.h: every operation on every instruction set of this machine, against plain loops (native/simd/simd_test.cc)."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tilepress import _native

NATIVE = Path(__file__).parents[2] / "native"
SIMD = NATIVE / "simd"
COMPILER = shlex.split(os.environ.get("CXX", "c++"))


def flags() -> dict[str, list[str]]:
    """isas.cmake's variables."""
    variables: dict[str, list[str]] = {}
    for name, text in re.findall(r"^set\((\w+) ([^)]*)\)$", (NATIVE / "isas.cmake").read_text(), re.MULTILINE):
        words = (variables[word[2:-1]] if word.startswith("${") else [word] for word in text.split())
        variables[name] = [flag for flags in words for flag in flags]
    return variables


def generic_sets() -> set[str]:
    """The instruction sets that some generic kernel is compiled for."""
    first_lines = (path.read_text().splitlines()[0] for path in NATIVE.glob("*/*/generic.cc"))
    return {isa for line in first_lines for isa in line.removeprefix("// Compiled for: ").split()}


SETS = [isa for isa in _native.supported_isas() if isa in generic_sets()]


def names(header: Path) -> tuple[set[str], set[str]]:
    """The operations that a header's first comment lists, and those that it defines."""
    listing, _, code = header.read_text().partition("#pragma once")
    operations = re.findall(r"^//   (\S.*?)(?:  |$)", listing.partition("// Memory")[2] or listing, re.MULTILINE)
    documented = {name for entry in operations for name in re.findall(r"(\w+)(?:<\w+>)?\(", entry)}
    return documented, set(re.findall(r"^(?:TILEPRESS_INLINE|inline) [\w<>]+ (\w+)\(", code, re.MULTILINE))


@pytest.mark.parametrize("header", ["simd.h", "math.h"])
def test_a_header_lists_what_it_defines(header):
    documented, defined = names(SIMD / header)
    assert documented == defined


@pytest.mark.skipif(not shutil.which(COMPILER[0]), reason=f"there is no compiler {COMPILER[0]}")
@pytest.mark.parametrize("contraction", ["off", "fast"])
@pytest.mark.parametrize("compiled_for", SETS)
def test_every_operation_gives_what_plain_loops_give(compiled_for, contraction, tmp_path):
    options = [
        *flags()["KERNEL_FLAGS"],
        *flags().get(f"FLAGS_{compiled_for}", []),
        f"-ffp-contract={contraction}",
        "-std=c++20",
    ]
    includes = [f"-I{NATIVE}", f"-I{NATIVE / 'include'}"]
    program = tmp_path / "simd_test"
    source = SIMD / "simd_test.cc"
    subprocess.run([*COMPILER, *options, "-Werror", *includes, str(source), "-o", str(program)], check=True)
    ran = subprocess.run([program], capture_output=True, text=True)
    assert [line for line in ran.stdout.splitlines() if line.startswith("FAILED")] == []
    assert ran.returncode == 0, ran.stderr
    tested = set(re.findall(r"^tested (\w+)$", ran.stdout, re.MULTILINE))
    assert tested == names(SIMD / "simd.h")[0] | names(SIMD / "math.h")[0]
