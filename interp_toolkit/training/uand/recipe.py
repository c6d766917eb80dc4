"""Train one MLP layer on all pairs at once: `interp train uand`.

Inputs have at most `most_on` features on; the layer is to hold the AND of every pair so that one
direction of its neurons reads it off. With fewer neurons than pairs they must share. The loss is
a p-norm of the errors: a high p presses on the worst of them, p = 2 is the mean squared error.
The trained layer is held against two things that need no training: an affine readout of the
input, whose worst error is 1/4 at least, and random 0/1 connections to as many neurons.
Source: "Computation in superposition", sections 1.1 to 1.3 and 2, which trains nothing itself.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import torch

from interp_toolkit.data.composites import count_composites
from interp_toolkit.epsilon import AFFINE
from interp_toolkit.registry import Recipe, Session, TrainingRun
from interp_toolkit.toys.superposition.layers.density import counted
from interp_toolkit.toys.superposition.layers.layer import layer_task
from interp_toolkit.toys.superposition.layers.triples import exact_epsilon
from interp_toolkit.training.engine.seeds import SeedRuns, train_seeds
from interp_toolkit.training.engine.trainer import Fitted
from interp_toolkit.training.uand.problem import TEST_ROWS, UandProblem, initial_layer
from interp_toolkit.training.uand.settings import UandTraining

DENSITIES = tuple(k / 20 for k in range(1, 19))  # of the 0/1 connections that are tried
DRAWS = 5  # of connections at each density


def train(config: UandTraining, session: Session | None = None) -> TrainingRun:
    """Train every seed and keep the one with the least worst error.

    Raises InputError when the device is not there.
    """
    task = layer_task(initial_layer(config, config.seed), config.most_on)

    def score(problem: UandProblem, fitted: Fitted) -> Mapping[str, Any]:
        return {**asdict(problem.measured()), "loss": fitted.loss}

    runs = train_seeds(
        "uand",
        config,
        lambda seed: UandProblem(config, seed),
        score,
        session,
        by="worst",
        task=task,
    )
    return TrainingRun(
        model=runs.model,
        verdict=_verdict(config, runs),
        columns=["seed", "worst", "99 %", "rms", "worst after offset", "loss"],
        rows=runs.rows,
        task=task,
        training=runs.record(),
    )


class Untrained(NamedTuple):
    """Random 0/1 connections: the best density, and the median worst error of the draws at it."""

    density: float
    worst: float


def untrained(n_features: int, n_neurons: int, most_on: int) -> Untrained:
    """Universal AND by random 0/1 connections of one-hot features, at the best of DENSITIES.

    The worst error is exact, of each pair's own readoff; a pair that shares no neuron has 1.
    """
    generator = torch.Generator().manual_seed(0)

    def median(density: float) -> float:
        drawn = torch.rand(DRAWS, n_features, n_neurons, generator=generator) < density
        return statistics.median(exact_epsilon(connections, most_on).worst for connections in drawn)

    return min((Untrained(p, median(p)) for p in DENSITIES), key=lambda tried: tried.worst)


def _verdict(config: UandTraining, runs: SeedRuns) -> str:
    best, m = runs.scores, config.n_features
    below = sum(scores["worst"] < AFFINE for scores in runs.by_seed.values())
    exact = count_composites(m, config.most_on) <= TEST_ROWS
    inputs = "on every input" if exact else f"on {TEST_ROWS:,} random inputs"
    return (
        f"{counted(config.n_neurons, 'neuron')}, {counted(m * (m - 1) // 2, 'pair')}: "
        f"{below} of {counted(config.seeds, 'seed')} "
        f"read every pair {inputs} with a worst error below {AFFINE}, the least that an affine "
        f"readout of the input can have; the best one's is {best['worst']:.3f}, "
        f"{best['worst_after_offset']:.3f} after each pair's best gain and bias, rms "
        f"{best['rms']:.3f}; random 0/1 connections of one-hot features to as many neurons have "
        f"{_beside(untrained(m, config.n_neurons, config.most_on))}."
    )


def _beside(random: Untrained) -> str:
    if random.worst >= 1:
        return "1 or more with their own readoffs, at every density"
    return f"{random.worst:.2f} with their own readoffs, at their best density, {random.density:g}"


RECIPE = Recipe(
    name="uand",
    summary="one MLP layer reads every pair of features out; loss, sizes, superposed inputs",
    config=UandTraining,
    variants={
        "epsilon": {},
        "mse": {"power": 2},
        "superposed": {"d_in": 8},
    },
    presets={"small": {}},
    train=train,
)
