"""Separability against exact arithmetic, against closed forms, and against what must not matter."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from interp_toolkit.errors import InputError
from interp_toolkit.probes.estimators import hulls
from interp_toolkit.probes.estimators.separability import (
    TOLERANCES,
    Certificate,
    Hyperplane,
    Separability,
    check_separability,
)

Points = list[tuple[int, ...]]


# --- independent truth: rational arithmetic ------------------------------------------------------


def null_space(rows: list[list[Fraction]]) -> list[list[Fraction]]:
    """A basis of {x: rows @ x = 0}, by Gauss-Jordan in rational arithmetic."""
    rows, n = [list(row) for row in rows], len(rows[0])
    pivots: list[int] = []
    for column in range(n):
        pivot = next((i for i in range(len(pivots), len(rows)) if rows[i][column] != 0), None)
        if pivot is None:
            continue
        top = len(pivots)
        rows[top], rows[pivot] = rows[pivot], rows[top]
        rows[top] = [value / rows[top][column] for value in rows[top]]
        for i in range(len(rows)):
            if i != top and rows[i][column] != 0:
                factor = rows[i][column]
                rows[i] = [a - factor * b for a, b in zip(rows[i], rows[top], strict=True)]
        pivots.append(column)
    basis = []
    for free in (c for c in range(n) if c not in pivots):
        vector = [Fraction(0)] * n
        vector[free] = Fraction(1)
        for row, pivot in zip(rows, pivots, strict=False):
            vector[pivot] = -row[free]
        basis.append(vector)
    return basis


def hulls_meet(positive: Points, negative: Points) -> bool:
    """Whether two hulls of integer points meet, exactly (Kirchberger's theorem, 1903).

    If they do, they do already on some affinely minimal dependent set of at most d + 2 points,
    whose only dependency then has one sign on the positives and the other on the negatives.
    """
    points = [(p, 1) for p in positive] + [(p, -1) for p in negative]
    d = len(positive[0])
    for size in range(2, d + 3):
        for subset in combinations(points, size):
            rows = [[Fraction(p[i]) for p, _ in subset] for i in range(d)]
            rows.append([Fraction(1)] * size)
            basis = null_space(rows)
            if len(basis) == 1:
                signs = {(v > 0) - (v < 0) for v in basis[0]}
                sides = [side for _, side in subset]
                agree = {(v > 0) == (side > 0) for v, side in zip(basis[0], sides, strict=True)}
                if 0 not in signs and len(agree) == 1:
                    return True
    return False


def witnessed(verdict: Separability, positive: np.ndarray, negative: np.ndarray) -> None:
    """Whatever is claimed is shown, on the points as given."""
    if verdict.status == "separable":
        assert verdict.hyperplane is not None
        gap = verdict.hyperplane.verify(positive, negative)
        assert gap == pytest.approx(verdict.margin, rel=1e-6)
        assert gap > 0.999 * verdict.tolerance
    elif verdict.status == "not_separable":
        assert verdict.certificate is not None
        assert verdict.hyperplane is None
        residual = verdict.certificate.verify(positive, negative)
        assert residual <= verdict.tolerance
    else:
        assert verdict.certificate is None
        assert verdict.hyperplane is None
        assert verdict.reason


@st.composite
def two_classes(draw: st.DrawFn, d: int, most: int = 5) -> tuple[Points, Points]:
    point = st.tuples(*[st.integers(-4, 4)] * d)
    return (
        draw(st.lists(point, min_size=1, max_size=most)),
        draw(st.lists(point, min_size=1, max_size=most)),
    )


@pytest.mark.parametrize("d", [1, 2, 3])
def test_agrees_with_rational_arithmetic_on_integer_points(d: int) -> None:
    @settings(max_examples=150, derandomize=True)
    @given(two_classes(d))
    def check(classes: tuple[Points, Points]) -> None:
        positive, negative = (np.array(c, dtype=float) for c in classes)
        verdict = check_separability(positive, negative)
        expected = "not_separable" if hulls_meet(*classes) else "separable"
        assert verdict.status == expected
        witnessed(verdict, positive, negative)

    check()


def test_agrees_with_a_fine_sweep_of_directions_in_the_plane() -> None:
    rng = np.random.default_rng(0)
    angles = np.linspace(0, 2 * np.pi, 20_000, endpoint=False)
    directions = np.stack([np.cos(angles), np.sin(angles)])
    seen = {"separable": 0, "not_separable": 0}
    for _ in range(60):
        positive, negative = rng.normal(size=(2, 4, 2)) + np.array([[[0.7, 0]], [[-0.7, 0]]])
        gaps = (positive @ directions).min(axis=0) - (negative @ directions).max(axis=0)
        verdict = check_separability(positive, negative)
        assert verdict.status == ("separable" if gaps.max() > 0 else "not_separable")
        witnessed(verdict, positive, negative)
        if gaps.max() > 0:  # and the margin is the widest there is
            step = (angles[1] - angles[0]) * verdict.scale
            assert gaps.max() * (1 - 1e-12) <= verdict.margin <= gaps.max() + step
        seen[verdict.status] += 1
    assert min(seen.values()) > 10


real_classes = st.integers(1, 4).flatmap(
    lambda d: st.tuples(
        *[
            st.lists(
                st.lists(st.floats(-3, 3, width=32), min_size=d, max_size=d), min_size=1, max_size=6
            )
        ]
        * 2
    )
)


@settings(max_examples=150, derandomize=True)
@given(real_classes, st.randoms(use_true_random=False), st.floats(1e-3, 1e3))
def test_what_must_not_change_a_verdict(classes, random, factor) -> None:
    positive, negative = (np.array(c, dtype=float) for c in classes)
    verdict = check_separability(positive, negative)
    witnessed(verdict, positive, negative)
    order = random.sample(range(len(positive)), len(positive))
    permuted = check_separability(positive[order], negative[::-1])
    doubled = check_separability(np.repeat(positive, 2, axis=0), np.vstack([negative] * 3))
    assert permuted.status == doubled.status == verdict.status
    assert permuted.margin == doubled.margin == verdict.margin
    # At the very floor, rounding by an odd factor may decide; there is no 'verdict' to keep.
    assume(abs(verdict.margin - verdict.tolerance) > 1e-3 * verdict.tolerance)
    scaled = check_separability(factor * positive, factor * negative)
    assert scaled.status == verdict.status
    assert check_separability(2.0**40 * positive, 2.0**40 * negative).status == verdict.status
    swapped = check_separability(negative, positive)
    assert swapped.status == verdict.status


@pytest.mark.parametrize("precision", list(TOLERANCES))
def test_a_shift_blurs_a_verdict_but_never_flips_it(precision: str) -> None:
    dtype = getattr(torch, precision)
    rng = np.random.default_rng(1)
    sure = {"separable": 0, "not_separable": 0}
    for i in range(80):
        d = int(rng.integers(1, 6))
        positive, negative = rng.normal(size=(2, 4, d))
        if i % 2:
            positive[:, 0] += 5 * 10.0 ** rng.uniform(-3, 0)
        before = check_separability(positive, negative, precision=precision).status
        for size in (1.0, 1e2, 1e4, 1e8):
            if precision == "float16" and size > 1e4:
                break  # its largest number is 65504
            shift = size * rng.normal(size=d)
            moved = [torch.tensor(x + shift).to(dtype) for x in (positive, negative)]
            after = check_separability(*moved).status
            rounded = [m.double().numpy() - shift for m in moved]
            pairs = zip(rounded, (positive, negative), strict=True)
            distance = max(abs(r - x).max() for r, x in pairs)
            if distance < 1e-9:  # rounding left the points where they were
                assert {before, after} != {"separable", "not_separable"}
                sure[after] = sure.get(after, 0) + 1
        exact = check_separability(positive + 1e6, negative + 1e6, precision=precision).status
        assert {before, exact} != {"separable", "not_separable"}
    if precision == "float64":
        assert min(sure["separable"], sure["not_separable"]) > 20


def test_hulls_that_only_touch_are_not_separable() -> None:
    segment = np.array([[0.0, 0.0], [2.0, 0.0]])
    tip = np.array([[1.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
    verdict = check_separability(segment, tip)
    assert verdict.status == "not_separable"
    np.testing.assert_allclose(verdict.certificate.positive_weights, [0.5, 0.5], atol=1e-9)
    np.testing.assert_allclose(verdict.certificate.negative_weights, [1, 0, 0], atol=1e-9)


def test_a_tiny_gap_in_float64_is_found_and_in_float32_is_not_claimed() -> None:
    square = np.array([[0.0, 0, 0], [1, 1, 0]]), np.array([[1.0, 0, 1e-9], [0, 1, 1e-9]])
    fine = check_separability(*square)
    assert fine.status == "separable"
    assert fine.margin == pytest.approx(1e-9)
    coarse = check_separability(*square, precision="float32")
    assert coarse.status == "not_separable"
    assert coarse.certificate.verify(*square) == pytest.approx(1e-9, rel=1e-3)


def test_the_certificate_of_crossing_segments_is_their_crossing() -> None:
    verdict = check_separability([[0.0, 0.0], [4.0, 0.0]], [[1.0, 1.0], [1.0, -3.0]])
    np.testing.assert_allclose(verdict.certificate.positive_weights, [0.75, 0.25], atol=1e-12)
    np.testing.assert_allclose(verdict.certificate.negative_weights, [0.75, 0.25], atol=1e-12)


def test_the_margin_is_the_distance_between_the_hulls() -> None:
    verdict = check_separability([[3.0, 4.0], [6.0, 8.0]], [[0.0, 0.0], [-1.0, -1.0]])
    assert verdict.margin == pytest.approx(5.0, rel=1e-9)
    np.testing.assert_allclose(verdict.direction, [0.6, 0.8], atol=1e-6)
    assert verdict.threshold == pytest.approx(2.5, rel=1e-6)


def test_the_same_activation_under_both_labels_is_a_contradiction() -> None:
    verdict = check_separability([[1.0, -0.0], [5.0, 1.0]], [[1.0, 0.0], [-3.0, 2.0]])
    assert verdict.status == "not_separable"
    assert verdict.contradictions == 1
    assert verdict.certificate.residual == 0
    assert verdict.n_points == 3


def test_all_activations_equal() -> None:
    verdict = check_separability(np.ones((3, 2)), np.ones((1, 2)))
    assert (verdict.status, verdict.affine_dim, verdict.n_points) == ("not_separable", 0, 1)


def test_many_points_both_ways() -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(1500, 40))
    labels = rng.random(1500) < 0.5
    random = check_separability(X[labels], X[~labels])
    assert random.status == "not_separable"
    assert random.certificate.verify(X[labels], X[~labels]) < 1e-13 * random.scale
    assert random.chance < 1e-100
    planted = X @ rng.normal(size=40)
    apart = check_separability(X[planted > 0.1], X[planted < -0.1])
    assert apart.status == "separable"


def test_cover_half_at_twice_the_dimension() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(22, 10))
    statuses = []
    for _ in range(400):
        labels = rng.random(22) < 0.5
        if labels.any() and not labels.all():
            verdict = check_separability(X[labels], X[~labels])
            statuses.append(verdict.status == "separable")
    assert verdict.chance == pytest.approx(0.5)
    assert np.mean(statuses) == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(len(statuses)))


def test_the_linear_programme_alone_settles_both_cases() -> None:
    """The fast paths are not allowed to hide a broken last resort."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(60, 5))
    labels = rng.random(60) < 0.5
    proposal = hulls.linear_programme(X, labels)
    weights = hulls.polish(X, labels, proposal.weights)
    certificate = Certificate(weights[labels], weights[~labels], np.inf)
    assert certificate.verify(X[labels], X[~labels]) < 1e-14
    side = X[:, 0] + 0.1 * X[:, 1] > 0
    proposal = hulls.linear_programme(X, side)
    plane = Hyperplane(proposal.direction, 0.0, 0.0)
    assert plane.verify(X[side], X[~side]) > 1e-3


def test_a_stopped_linear_programme_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hulls, "logistic_proposals", lambda points, positive: iter(()))
    monkeypatch.setattr(hulls, "linear_programme", lambda points, positive: None)
    rng = np.random.default_rng(5)
    X = rng.normal(size=(150, 10))
    labels = rng.random(150) < 0.5
    verdict = check_separability(X[labels], X[~labels])
    assert verdict.status == "undecided"
    assert "stopped" in verdict.reason


