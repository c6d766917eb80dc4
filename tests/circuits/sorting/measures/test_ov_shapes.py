"""Shapes of OV tables against closed forms and a general solver."""

import numpy as np
import pytest
import torch
from scipy.optimize import lsq_linear

from interp_toolkit.circuits.sorting.measures.ov_shapes import copy_score, piecewise_fits
from interp_toolkit.errors import InputError


def kinked(n, slope, seed=0):
    """c + b x + slope min(0, i - x), with c and b of each row's own."""
    generator = torch.Generator().manual_seed(seed)
    i, x = torch.arange(n, dtype=torch.float64)[:, None], torch.arange(n, dtype=torch.float64)
    c, b = torch.randn(2, n, 1, generator=generator, dtype=torch.float64)
    return c + b * x + slope * (i - x).clamp(max=0)


@pytest.mark.parametrize("n", [4, 10, 15])
def test_exact_shapes_have_their_kink_and_slope(n):
    fits = piecewise_fits(kinked(n, 2.5))
    np.testing.assert_allclose(fits.r2, 1)
    assert fits.kink[1:-1].tolist() == list(range(1, n - 1))
    assert np.isnan(fits.kink[[0, -1]]).all()
    assert (fits.mean_r2, fits.kink_at_value) == (pytest.approx(1), 1)
    assert fits.kink_r2 == pytest.approx(1)
    assert fits.slope == pytest.approx(2.5)


def test_a_vector_that_all_rows_share_changes_nothing():
    table = torch.randn(9, 9, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    shared = torch.randn(9, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    for bare in (table, kinked(9, 2.0)):
        first, second = piecewise_fits(bare), piecewise_fits(bare + 10 * shared)
        np.testing.assert_allclose(first.r2, second.r2)
        np.testing.assert_array_equal(first.kink, second.kink)
        assert first.slope == pytest.approx(second.slope)


def test_the_bare_functions_of_algorithm_2_fit():
    i = torch.arange(10, dtype=torch.float64)
    fits = piecewise_fits((i[:, None] - i).clamp(max=0))
    assert fits.mean_r2 == pytest.approx(1)
    assert fits.slope == pytest.approx(1)


def test_kinks_the_other_way_are_none():
    fits = piecewise_fits(-kinked(10, 1.0))
    assert fits.slope == 0
    assert np.isnan(fits.kink).all()
    assert fits.kink_at_value == 0
    assert fits.mean_r2 < 1 - 1e-3
    assert fits.kink_r2 == 0


def test_lines_alone_have_no_kink():
    """The fit explains them all, by its lines."""
    fits = piecewise_fits(kinked(10, 0.0))
    assert fits.mean_r2 == pytest.approx(1)
    assert fits.kink_r2 == 0


def test_kinks_elsewhere_are_found_there():
    table = kinked(10, 3.0)[[0, 4, 1, 2, 3, 5, 6, 7, 8, 9]]
    fits = piecewise_fits(table)
    assert fits.r2[1] < 0.999
    assert fits.kink_at_value == pytest.approx(4 / 8)


def test_any_table_is_fitted_as_a_general_solver_does():
    n = 7
    table = torch.randn(n, n, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    table += 0.5 * kinked(n, 1.0)
    fits = piecewise_fits(table)
    x, one = np.arange(n), np.eye(n)
    kink = np.minimum(0.0, x[:, None] - x)
    columns = [np.outer(np.ones(n), row) for row in one]  # v(x)
    columns += [np.outer(row, np.ones(n)) for row in one]  # c_i
    columns += [np.outer(row, x) for row in one]  # b_i
    low = [-np.inf] * len(columns) + [0]
    design = np.stack([c.ravel() for c in [*columns, kink]], axis=1)
    y = table.numpy()
    solved = lsq_linear(design, y.ravel(), bounds=(low, np.inf), tol=1e-14)
    centred = y - y.mean(0)
    centred = centred - centred.mean(1, keepdims=True)
    assert fits.slope == pytest.approx(solved.x[-1], abs=1e-6)
    assert fits.slope > 0
    assert fits.mean_r2 == pytest.approx(1 - 2 * solved.cost / (centred**2).sum(), abs=1e-6)
    bare = lsq_linear(design[:, :-1], y.ravel(), tol=1e-14)  # without the kinks
    assert fits.kink_r2 == pytest.approx(1 - solved.cost / bare.cost, abs=1e-6)
    residual = (y.ravel() - design @ solved.x).reshape(n, n)
    rows = 1 - (residual**2).sum(1) / (centred**2).sum(1)
    np.testing.assert_allclose(fits.r2, rows, atol=1e-5)


def test_what_cannot_be_told_is_not():
    written = piecewise_fits(torch.ones(5, 5))
    assert (written.mean_r2, written.kink_r2, written.kink_at_value) == (None, None, None)
    assert np.isnan(written.r2).all()
    assert piecewise_fits(kinked(3, 1.0)).mean_r2 is None
    assert copy_score(torch.zeros(5, 5)) == 0


def test_copying():
    assert copy_score(torch.eye(6)) == 1
    assert copy_score(torch.eye(6).roll(1, 0)) == 0
    half = torch.eye(6)
    half[:3] = half[:3].roll(1, 0)
    assert copy_score(half, centre=False) == pytest.approx(4 / 6 - 1 / 6)
    shared = torch.eye(6) + torch.tensor([0.0, 0, 5, 0, 0, 0])  # as a position embedding adds
    assert copy_score(shared) == 1
    assert copy_score(shared, centre=False) == pytest.approx(1 / 6)


def test_one_value_has_no_shape():
    with pytest.raises(InputError, match="two values"):
        piecewise_fits(torch.zeros(1, 1))
