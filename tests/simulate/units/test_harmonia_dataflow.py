"""Orders of tiles: walked, they read what the paper's formulas say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilepress.simulate.units.harmonia_dataflow import Order, Product, better_order, external_reads, visits

sizes = st.integers(1, 40)


@given(st.builds(Product, sizes, sizes, sizes, sizes, sizes), st.sampled_from(list(Order)))
def test_every_tile_once_and_the_formula(product, order):
    found = list(visits(product, order))
    rows, columns = -(-product.rows // product.tile_rows), -(-product.columns // product.tile_columns)
    places = [(visit.row, visit.column) for visit in found]
    inner = (lambda place: (place[1], place[0])) if order is Order.column else (lambda place: place)
    assert places == sorted(((r, c) for r in range(rows) for c in range(columns)), key=inner)
    assert sum(visit.read_a + visit.read_b for visit in found) == external_reads(product, order)
    assert external_reads(product, better_order(product)) == min(external_reads(product, one) for one in Order)


def test_few_rows_want_to_stay_and_many_do_not():
    """As the formulas have it; section IV-D says the reverse."""
    few, many = (Product(tokens, 4096, 4096, 64, 128) for tokens in (8, 65536))
    assert external_reads(few, Order.column) == 32 * 8 * 4096 + 4096 * 4096
    assert external_reads(many, Order.row) == 1024 * 4096 * 4096 + 65536 * 4096
    assert better_order(few) is Order.row and better_order(many) is Order.column


def test_tall_tiles_want_rows_to_stay_however_many_there_are():
    products = [Product(tokens, 4096, 4096, 128, 64) for tokens in (1, 128, 4096, 1 << 20)]
    assert {better_order(product) for product in products} == {Order.row}


def test_sizes_are_positive():
    with pytest.raises(ValueError, match="inner must be at least 1, got 0"):
        Product(1, 0, 1, 1, 1)