def test_wrong_witnesses_do_not_verify() -> None:
    positive, negative = np.array([[1.0, 0.0]]), np.array([[0.0, 0.0]])
    assert Hyperplane(np.array([-1.0, 0.0]), 0.0, 1.0).verify(positive, negative) == -1
    assert Certificate(np.ones(1), np.ones(1), 0.0).verify(positive, negative) == 1
    with pytest.raises(InputError, match="not convex"):
        Certificate(np.array([2.0]), np.ones(1), 0.0).verify(positive, negative)
    with pytest.raises(InputError, match="not convex"):
        Certificate(np.array([1.5, -0.5]), np.ones(1), 0.0).verify(np.eye(2), negative)


def test_tensors_and_precision() -> None:
    x = torch.tensor([[1.0, 0.0]], dtype=torch.bfloat16)
    verdict = check_separability(x, -x)
    assert verdict.tolerance == pytest.approx(0.01)
    assert check_separability(x.float(), -x).tolerance == pytest.approx(0.01)
    assert check_separability(np.eye(2, dtype=np.float32), [[0.5, 0.5]]).tolerance == pytest.approx(
        1e-5
    )


@pytest.mark.parametrize(
    ("positive", "negative"),
    [
        (np.zeros((0, 2)), np.ones((1, 2))),
        (np.ones((1, 2)), np.ones((1, 3))),
        (np.ones(2), np.ones((1, 2))),
        (np.full((1, 2), np.nan), np.ones((1, 2))),
        (np.zeros((2, 0)), np.zeros((1, 0))),
        (np.array([["a"]]), np.ones((1, 1))),
        (np.array([[1j]]), np.ones((1, 1))),
        (torch.ones(1, 2).to(torch.float8_e4m3fn), np.ones((1, 2))),
    ],
)
def test_bad_input_is_named(positive: np.ndarray, negative: np.ndarray, texts) -> None:
    with pytest.raises(InputError, check=texts):
        check_separability(positive, negative)
    with pytest.raises(InputError, match="precision 'int8'"):
        check_separability(np.ones((1, 1)), np.zeros((1, 1)), precision="int8")


