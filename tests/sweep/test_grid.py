"""Grids: which points they have, and what is refused."""

from itertools import product

import pytest

from tilepress.sweep import GridError, read_grid

ENGINES = """kind = "simulate deca"
[fixed]
parameters = 28672
[grid]
width = [8, 32]
queue = [2, 8, 16]
"""


@pytest.fixture
def grid_of(tmp_path):
    def read(text):
        (tmp_path / "grid.toml").write_text(text)
        return read_grid(tmp_path / "grid.toml")

    return read


def test_all_combinations_in_order(grid_of):
    grid = grid_of(ENGINES)
    fixed = {"kind": "simulate deca", "parameters": 28672}
    assert list(grid.points) == [fixed | {"width": w, "queue": q} for w, q in product([8, 32], [2, 8, 16])]
    assert len(grid) == 6


def test_a_grid_without_axes_is_one_point(grid_of):
    assert list(grid_of('kind = "compress"\nfixed.model = "m"').points) == [{"kind": "compress", "model": "m"}]


def test_keys_have_dots_in_the_place_of_tables(grid_of):
    dotted = grid_of('kind = "compress"\n[fixed]\nmodel = "m"\n[grid]\nweights.density = [1, 0.5]')
    tables = grid_of('kind = "compress"\n[fixed]\nmodel = "m"\n[grid.weights]\ndensity = [1, 0.5]')
    quoted = grid_of('kind = "compress"\n[fixed]\nmodel = "m"\n[grid]\n"weights.density" = [1, 0.5]')
    assert list(dotted.points) == list(tables.points) == list(quoted.points)
    assert next(dotted.points) == {"kind": "compress", "model": "m", "weights.density": 1}


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "kind is one of compress, simulate deca, simulate compare, not None"),
        ('kind = "paint"', "not 'paint'"),
        ("kind = [1]", r"not \[1\]"),
        ("kind =", "it is not TOML"),
        (ENGINES + "more = 1\n[settings]", r"unknown key settings: a grid has kind, \[fixed\] and \[grid\]"),
        ('kind = "compress"\nfixed = 1', r"fixed is a table: write \[fixed\] above"),
        (ENGINES.replace("[2, 8, 16]", "8"), r"queue in \[grid\] is a list of values"),
        (ENGINES.replace("[2, 8, 16]", "[]"), r"queue in \[grid\] is a list of values"),
        (ENGINES.replace("[2, 8, 16]", "[2, 2]"), r"queue in \[grid\] has a value twice"),
        (ENGINES.replace("parameters = 28672", "width = 8"), r"width is in \[fixed\] and in \[grid\]"),
        (ENGINES.replace("queue", "qeue"), "qeue: there is no such field"),
        (ENGINES.replace("[2, 8, 16]", '["many"]'), "queue: Input should be a valid integer"),
        (ENGINES.replace("[2, 8, 16]", "[0]"), "a degree, a queue and the time to a flush are at least 1"),
        (ENGINES.replace("[8, 32]", "[7]"), "a width divides 512"),
        (ENGINES.replace("parameters = 28672", 'machine = "none"'), "none"),
        (ENGINES.replace("parameters = 28672", 'weights = "int99"'), "int99"),
        (ENGINES.replace("parameters = 28672", "density = 0"), "density: Input should be greater than 0"),
        (ENGINES.replace("parameters = 28672", "bandwidth = -1"), "a bandwidth and a latency are above 0"),
        ('kind = "compress"', "model: is missing"),
        ('kind = "compress"\nfixed.model = "m"\nfixed.weights.formt = "x"', "unknown key weights.formt; did you mean"),
        ('kind = "compress"\nfixed.model = "m"\nfixed.eval.windows = 0', "eval.windows: Input should be greater"),
        ('kind = "compress"\nfixed.model = "m"\nfixed.weights = 1', "weights: Input should be a valid dictionary"),
        ('kind = "compress"\n[fixed]\n"weights" = "x"\n"weights.format" = "y"', "weights is a table, not 'x'"),
        ('kind = "compress"\n[fixed]\n"weights.format" = "x"\n"weights" = "y"', "weights is there twice"),
        ('kind = "simulate compare"\n[grid]\ndesign = ["anda", "nobody"]', "nobody"),
        ('kind = "simulate compare"\nfixed.design = "deca"\nfixed.area = -1', "area is above 0"),
        ('kind = "simulate compare"\nfixed.design = "deca"\nfixed.acts = "x"', "x"),
        ('kind = "compress"\n[grid]\n' + "\n".join(f"{key} = {list(range(99))}" for key in "abc"), "it has 970299"),
        (f"{'a.' * 40}b = 1", "line 1 has more than 32 dots"),
        (" " * 300_000, "larger than"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(grid_of, text, message):
    with pytest.raises(GridError, match=message) as error:
        grid_of(text)
    assert "grid.toml: " in str(error.value) and "\n" not in str(error.value)
