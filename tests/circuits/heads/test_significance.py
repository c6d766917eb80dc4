"""P-values from matched controls: by hand, against scipy, and calibrated on their own null."""

import numpy as np
import pytest
from scipy import stats

from interp_toolkit.circuits.heads.significance import (
    DetectorScores,
    corrected,
    detected,
    tail_p_values,
)
from interp_toolkit.stats import LEVEL


def one_head(target, controls):
    return np.array([[target]]), np.array([[controls]])


def test_within_the_controls_the_rank_decides():
    target, controls = one_head(0.5, [0.9, 0.6, 0.1, 0.2, 0.3, 0.0, 0.05, 0.4, 0.45])
    assert tail_p_values(target, controls)[0, 0] == pytest.approx(3 / 10, rel=0.01)
    target, controls = one_head(-5.0, list(np.linspace(0, 1, 9)))
    assert tail_p_values(target, controls)[0, 0] == pytest.approx(1.0, abs=0.01)


def test_beyond_them_it_is_scipys_t_test_of_one_value():
    rng = np.random.default_rng(0)
    controls = rng.normal(0, 0.1, 20)
    p = tail_p_values(*one_head(0.6, controls.tolist()))[0, 0]
    t = (0.6 - controls.mean()) / (controls.std(ddof=1) * np.sqrt(1 + 1 / 20))
    assert p == pytest.approx(stats.t.sf(t, 19), rel=1e-3)
    assert p < 1e-4


def test_a_head_whose_controls_are_alike_borrows_the_models_spread():
    rng = np.random.default_rng(1)
    controls = rng.normal(0, 0.1, (1, 8, 12))
    controls[0, 0] = 0.0  # all its attention is elsewhere
    target = np.zeros((1, 8))
    target[0, 0] = 0.5
    p = tail_p_values(target, controls)[0, 0]
    scale = np.sqrt(controls.var(-1, ddof=1).mean() * (1 + 1 / 12))
    assert p == pytest.approx(stats.t.sf(0.5 / scale, 11), rel=1e-3)


def test_spread_weakens_the_evidence():
    rng = np.random.default_rng(2)
    controls = rng.normal(0, 0.1, (1, 1, 12))
    target = np.full((1, 1), 0.5)
    plain, raised = (tail_p_values(target, controls, s)[0, 0] for s in (1.0, 4.0))
    assert plain < raised


def test_uniform_attention_has_no_evidence():
    p = tail_p_values(np.full((1, 1), 1e-9), np.zeros((1, 1, 12)))
    assert p[0, 0] > 0.4


@pytest.mark.parametrize("n_controls", [4, 12, 24])
def test_on_exchangeable_controls_p_values_are_valid(n_controls):
    """Target and controls from one normal law, heads of different scale: P(p <= a) <= a."""
    rng = np.random.default_rng(3)
    n = 40_000
    scale = rng.choice([0.5, 1.0, 2.0], n)[:, None]
    values = rng.normal(0, 1, (n, n_controls + 1)) * scale + rng.normal(0, 1, (n, 1))
    p = np.concatenate(
        [
            tail_p_values(part[None, :, 0], part[None, :, 1:])[0]
            for part in np.split(values, n // 8)  # models of 8 heads
        ]
    )
    for level in (0.05, 0.01, 0.001):
        found = int((p <= level).sum())
        assert stats.binom.sf(found - 1, n, level) > 1e-4
    assert (p <= 0.5).mean() > 0.35  # and they are not idle


def test_levels_hold_per_model():
    """Holm over a model's looks: any false one in at most LEVEL of models, whatever depends."""
    rng = np.random.default_rng(4)
    wrong = 0
    for _ in range(2_000):
        shared = rng.normal(0, 1)
        p = stats.norm.sf((rng.normal(0, 1, 20) + shared) / np.sqrt(2))
        adjusted, q = corrected(p)
        wrong += bool((adjusted <= LEVEL).any())
        assert (q <= adjusted + 1e-12).all()
    assert stats.binom.sf(wrong - 1, 2_000, LEVEL) > 1e-4


def test_one_large_control_is_not_hidden_by_the_tail():
    p = tail_p_values(*one_head(0.55, [0.6] + [0.0] * 9))
    assert p[0, 0] == pytest.approx(2 / 11)


def test_the_floor_is_part_of_the_rule():
    """Of what is beyond uniform attention, and of what is beyond the controls."""
    excess, p = np.array([[0.29, 0.31]]), np.full((1, 2), 1e-6)
    for null, expected in ((0.0, [False, True]), (0.02, [False, False])):
        scores = DetectorScores(
            detector="any",
            score=excess,
            uniform=np.zeros((1, 2)),
            null_mean=np.full((1, 2), null),
            excess=excess,
            over_null=excess - null,
            p_value=p,
            weakest=(),
            by_row=np.empty((1, 1, 2)),
            floor=0.3,
            attention=excess,
        )
        assert detected(p, scores).tolist() == [expected]
