"""What `import tilepress` does, and what it leaves to later."""

import subprocess
import sys


def run(code):
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_importing_is_light():
    code = "import sys, tilepress; print(*(name in sys.modules for name in ('torch', 'transformers', 'pydantic')))"
    assert run(code) == ["False"] * 3


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from tilepress.cli import main; sys.argv = ['tilepress', '--help']\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print('HEAVY', [name for name in ('torch', 'transformers', 'pydantic') if name in sys.modules])"
    )
    assert run(code)[-2:] == ["HEAVY", "[]"]


def test_compress_is_a_function_and_no_package():
    code = (
        "import tilepress, types\n"
        "from tilepress import compress\n"
        "import tilepress.compression\n"
        "print(type(compress) is types.FunctionType, tilepress.compress is compress)"
    )
    assert run(code) == ["True", "True"]


def test_the_attribute_alone_is_enough():
    code = (
        "import tilepress, torch\n"
        "model = torch.nn.Sequential(torch.nn.Linear(32, 16))\n"
        "print(type(tilepress.compress(model, {})[0]).__name__)\n"
        "try: tilepress.nothing\nexcept AttributeError as error: print(str(error).split()[-1])"
    )
    assert run(code) == ["PackedLinear", "'nothing'"]
