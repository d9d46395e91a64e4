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


def test_the_package_compress_can_be_called_and_imported_from():
    code = (
        "import tilepress, sys\n"
        "from tilepress.compress import magnitude_mask\n"
        "import tilepress.compress as package\n"
        "assert package is tilepress.compress is sys.modules['tilepress.compress'] and callable(package)\n"
        "print(magnitude_mask.__name__, package.__name__, package.__spec__.loader is package.__loader__)"
    )
    assert run(code) == ["magnitude_mask", "tilepress.compress", "True"]


def test_the_attribute_alone_is_enough():
    code = (
        "import tilepress, torch\n"
        "model = torch.nn.Sequential(torch.nn.Linear(32, 16))\n"
        "print(type(tilepress.compress(model, {})[0]).__name__)\n"
        "try: tilepress.nothing\nexcept AttributeError as error: print(str(error).split()[-1])"
    )
    assert run(code) == ["PackedLinear", "'nothing'"]
