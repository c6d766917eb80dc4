"""Pytest fixtures for code on TransformerLens models: tiny, hand-set, ground truth known.

Installing the package registers them:

    def test_my_probe(tiny_xor_model):
        truth = tiny_xor_model.ground_truth
        assert my_probe(tiny_xor_model, hook=truth.hook) == truth.separable

Each is built in milliseconds and new for every test, so that a test may change it. Docstrings in
`interp_toolkit.toys.hand_set.xor`, `interp_toolkit.toys.hand_set.induction`,
`interp_toolkit.toys.sorting` and `interp_toolkit.toys.superposition.toys` derive the numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True)
class XorGroundTruth:
    """The ground truth of a tiny model of a boolean function.

    Attributes:
        function: truth table over (a, b) of the task, first feature most significant.
        tokens: ids of the prompt's tokens, as `truth_table` takes them.
        hook: the site to read, at the last position.
        separable: whether the function is linearly separable there.
        separating_head_count: heads needed to separate it; 0 if it is not separable.
        margin: the widest gap between the classes there; None if they are not separable.
        certificate: convex weights by input if they are not separable; each class sums to 1.
    """

    function: str
    tokens: Mapping[str, int]
    hook: str
    separable: bool
    separating_head_count: int
    margin: float | None
    certificate: Mapping[str, float] | None


@dataclass(frozen=True)
class InductionGroundTruth:
    """The ground truth of the tiny induction model.

    Attributes:
        previous_token: (layer, head) of the head that attends to the previous position.
        induction: (layer, head) of the head that attends to the token after an earlier occurrence.
        d_vocab: number of tokens, and largest number of distinct tokens in a repeated prompt.
        n_ctx: positions.
        previous_token_share: its attention from each position but the first to the previous one;
            the minimum, which is at the last position of the context.
        induction_share: its attention to the token after the single earlier occurrence; likewise.
        loss: loss in nats on a next token that followed the current token once before.
    """

    previous_token: tuple[int, int]
    induction: tuple[int, int]
    d_vocab: int
    n_ctx: int
    previous_token_share: float
    induction_share: float
    loss: float


@dataclass(frozen=True)
class SortingGroundTruth:
    """The ground truth of the tiny sorting model.

    Attributes:
        layout: layout of its prompts: token ids of separators and padding, and the position of the
            list.
        algorithm: "argmax": item k is argmax_x Σ_i min(0, a_i - x) + (k + 0.5) x.
        distinct: whether lists have no repeats.
        n_values: values are the token ids from 0 to n_values - 1.
        shortest, longest: number of items of a list.
        head: (layer, head) of the head that sorts.
        separator: token id of the separator that the head attends to in addition to the list.
        ratios: attention to it where sorted item k is read, relative to that of each item.
        gain: logit(x) is gain times the sum above, divided by (items + ratios[k]).
        margin: the smallest logit margin of a right answer, over all lists.
    """

    layout: str
    algorithm: str
    distinct: bool
    n_values: int
    shortest: int
    longest: int
    head: tuple[int, int]
    separator: int
    ratios: tuple[float, ...]
    gain: float
    margin: float


@dataclass(frozen=True)
class UANDGroundTruth:
    """The ground truth of the tiny universal AND model.

    Attributes:
        hook: the site of its neurons, to read at the last position.
        n_features: number of input features; a feature's token id is its number.
        most_on: largest number of features that are on together.
        nothing, read: token ids that fill a prompt after the features that are on, and end it:
            `most_on + 1` tokens in all.
        pairs: the pairs of features, in the order of the logits; logit p is the readout of the AND
            of pair p.
        neurons: for each feature, the neurons that read it with weight 1; each neuron's bias is -1.
        shared: number of neurons that the two features of each pair share; their mean is the
            pair's readout.
        worst: each pair's worst |logit - AND| over all inputs.
        worst_after_offset: the same after the pair's best gain and bias; affine readouts have 1/4.
    """

    hook: str
    n_features: int
    most_on: int
    nothing: int
    read: int
    pairs: tuple[tuple[int, int], ...]
    neurons: tuple[tuple[int, ...], ...]
    shared: int
    worst: float
    worst_after_offset: float


TOKENS = {"0": 0, "1": 1, "query": 2}
SITE = "blocks.0.hook_resid_post"


@pytest.fixture
def model_doctor() -> Callable[..., Any]:
    """A function that fails the test if a model has faults, and lists them.

    `model_doctor(model)` has the arguments and the result of `interp_toolkit.doctor`:

        def test_my_model_can_be_trusted(model_doctor):
            model_doctor(my_model())
    """

    def examine(model: Any, **options: Any) -> Any:
        from interp_toolkit.diagnosis.analysis import doctor

        result = doctor(model, **options)
        if result.faults:
            faults = [f"  {c.section}: {c.name}: {c.summary}" for c in result.faults]
            pytest.fail("\n".join([f"{len(faults)} faults", *faults]), pytrace=False)
        return result

    return examine


def _with_task(model: Any, toy: str) -> Any:
    """The model with the record of its toy's task, so that its own analyses run on it."""
    from interp_toolkit.models.about.record import ModelRecord, set_record
    from interp_toolkit.registry import find

    set_record(model, ModelRecord(toy, "toy", task=find("toys", toy).task))
    return model


