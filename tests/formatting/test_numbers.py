"""Percentages and p-values as texts and tables write them."""

from __future__ import annotations

import pytest

from interp_toolkit.formatting import equals_p, listed, p_cell, percent, percent_ci, with_ci
from interp_toolkit.stats import Share


def test_a_percentage_has_its_interval_in_brackets() -> None:
    assert percent(0.4321) == "43 %"
    assert percent(0.4321, 1) == "43.2 %"
    assert percent_ci(Share(0.18, 0.12, 0.25)) == "18 % [12, 25]"
    assert percent_ci(Share(1.0, 0.9944, 1.0), 2) == "100.00 % [99.44, 100.00]"
    assert percent_ci(Share(-1e-9, -0.004, 0.0)) == "0 % [0, 0]"  # no sign at 0
    assert with_ci(-0.004, -0.006, 0.0) == "0.00 [-0.01, 0.00]"


@pytest.mark.parametrize(
    ("p", "said"),
    [
        (0.0123, "p = 0.012"),
        (1e-10, "p = 1e-10"),  # the bound itself is a value
        (9.9e-11, "p < 1e-10"),
        (0.0, "p < 1e-10"),  # never 0: a fitted tail underflows
        (1.0, "p = 1"),
    ],
)
def test_a_p_value_below_the_bound_is_a_bound(p: float, said: str) -> None:
    assert equals_p(p) == said
    assert equals_p(p, "adjusted p") == f"adjusted {said}"


def test_cells_show_the_same_bound_and_keep_other_values() -> None:
    assert [p_cell(p) for p in (0.0, 0.03, None)] == ["< 1e-10", 0.03, None]


@pytest.mark.parametrize("most", [1, 3])
def test_a_list_never_hides_a_single_name(most):
    for count in range(1, 8):
        names = [f"L0H{n}" for n in range(count)]
        text = listed(names, most)
        shown = [name for name in names if name in text]
        hidden = count - len(shown)
        assert hidden != 1
        assert shown == names[: len(shown)]
        assert (f"{hidden} more" in text) == (hidden > 0)
