"""What `import tilepress` does, and what it leaves to later."""

import subprocess
import sys

import pytest


def run(code):
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


# Imported by what is used, never by `import tilepress` or `tilepress --help`.
HEAVY = {"torch", "transformers", "numpy", "pydantic", "yaml", "safetensors", "numba", "jinja2"}


def modules_after(code):
    """Names of the modules that are there after `code`, beside those of an interpreter that does nothing."""
    listed = "\nprint('MODULES', *sorted(set(sys.modules) - before))"
    words = run(f"import sys; before = set(sys.modules)\n{code}{listed}")
    return set(words[words.index("MODULES") + 1 :])


def test_importing_is_light():
    modules = modules_after("import tilepress")
    assert not modules & {*HEAVY, "typer", "rich", "importlib.metadata"}
    assert {name for name in modules if name.startswith("tilepress")} == {"tilepress", "tilepress._after_import"}
    assert len(modules) < 40, sorted(modules)


@pytest.mark.parametrize("option, most", [("--version", 200), ("--help", 330)])
def test_the_command_alone_imports_nothing_heavy(option, most):
    code = f"from tilepress.cli import main\nsys.argv = ['tilepress', {option!r}]\ntry: main()\nexcept SystemExit: pass"
    modules = modules_after(code)
    ours = {name for name in modules if name.startswith("tilepress.cli")}
    assert ours == {"tilepress.cli", "tilepress.cli.app", "tilepress.cli.ascii"}
    assert not modules & HEAVY and len(modules) < most, len(modules)


def test_the_version_is_that_of_the_installation():
    code = "import tilepress, importlib.metadata; print(tilepress.__version__, importlib.metadata.version('tilepress'))"
    one, other = run(code)
    assert one == other


def test_compress_is_a_function_that_the_attribute_alone_gives():
    code = (
        "import tilepress, torch, types\n"
        "model = torch.nn.Sequential(torch.nn.Linear(32, 16))\n"
        "print(type(tilepress.compress(model, {})[0]).__name__)\n"
        "try: tilepress.nothing\nexcept AttributeError as error: print(str(error).split()[-1])\n"
        "from tilepress import compress\n"
        "import tilepress.compression\n"
        "print(type(compress) is types.FunctionType, tilepress.compress is compress)"
    )
    assert run(code) == ["PackedLinear", "'nothing'", "True", "True"]
