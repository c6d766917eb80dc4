"""ε of gates where counting gives no exact worst case: measured on inputs about each gate.

For every gate: all of it on, then all but one of its features on (each left out once), both filled
with random other features to exactly l, and one input drawn from `data.composites`. A gate's own
errors are its readoff's on these; all gates' readoffs on all of these inputs are measured too, and
are often worse, since gates that share neurons disturb each other. What is sampled is a lower bound
of the worst case.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.boolean_functions import Epsilon, after_offset, epsilon
from interp_toolkit.data.composites import sample_composites
from interp_toolkit.errors import InputError
from interp_toolkit.toys.superposition.layers.gates import (
    Gate,
    checked_gates,
    gate_truth,
    inputs_about,
)
from interp_toolkit.toys.superposition.layers.layer import FeatureLayer

BLOCK = 4_096  # inputs that run through the layer at once
KINDS = ("on", "one off", "random")
MOST_SCORES = 2**27  # inputs x gates: 1 GiB of scores


@dataclass(frozen=True)
class SampledEpsilon:
    """Errors of gates' readoffs on sampled inputs; see the module.

    Attributes:
        own: of each gate's readoff on the inputs about it.
        every: of every gate's readoff on all the inputs.
        rms_on: of a gate's readoff where all of the gate is on.
        rms_one_off: where all but one of its features are on.
        rms_random: on random inputs.
        worst_after_common_offset: the worst own error after one gain and bias for all gates.
        how: what was sampled, in words.
    """

    own: Epsilon
    every: Epsilon
    rms_on: float
    rms_one_off: float
    rms_random: float
    worst_after_common_offset: float
    how: str

    @property
    def rms_of_classes(self) -> float:
        """The root mean square of a gate's own errors, each of the three kinds of input alike."""
        squares = self.rms_on**2 + self.rms_one_off**2 + self.rms_random**2
        return math.sqrt(squares / len(KINDS))


def sampled_epsilon(
    layer: FeatureLayer,
    readoffs: Float[Tensor, "gate neuron"],
    gates: Sequence[Sequence[int]],
    most_on: int,
    *,
    rounds: int = 1,
    seed: int = 0,
) -> SampledEpsilon:
    """Measure the readoffs of these gates; see the module.

    Args:
        layer: what computes.
        readoffs: of the gates, in order.
        gates: what they are to be true of.
        most_on: the largest number of features that are on together.
        rounds: how often the inputs about each gate are drawn.
        seed: of what is drawn.

    Raises:
        InputError: gates that are not there, or that cannot be true with so few features on; more
            inputs and gates than fit.
    """
    n_features = len(layer.features)
    checked = checked_gates(gates, n_features)
    fan_in = max(map(len, checked))
    if not fan_in <= most_on <= n_features:
        raise InputError(
            f"up to {most_on} of {n_features} features on: that must be at least the largest "
            f"fan-in, {fan_in}, and at most all"
        )
    if rounds < 1:
        raise InputError(f"rounds is {rounds}: give 1 or more")
    n_inputs = rounds * sum(len(gate) + 2 for gate in checked)
    if n_inputs * len(checked) > MOST_SCORES:
        raise InputError(
            f"{len(checked):,} gates on {n_inputs:,} inputs do not fit: measure fewer gates"
        )
    rng = np.random.default_rng(seed)
    kinds, about, on = _inputs(checked * rounds, len(checked), n_features, most_on, rng)
    scores, truth = _scores(layer, readoffs, on), gate_truth(on, checked)
    rows = np.arange(len(about))
    own, own_truth = scores[rows, about], truth[rows, about]
    rms = {kind: float(np.sqrt(np.mean((own - own_truth)[kinds == kind] ** 2))) for kind in KINDS}
    return SampledEpsilon(
        own=_own(own, own_truth, about, len(checked)),
        every=epsilon(scores, truth),
        rms_on=rms["on"],
        rms_one_off=rms["one off"],
        rms_random=rms["random"],
        worst_after_common_offset=float(_after_offset(own, own_truth, 0 * about, 1)[0]),
        how=(
            f"{rounds} round{'s' * (rounds > 1)} of inputs about each of {len(checked):,} gates, "
            f"{most_on} features on: all of the gate, all but each one of it, and one random input "
            f"with up to {most_on} on; seed {seed}"
        ),
    )


def _inputs(
    gates: Sequence[Gate], n_gates: int, n_features: int, most_on: int, rng: np.random.Generator
) -> tuple[np.ndarray, Int[np.ndarray, " input"], Bool[np.ndarray, "input feature"]]:
    """Each input's kind, the number of the gate it is about, and its features.

    `gates` are those of all rounds; their numbers repeat after `n_gates`.
    """
    lacking = [(k, i) for k, gate in enumerate(gates) for i in range(len(gate))]
    every = np.arange(len(gates))
    about = [every, np.array([k for k, _ in lacking]), every]
    absent = np.array([i for _, i in lacking])
    on = [
        inputs_about(gates, np.full(len(gates), -1), n_features, most_on, rng),
        inputs_about([gates[k] for k, _ in lacking], absent, n_features, most_on, rng),
        sample_composites(len(gates), n_features, most_on, rng),
    ]
    kinds = np.repeat(KINDS, [len(part) for part in about])
    return kinds, np.concatenate(about) % n_gates, np.concatenate(on)


def _scores(
    layer: FeatureLayer,
    readoffs: Float[Tensor, "gate neuron"],
    on: Bool[np.ndarray, "input feature"],
) -> Float[np.ndarray, "input gate"]:
    inputs = torch.from_numpy(on)
    blocks = (inputs[start : start + BLOCK] for start in range(0, len(inputs), BLOCK))
    scores = torch.cat([layer.activations(block) @ readoffs.T for block in blocks])
    return np.asarray(scores)


def _own(
    scores: Float[np.ndarray, " input"],
    truth: Bool[np.ndarray, " input"],
    about: Int[np.ndarray, " input"],
    n_gates: int,
) -> Epsilon:
    flat = epsilon(scores[:, None], truth[:, None])
    least = _after_offset(scores, truth, about, n_gates)
    return replace(flat, worst_after_offset=float(least.max()))


def _after_offset(
    scores: Float[np.ndarray, " input"],
    truth: Bool[np.ndarray, " input"],
    group: Int[np.ndarray, " input"],
    n_groups: int,
) -> Float[np.ndarray, " group"]:
    """`epsilon.after_offset` of groups of scores."""
    ranges = []
    for side in (truth, ~truth):
        low, high = np.full(n_groups, np.inf), np.full(n_groups, -np.inf)
        np.minimum.at(low, group[side], scores[side])
        np.maximum.at(high, group[side], scores[side])
        ranges += [low, high]
    return after_offset(*ranges)
