"""The jobs of the superposition study: build a construction from a seed and measure its errors.

`worst` is the worst error over gates and inputs with at most 2 features on (3 for fan-in 3).
`worst_after_offset` is the worst error after each gate's best gain and bias. `rms` is the root mean
square over three kinds of input with equal weight: all features of the gate on, all but one, and
other inputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import linprog

from interp_studies.jobs.attempt import Outcome
from interp_toolkit.data.composites import all_composites, random_subsets
from interp_toolkit.probes import UANDReadout
from interp_toolkit.toys.superposition.constructions.fan_in import fan_in_and, quadratic_and
from interp_toolkit.toys.superposition.constructions.targeted import targeted_gates
from interp_toolkit.toys.superposition.constructions.uand import UniversalAND, universal_and
from interp_toolkit.toys.superposition.layers.gates import random_gates
from interp_toolkit.toys.superposition.layers.layer import (
    expected_worst,
    random_unit_features,
    sampled_epsilon,
)
from interp_toolkit.toys.superposition.skip_bigrams import (
    bigram_matrix,
    exact_head,
    presence,
    random_bigrams,
    score_quality,
    svd_head,
)

RMS_GATES = 200  # gates whose rms is measured on a sample
CLASS_ROWS = 4_000  # inputs of each class whose mean error is measured
CLASS_ON = 3  # features on in these


def universal(
    *,
    folder: Path,
    n_features: int,
    n_neurons: int,
    density: float,
    most_on: Sequence[int],
    seed: int,
) -> Outcome:
    """Universal AND by random connections: the exact worst error for each number of features on."""
    layer = universal_and(n_features, n_neurons, density, seed=seed)
    exact = {n_on: layer.epsilon(n_on) for n_on in most_on}
    gates = random_gates(n_features, RMS_GATES, seed=seed)
    values = {
        "worst": exact[2].worst,
        "worst_after_offset": exact[2].worst_after_offset,
        "mean_t": exact[2].mean_t,
        "rms": layer.sampled_epsilon(2, gates, seed=seed).rms_of_classes,
        "pairs_per_neuron": layer.pairs_per_neuron,
    }
    values |= {f"worst_l{n_on}": e.worst for n_on, e in exact.items() if n_on != 2}
    return Outcome(values)


def affine(*, folder: Path, n_features: int, most_on: int, seed: int) -> Outcome:
    """The smallest worst error of a readout of x_0 AND x_1 that is affine in all features."""
    inputs = all_composites(n_features, most_on).astype(float)
    truth = inputs[:, 0] * inputs[:, 1]
    with_bias = np.column_stack([inputs, np.ones(len(inputs))])
    values = {
        "worst": _minimax(with_bias, truth),
        "worst_without_bias": _minimax(inputs, truth),
    }
    return Outcome({**values, "worst_after_offset": values["worst"]})


def _minimax(columns: np.ndarray, truth: np.ndarray) -> float:
    """The smallest worst |columns w - truth| over w."""
    n, k = columns.shape
    worst = np.ones((n, 1))
    solution = linprog(
        np.eye(k + 1)[-1],
        A_ub=np.block([[columns, -worst], [-columns, -worst]]),
        b_ub=np.concatenate([truth, -truth]),
        bounds=[(None, None)] * (k + 1),
        method="highs",
    )
    return float(solution.fun)


def least_squares(
    *, folder: Path, n_features: int, n_neurons: int, density: float, ridge: float, seed: int
) -> Outcome:
    """Rescaled least-squares readouts of a universal AND layer, on inputs with two features on."""
    layer = universal_and(n_features, n_neurons, density, seed=seed).layer
    on = all_composites(n_features, 2)
    activations = layer.activations(torch.from_numpy(on)).numpy()
    errors = UANDReadout(ridge=ridge, n_jobs=1).fit(activations, on).errors(activations, on)
    epsilon = errors.epsilon()
    return Outcome(
        {
            "worst": epsilon.worst,
            "worst_after_offset": epsilon.worst_after_offset,
            "rms": _root_mean_square(list(errors.rms_by_class.values())),
        }
    )


def quadratic(*, folder: Path, n_features: int, dim: int, n_pairs: int, seed: int) -> Outcome:
    """Quadratic neurons with features in superposition, on random pairs, two features on."""
    errors = quadratic_and(n_features, dim, seed=seed).sampled_errors(2, n_pairs, seed)
    values = {f"rms_{name}": error.rms for name, error in errors.items()}
    worst = max(error.worst for error in errors.values())
    return Outcome({**values, "worst": worst, "rms": _root_mean_square(list(values.values()))})


def targeted(
    *,
    folder: Path,
    n_features: int,
    d_in: int,
    n_neurons: int,
    n_gates: int,
    per_gate: int,
    seed: int,
) -> Outcome:
    """Chosen pairs of features in superposition, measured on inputs about each.

    `worst_own` is of each gate on the inputs about it, after one gain and bias for all gates;
    `worst` of every gate on all of these inputs.
    """
    gates = random_gates(n_features, n_gates, seed=seed)
    built = targeted_gates(gates, n_features, n_neurons, per_gate, d_in, seed=seed)
    sampled = built.sampled_epsilon(2, seed=seed)
    return Outcome(
        {
            "worst_own": sampled.own.worst,
            "worst_own_after_offset": sampled.worst_after_common_offset,
            "rms": sampled.rms_of_classes,
            "worst": sampled.every.worst,
            "worst_after_offset": sampled.every.worst_after_offset,
        }
    )


def fan_in_three(
    *, folder: Path, n_features: int, n_neurons: int, density: float, seed: int
) -> Outcome:
    """Universal AND of three features, exactly, with three on."""
    built = fan_in_and(n_features, n_neurons, 3, density, seed)
    errors = built.worst_errors(3)
    gates = random_gates(n_features, RMS_GATES, 3, seed=seed)
    sampled = sampled_epsilon(built.layer, built.readoffs(gates), gates, 3, seed=seed)
    return Outcome(
        {
            "worst": float(errors.worst.max()),
            "worst_after_offset": float(errors.after_offset.max()),
            "rms": sampled.rms_of_classes,
        }
    )


def exact_bigrams(*, folder: Path, d_model: int, d_head: int, seed: int) -> Outcome:
    """As many skip-bigrams as the head has dimensions, with orthonormal features."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(d_model, d_model, generator=generator, dtype=torch.float64)
    features = torch.linalg.qr(drawn).Q
    bigrams = random_bigrams(d_model, d_head, seed)
    scores = exact_head(bigrams, features, features, d_head).scores(features, features)
    errors = scores - presence(bigrams, d_model, d_model).double()
    return Outcome({"worst": float(errors.abs().max())})


