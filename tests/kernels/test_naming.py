"""The naming grammar of native/README.md: an operation's folder, function and registered name are one name."""

import platform
import re
from pathlib import Path

import pytest

from tilepress import _native

NATIVE = Path(__file__).parents[2] / "native"
AREAS = ("attention", "elementwise", "linear", "pack", "quantize")
X86, ARM = {"avx2", "avx512", "avx512_vnni", "avx512_vbmi2", "avx512_bf16", "amx"}, {"neon_dotprod", "neon_i8mm"}
SETS = {"portable", *(ARM if platform.machine() in ("aarch64", "arm64") else X86)}
TYPES = {"f32", "bf16", "f16", "i8", "i32", "u8", "fp", "int", "any", "bfp", "planes", "tiles", "codes", "sparse"}
VERBS = {
    "pack": {"pack", "unpack"},
    "quantize": {"quantize", "dequantize", "convert", "truncate", "quantize_key", "quantize_value", "truncate_key",
                 "truncate_value"},
    "linear": {"linear", "decode", "matmul", "epilogue"},
    "attention": {"attend", "score", "mix", "softmax", "matmul", "expand"},
    "elementwise": {"silu", "softcap", "softmax", "max", "read", "multiply", "peak", "weigh", "select",
                    "exp", "sum", "narrow"},
}  # fmt: skip
VARIANTS = {"tiles", "groups", "pages"}
SOURCES = sorted(path for area in AREAS for path in (NATIVE / area).glob("*/*.cc"))


def named_sets(source: Path) -> list[str]:
    """The instruction sets that a file is compiled for; an emulator's is the portable one."""
    if source.stem != "generic":
        return ["portable" if source.stem == "emulator" else source.stem]
    first = source.read_text().splitlines()[0]
    assert first.startswith("// Compiled for: "), f"{source} does not say what it is compiled for"
    return ["portable" if name == "emulator" else name for name in first.removeprefix("// Compiled for: ").split()]


def fits_grammar(area: str, operation: str) -> bool:
    """verb _ destination [_ source or activations [_ weights [_ variant]]]"""
    verb = max((verb for verb in VERBS[area] if operation.startswith(f"{verb}_")), key=len, default=None)
    if verb is None:
        return False
    words = operation.removeprefix(f"{verb}_").split("_")
    if len(words) > 3 and words[-1] in VARIANTS:
        words = words[:-1]
    return 1 <= len(words) <= 3 and set(words) <= TYPES


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(NATIVE)))
def test_a_file_registers_the_function_that_its_folder_is_named_for(path):
    text = path.read_text()
    assert re.findall(r"TILEPRESS_KERNEL\((\w+)\)", text) == [path.parent.name]
    assert re.search(rf"^[\w:]+ {path.parent.name}\(", text, re.MULTILINE), "it does not define that function"
    assert set(named_sets(path)) <= {"portable", *X86, *ARM}


def test_every_folder_has_a_name_of_the_grammar():
    bad = [path.parent for path in SOURCES if not fits_grammar(path.parent.parent.name, path.parent.name)]
    assert bad == []
    assert not fits_grammar("linear", "linear_span") and not fits_grammar("linear", "blocks_f32_bf16_any")


def test_the_registry_has_what_the_folders_have_and_no_more():
    registered = [(operation, isa, source) for operation, isa, source, _ in _native.registered()]
    expected = [
        (path.parent.name, isa, str(path.relative_to(NATIVE)))
        for path in SOURCES
        for isa in named_sets(path)
        if isa in SETS
    ]
    assert sorted(registered) == sorted(expected)
    assert len({(operation, isa) for operation, isa, _ in registered}) == len(registered)


def test_emulators_say_so():
    emulators = {source for _, _, source, emulator in _native.registered() if emulator}
    assert (
        "linear/linear_f32_bf16_any_tiles/emulator.cc" in emulators
        and "linear/matmul_f32_i8_i8/generic.cc" in emulators
    )
    for_tests = {source for source in emulators if Path(source).stem == "emulator"}
    for source in emulators - for_tests:
        assert "emulator" in (NATIVE / source).read_text().splitlines()[0]


def test_kernels_keep_their_names_from_the_linker():
    """Everything in the areas stands in a nameless namespace; kernel.h says why."""
    for area in (*AREAS, "simd", "matrix_unit"):
        for path in (NATIVE / area).rglob("*.*"):
            text = path.read_text()
            opened = text.count("namespace tilepress {\n")
            assert opened == text.count("namespace tilepress {\nnamespace {\n"), path