@pytest.fixture
def tiny_xor_model() -> Any:
    """Two heads that compute XOR; a `Transformer` in float64 with `.ground_truth`."""
    from interp_toolkit.toys.hand_set.xor import xor_2head

    A = math.e
    gap = 2 * A * (A - 1) / ((A + 2) * (2 * A + 1))  # along (1, 1); the widest, by symmetry
    model = _with_task(xor_2head(), "xor-2head")
    model.ground_truth = XorGroundTruth("0110", TOKENS, SITE, True, 2, gap / math.sqrt(2), None)
    return model


@pytest.fixture
def tiny_one_head_model() -> Any:
    """One head on the XOR task, on which XOR is not linearly separable; see `.ground_truth`."""
    from interp_toolkit.toys.hand_set.xor import xor_1head

    A = math.e
    total = 2 * A + 4  # Z00 = 3, Z11 = 2A + 1, Z01 = Z10 = A + 2
    certificate = {"00": 3 / total, "11": (2 * A + 1) / total, "01": 0.5, "10": 0.5}
    model = _with_task(xor_1head(), "xor-1head")
    model.ground_truth = XorGroundTruth("0110", TOKENS, SITE, False, 0, None, certificate)
    return model


@pytest.fixture
def tiny_induction_model() -> Any:
    """The two-layer induction circuit; a `Transformer` in float64 with `.ground_truth`."""
    from interp_toolkit.toys.hand_set.induction import (
        GAIN,
        INDUCTION_HEAD,
        PREVIOUS_HEAD,
        SCORE,
        induction,
    )

    d_vocab, n_ctx = 32, 64
    A, last = math.exp(SCORE), n_ctx - 1
    model = induction(d_vocab, n_ctx)
    model.ground_truth = InductionGroundTruth(
        PREVIOUS_HEAD,
        INDUCTION_HEAD,
        d_vocab,
        n_ctx,
        previous_token_share=A / (A + last),
        induction_share=A / (A + last - 1),
        loss=math.log(1 + (d_vocab - 1) * math.exp(-GAIN)),
    )
    return model


@pytest.fixture
def tiny_sort_model() -> Any:
    """Sorts short lists in place, by algorithm "argmax"; a float64 model with `.ground_truth`."""
    from interp_toolkit.toys.sorting import SUM_GAIN, sort_argmax

    n_values, longest = 6, 4
    model = sort_argmax(n_values, longest)
    ratios = tuple(k + 0.5 for k in range(longest))
    model.ground_truth = SortingGroundTruth(
        layout="6 list1-4 7 pad8",
        algorithm="argmax",
        distinct=False,
        n_values=n_values,
        shortest=1,
        longest=longest,
        head=(0, 0),
        separator=n_values,
        ratios=ratios,
        gain=SUM_GAIN,
        margin=SUM_GAIN * 0.5 / (longest + ratios[-1]),
    )
    return model


@pytest.fixture
def tiny_uand_model() -> Any:
    """A hand-set ReLU layer that computes the AND of every pair of six features; `.ground_truth`.

    Up to three features are on. There is a neuron for each pair and one for each triple.
    """
    from interp_toolkit.toys.superposition.toys import pairs_and_triples

    n_features, most_on = 6, 3
    features = range(n_features)
    pairs = tuple(itertools.combinations(features, 2))
    sets = (*pairs, *itertools.combinations(features, 3))
    shared = n_features - 1  # the pair's own, and one for each third feature
    model = pairs_and_triples(n_features).as_model(most_on, pairs)
    model.ground_truth = UANDGroundTruth(
        hook="blocks.0.mlp.hook_post",
        n_features=n_features,
        most_on=most_on,
        nothing=n_features,
        read=n_features + 1,
        pairs=pairs,
        neurons=tuple(tuple(k for k, s in enumerate(sets) if i in s) for i in features),
        shared=shared,
        worst=(most_on - 1) / shared,
        worst_after_offset=(most_on - 1) / (2 * shared),
    )
    return model