def test_extreme_sizes() -> None:
    for size in (5e-324, 1e-300, 1e300, 1e308):
        verdict = check_separability([[size, 0.0]], [[0.0, size]])
        assert verdict.status == "separable"
        assert verdict.margin == pytest.approx(np.sqrt(2) * size)


def test_a_certificate_is_not_verified_by_rounding_alone() -> None:
    """Far from the origin two combinations 0.05 apart agree in every digit that is left."""
    P = np.array([[2, 2, 0, 2], [1, 0, 0, 1]], dtype=float)
    N = np.array([[-3, 1, 1, -3], [-3, -3, 1, -3], [-3, -3, -2, -3], [3, 1, 3, 3], [0, -1, -2, 0]])
    assert check_separability(P, N).status == "separable"
    for shift in (1e12, 1e13, 1e14, 1e15):  # the sums are exact: integers below 2^53
        assert check_separability(P + shift, N + shift).status != "not_separable"
    half = np.array([0.5, 0.5])
    apart = Certificate(half, half, np.inf).verify(
        np.array([[1e15], [1e15]]), np.array([[1e15], [1e15 + 0.125]])
    )
    assert apart == pytest.approx(0.0625)


def test_witnesses_verify_on_tensors_and_lists_too() -> None:
    positive, negative = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 0.0]])
    plane = check_separability(positive, negative).hyperplane
    assert plane.verify(positive.bfloat16(), negative.tolist()) == 1
    met = check_separability(positive, positive).certificate
    assert met.verify(positive, positive.tolist()) == 0


def test_polishing_takes_a_solver_s_weights_to_rounding() -> None:
    rng = np.random.default_rng(6)
    X = rng.normal(size=(200, 8))
    labels = rng.random(200) < 0.5
    exact = check_separability(X[labels], X[~labels]).certificate
    rough = np.empty(200)
    rough[labels], rough[~labels] = exact.positive_weights, exact.negative_weights
    rough *= 1 + 1e-4 * rng.normal(size=200)
    rough[labels] /= rough[labels].sum()
    rough[~labels] /= rough[~labels].sum()
    assert Certificate(rough[labels], rough[~labels], np.inf).verify(X[labels], X[~labels]) > 1e-6
    weights = hulls.polish(X, labels, rough)
    certificate = Certificate(weights[labels], weights[~labels], np.inf)
    assert certificate.verify(X[labels], X[~labels]) < 1e-14
    np.testing.assert_allclose(weights, rough, rtol=1e-2, atol=1e-9)
