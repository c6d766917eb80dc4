"""`benchmarks/negatives.py` on few models: no ✓ of what is not there, and ✓ of what plainly is."""

from collections import Counter

import pytest

from interp_toolkit.results import STATUS_TONES

MODELS = 6
#: rows whose models take seconds each: fewer models
SLOW = ("heads", "sorting", "collapse", "composition", "circuit")
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
    "heads: own answers",
    "heads: mute head",
    "heads: constant writer",
    "heads: unrelated writer",
    "heads: head against the answer",
    "heads: rare large effects",
    "heads: few prompts",
    "roles: own preferences",
    "roles: mute head",
    "roles: constant writer",
    "roles: unrelated writer",
    "roles: rare large effects",
    "roles: few prompts",
    "circuit: own preferences",
    "circuit: mute head",
    "circuit: constant writer",
    "circuit: part of the circuit",
    "sorting: other algorithm",
    "ov: untrained",
    "ov: other tokens",
    "ov: same for all tokens",
    "ov: few of the tokens",
    "qk: untrained",
    "qk: other tokens",
    "qk: same for all tokens",
    "qk: few of the tokens",
    "composition: untrained",
    "composition: reads what the other reads",
    "composition: mute head",
    "skip-bigrams: untrained",
    "skip-bigrams: same for all tokens",
    "skip-bigrams: few large tokens",
    "collapse: untrained",
    "collapse: bias",
    "patching: constant writer",
    "patching: unrelated writer",
    "patching: rare large effects",
    "patching: released",
    "patching heads: untrained",
    "patching heads: mute head",
    "patching heads: constant writer",
    "patching heads: unrelated writer",
    "patching heads: rare large effects",
    "patching heads: released",
)
POSITIVES = (
    "xor: in the embedding",
    "uand: gates",
    "logit-attribution: writer of the answer",
    "heads: needed in some of the prompts",
    "roles: writer of the answer",
    "circuit: writer of the answer",
    "sorting: less noise",
    "ov: copying",
    "qk: matching",
    "composition: reads what is written",
    "skip-bigrams: pairs",
    "collapse: what tokens share is amplified",
    "patching: writer of the answer",
    "patching heads: writer of the answer",
)


@pytest.fixture(scope="module")
def negatives(benchmarks):
    return benchmarks("negatives")


def test_all_that_fit_in_ci_are_here(negatives):
    permuted = {name for name, case in negatives.NEGATIVES.items() if case.permute}
    assert set(NEGATIVES) == set(negatives.NEGATIVES) - permuted
    assert set(POSITIVES) == set(negatives.POSITIVES)


@pytest.mark.parametrize("name", NEGATIVES)
def test_what_is_not_there_is_seldom_confirmed(negatives, name):
    case, slow = negatives.NEGATIVES[name], name.startswith(SLOW)
    seeds = range(2 if slow else MODELS)
    said = Counter(negatives.judged(case.analysis, case.make(seed), case.says) for seed in seeds)
    found = negatives.row(name, said)
    assert found["judged"] >= len(seeds) // 2
    assert found["yes"] <= (1 if slow else 2)  # at a rate of 5 %, more have p < 0.003


@pytest.mark.parametrize("name", POSITIVES)
def test_what_is_plainly_there_is_confirmed(negatives, name):
    analysis, plant, says = negatives.POSITIVES[name]
    said = negatives.judged(analysis, plant(100, negatives.STRENGTHS[-1]), says)
    assert STATUS_TONES[said] == "yes"


@pytest.mark.parametrize("beside", ["unrelated", "rare"])
def test_what_a_head_writes_on_prompts_not_drawn_or_for_other_names_is_not_its_role(
    negatives, beside
):
    """Both were named: every prompt but a rare kind is alike, or another name is written."""
    size = {"unrelated": 64, "rare": 16}[beside]
    said = [
        negatives.judged("roles", negatives.name(seed, beside, size), negatives.second_role)
        for seed in range(8)
    ]
    assert "detected" not in said
    assert {"not_detected", "undecided"} & set(said)