def svd_bigrams(
    *, folder: Path, n_features: int, d_model: int, d_head: int, n_bigrams: int, seed: int
) -> Outcome:
    """More skip-bigrams than dimensions, with random features, by the best low-rank matrix."""
    features = random_unit_features(n_features, d_model, torch.Generator().manual_seed(seed))
    bigrams = random_bigrams(n_features, n_bigrams, seed)
    head = svd_head(bigram_matrix(bigrams, features, features), d_head)
    quality = score_quality(head.scores(features, features), bigrams)
    return Outcome({"auc": quality.auc, "signal_to_noise": quality.signal / quality.noise})


def density_point(
    *, folder: Path, n_features: int, n_neurons: int, density: float, seed: int
) -> Outcome:
    """The exact errors at one density, and the mean errors by class of input."""
    layer = universal_and(n_features, n_neurons, density, allow_empty=True, seed=seed)
    exact = layer.epsilon(2)
    return Outcome(
        {
            "density": density,
            "seed": seed,
            "worst": exact.worst,
            "worst_after_offset": exact.worst_after_offset,
            "mean_t": exact.mean_t,
            "predicted": expected_worst(n_features, n_neurons, density),
            "means": measured_means(layer, CLASS_ON, seed),
        }
    )


def width_point(*, folder: Path, n_features: int, n_neurons: int, seed: int) -> Outcome:
    """The exact errors at one width, at the best density found by a search."""
    layer = universal_and(n_features, n_neurons, "search", seed=seed)
    exact = layer.epsilon(2)
    return Outcome(
        {
            "n_neurons": n_neurons,
            "seed": seed,
            "density": layer.density,
            "worst": exact.worst,
            "worst_after_offset": exact.worst_after_offset,
            "predicted": expected_worst(n_features, n_neurons, layer.density),
        }
    )


def measured_means(layer: UniversalAND, n_on: int, seed: int) -> list[float]:
    """The mean error with both, one and no feature of a pair among `n_on` active features.

    Over random inputs and pairs, without pairs that share no neuron.
    """
    rng = np.random.default_rng(seed)
    drawn = random_subsets(CLASS_ROWS, layer.n_features, n_on + 2, rng)
    drawn = rng.permuted(drawn, axis=1)
    on = np.zeros((CLASS_ROWS, layer.n_features), dtype=bool)
    on[np.arange(CLASS_ROWS)[:, None], drawn[:, :n_on]] = True
    activations = layer.layer.activations(torch.from_numpy(on))
    means = []
    for truth, columns in ((1, (0, 1)), (0, (0, n_on)), (0, (n_on, n_on + 1))):
        pairs = torch.from_numpy(drawn[:, list(columns)])
        shared = layer.connections[pairs[:, 0]] & layer.connections[pairs[:, 1]]
        sizes = shared.sum(dim=1)
        readouts = (activations * shared).sum(dim=1)[sizes > 0] / sizes[sizes > 0]
        means.append(float(readouts.mean()) - truth)
    return means


def _root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(sum(value**2 for value in values) / len(values))
