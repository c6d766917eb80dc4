"""The hand-set models against their closed forms: patterns, updates, scores, answers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from interp_toolkit import registry
from interp_toolkit.toys.hand_set.xor import (
    and_1head,
    or_1head,
    xor_1head,
    xor_1head_mlp,
    xor_2head,
)

INPUTS = torch.tensor([[0, 0, 2], [0, 1, 2], [1, 0, 2], [1, 1, 2]])
SITE = "blocks.0.hook_resid_post"


def cached(model: torch.nn.Module, *names: str) -> list[np.ndarray]:
    """Values at the last position, for the four inputs in order."""
    _, cache = model.run_with_cache(INPUTS)
    pick = {"hook_pattern": lambda v: v[:, :, -1], "hook_resid_post": lambda v: v[:, -1]}
    return [pick[n.split(".")[-1]](cache[n]).detach().numpy() for n in names]


@pytest.mark.parametrize("score", [-1.5, 0.0, 0.3, 1.0, 4.0])
def test_two_heads_have_the_closed_forms(score: float) -> None:
    a = math.exp(score)
    pattern, resid = cached(xor_2head(score), "blocks.0.attn.hook_pattern", SITE)
    on_zeros = [
        np.array([a, a, 1]) / (2 * a + 1),
        np.array([a, 1, 1]) / (a + 2),
        np.array([1, a, 1]) / (a + 2),
        np.array([1, 1, 1]) / 3,
    ]
    on_ones = [on_zeros[3], on_zeros[2], on_zeros[1], on_zeros[0]]
    np.testing.assert_allclose(pattern[:, 0], on_zeros, atol=1e-12)
    np.testing.assert_allclose(pattern[:, 1], on_ones, atol=1e-12)
    equal, different = 2 * a / (2 * a + 1), 2 * a / (a + 2)
    np.testing.assert_allclose(
        resid @ [1, 1, 0], [equal, different, different, equal], rtol=0, atol=1e-12
    )
    gap = 2 * a * (a - 1) / ((a + 2) * (2 * a + 1))
    assert different - equal == pytest.approx(gap, abs=1e-12)
    assert np.sign(gap) == np.sign(score)


def test_the_published_numbers_at_score_one() -> None:
    (resid,) = cached(xor_2head(), SITE)
    scores = resid @ [1, 1, 0]
    assert scores[0] == pytest.approx(0.844638, abs=5e-7)
    assert scores[1] == pytest.approx(1.152234, abs=5e-7)
    assert scores[1] - scores[0] == pytest.approx(0.307596, abs=5e-7)


def test_one_head_spans_a_kite_whose_diagonals_cross() -> None:
    a = math.e
    (resid,) = cached(xor_1head(), SITE)
    place = (a - 1) / (a + 2)
    expected = [[0, 0], [a / (a + 2), -place], [a / (a + 2), place], [2 * a / (2 * a + 1), 0]]
    np.testing.assert_allclose(resid[:, [1, 3]], expected, atol=1e-12)
    total = 2 * a + 4
    np.testing.assert_allclose(
        (3 * resid[0] + (2 * a + 1) * resid[3]) / total, (resid[1] + resid[2]) / 2, atol=1e-12
    )


def test_the_mlp_folds_the_line_back() -> None:
    a = math.e
    t1 = a / (a + 2)
    (resid,) = cached(xor_1head_mlp(), SITE)
    np.testing.assert_allclose(resid[:, 0], [0, t1, t1, 0], atol=1e-12)


@pytest.mark.parametrize(
    ("build", "answers"),
    [
        (xor_2head, [0, 1, 1, 0]),
        (xor_1head_mlp, [0, 1, 1, 0]),
        (or_1head, [0, 1, 1, 1]),
        (and_1head, [0, 0, 0, 1]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_models_answer_their_function(build, answers, dtype: torch.dtype) -> None:
    logits = build(dtype=dtype)(INPUTS)[:, -1]
    assert logits.argmax(-1).tolist() == answers
    assert logits.dtype == dtype


def test_one_head_gets_three_of_four() -> None:
    assert xor_1head()(INPUTS)[:, -1].argmax(-1).tolist() == [0, 1, 1, 1]


def test_the_registry_knows_them_and_their_functions() -> None:
    for name, toy in registry.load_all("toys").items():
        if "head" not in name or len(toy.task["function"]) != 4:
            continue
        answers = toy.build()(INPUTS)[:, -1].argmax(-1)
        table = "".join(str(int(bit)) for bit in answers)
        if name != "xor-1head":  # which cannot
            assert table == toy.task["function"], name
