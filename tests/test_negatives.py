"""`benchmarks/negatives.py` on few models: no ✓ of what is not there, and ✓ of what plainly is."""

from collections import Counter

import pytest

from interp_toolkit.results import STATUS_TONES

MODELS = 8
NEGATIVES = (
    "xor: true function of the tokens",
    "xor: few rows",
    "boolean: all inputs",
    "uand: linear copy",
    "uand: dead neurons",
    "uand: random features",
    "logit-attribution: constant writer",
    "logit-attribution: unrelated writer",
    "logit-attribution: rare large effects",
)
POSITIVES = ("xor: in the embedding", "uand: gates", "logit-attribution: writer of the answer")


@pytest.fixture(scope="module")
def negatives(benchmarks):
    return benchmarks("negatives")


def test_all_that_fit_in_ci_are_here(negatives):
    permuted = {name for name, case in negatives.NEGATIVES.items() if case[3]}
    assert set(NEGATIVES) == set(negatives.NEGATIVES) - permuted
    assert set(POSITIVES) == set(negatives.POSITIVES)


@pytest.mark.parametrize("name", NEGATIVES)
def test_what_is_not_there_is_seldom_confirmed(negatives, name):
    analysis, make, says, _ = negatives.NEGATIVES[name]
    said = Counter(negatives.judged(analysis, make(seed), says) for seed in range(MODELS))
    found = negatives.row(name, said)
    assert found["judged"] >= MODELS // 2
    assert found["yes"] <= 2  # at a rate of 5 %, more have p < 0.006


@pytest.mark.parametrize("name", POSITIVES)
def test_what_is_plainly_there_is_confirmed(negatives, name):
    analysis, plant, says = negatives.POSITIVES[name]
    said = negatives.judged(analysis, plant(100, negatives.STRENGTHS[-1]), says)
    assert STATUS_TONES[said] == "yes"
