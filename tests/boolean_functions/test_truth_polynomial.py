"""The polynomial of a truth table, by evaluating it everywhere."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interp_toolkit.boolean_functions import mobius
from interp_toolkit.errors import InputError

TABLES = st.integers(1, 5).flatmap(lambda k: st.text(alphabet="01", min_size=2**k, max_size=2**k))


@given(table=TABLES)
def test_the_polynomial_takes_the_table_s_values(table):
    terms = mobius(table)
    n_inputs = len(table).bit_length() - 1
    for bits in product((0, 1), repeat=n_inputs):
        value = sum(c for chosen, c in terms.items() if all(bits[k] for k in chosen))
        assert value == int(table[int("".join(map(str, bits)), 2)])
    assert 0 not in terms.values()


def test_known_polynomials():
    assert mobius("0110") == {(0,): 1, (1,): 1, (0, 1): -2}
    assert mobius("01101001") == {
        (0,): 1, (1,): 1, (2,): 1, (0, 1): -2, (0, 2): -2, (1, 2): -2, (0, 1, 2): 4,
    }  # fmt: skip
    assert mobius("0011") == {(0,): 1}  # the first input is the most significant
    assert mobius("1") == {(): 1}
    assert mobius("0000") == {}


@pytest.mark.parametrize("table", ["", "011", "01a0", "0" * 6])
def test_other_tables_are_refused(table):
    with pytest.raises(InputError, match=r"2\^k bits"):
        mobius(table)
