"""Measurements of the paper's further constructions and remarks: one job each, with a few rows.

A row is a construction at a size: its worst error, the worst error after each gate's best gain and
bias (if measured), the root mean square, and whether all inputs were run. `grid` lists them.
Source: "Computation in superposition", sections 1.2 to 1.5, 2 and appendix B.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import linprog

from interp_studies.jobs.attempt import Outcome
from interp_studies.study import Grid, Plan
from interp_studies.superposition.inclusion_exclusion import inclusion_exclusion_and
from interp_studies.superposition.packing import random_capacity
from interp_studies.superposition.partitioned import partitioned_and
from interp_toolkit.boolean_functions import AFFINE, epsilon
from interp_toolkit.data.composites import all_composites, random_subsets
from interp_toolkit.probes import UANDReadout
from interp_toolkit.toys.superposition.constructions.fan_in import connected
from interp_toolkit.toys.superposition.constructions.targeted import targeted_gates
from interp_toolkit.toys.superposition.constructions.uand import and_layer, universal_and
from interp_toolkit.toys.superposition.layers.gates import (
    BooleanFunction,
    Gate,
    all_pairs,
    random_gates,
)
from interp_toolkit.toys.superposition.layers.layer import FeatureLayer, random_unit_features
from interp_toolkit.toys.superposition.layers.readouts import MeasuredEpsilon, function_readoffs

SAMPLES = 2_000
XOR, XOR3 = "0110", "01101001"
AFFINE_XOR = 0.5  # the least worst error of an affine function of the bits of an XOR


def affine_and(fan_in: int) -> float:
    """The smallest worst error e of an affine function as the AND of `fan_in` bits: 1/4 for two.

    The best function is e with one bit off, 1 - e with none off, and -e with all off. Its slope 1 -
    2 e takes fan_in - 1 steps from e to -e.
    """
    return (fan_in - 1) / (2 * fan_in)


def row(
    name: str,
    worst: float,
    rms: float,
    *,
    offset: float | None = None,
    exact: bool = False,
    affine: float = AFFINE,
) -> dict[str, Any]:
    """A row of the table; `affine` is the smallest `offset` of any affine function."""
    values = {"name": name, "worst": worst, "offset": offset, "rms": rms}
    return {**values, "exact": exact, "affine": affine}


def _measured(name: str, found: MeasuredEpsilon, affine: float) -> dict[str, Any]:
    over, exact = found.over_all, found.exact
    offset = over.worst_after_offset
    return row(name, over.worst, over.rms, offset=offset, exact=exact, affine=affine)


def misfires(*, folder: Path, d_in: int, n_neurons: int, load: float, seed: int) -> Outcome:
    """Interference with features in superposition; `load`: features per neuron and input dimension.

    "worst" and "rms" are the interference on neurons that do not read the one feature that is on.
    1/2 is half of what makes such a neuron fire together with one of its own features.
    """
    generator = torch.Generator().manual_seed(seed)
    density = 1 / math.sqrt(n_neurons)
    n_features = round(load * d_in / density)
    drawn = torch.rand(n_features, n_neurons, generator=generator) < density
    features = random_unit_features(n_features, d_in, generator)
    layer = and_layer(drawn, features)
    shown = torch.arange(min(n_features, SAMPLES))
    noise = (features[shown] @ layer.W_in)[~drawn[shown]]
    found = row(f"misfires, m p / d0 = {load:g}", float(noise.abs().max()), _rms(noise))
    more = {"load": load, "n_features": n_features, "expected": math.sqrt(load)}
    return Outcome({"rows": [found], **more})


def many_targets(*, folder: Path, d_in: int, n_neurons: int, load: float, seed: int) -> Outcome:
    """Chosen pairs of features in superposition; `load` is |E| / (d0 d)."""
    n_gates, n_features = round(load * d_in * n_neurons), 8 * d_in
    gates = random_gates(n_features, n_gates, seed=seed)
    built = targeted_gates(gates, n_features, n_neurons, 4, d_in, seed=seed)
    found = built.sampled_epsilon(2, seed=seed)
    name = f"targeted, |E| / (d0 d) = 1/{round(1 / load)}"
    return Outcome(
        {
            "rows": [row(name, found.own.worst, found.rms_of_classes)],
            "load": load,
            "n_gates": n_gates,
        }
    )


def partition(*, folder: Path, n_features: int, n_neurons: int, seed: int) -> Outcome:
    """Fan-ins 2 and 3 in two halves of the neurons: ANDs, and XORs of three from them."""
    built = partitioned_and(n_features, n_neurons, 3, 3, seed=seed)
    errors = built.worst_errors(3)
    gates = random_gates(n_features, 60, 3, seed=seed)
    on = all_composites(n_features, 3)
    scores = built.layer.activations(torch.from_numpy(on)) @ built.readoffs(gates).T
    truth = np.stack([on[:, list(gate)].all(axis=1) for gate in gates], axis=1)
    functions = [BooleanFunction(XOR3, gate) for gate in gates[:30]]
    xors = function_readoffs(functions, built.readoffs, built.layer)
    ands = row(
        "partition, fan-ins 2 and 3, 3 on",
        float(errors.worst.max()),
        epsilon(scores.numpy(), truth).rms,
        offset=float(errors.after_offset.max()),
        exact=True,  # pairs are among them, with the lower bound
    )
    three = xors.epsilon(functions, built.layer, 3, seed=seed)
    return Outcome(
        {
            "rows": [
                ands,
                _measured("XOR of three, by the source's formula, 3 on", three, AFFINE_XOR),
            ]
        }
    )


def from_pairs(
    *, folder: Path, n_features: int, n_neurons: int, density: float, seed: int
) -> Outcome:
    """All triples from one layer of fan-in 2, with the source's signs and with corrected ones."""
    triples = list(combinations(range(n_features), 3))
    rows = []
    for name, corrected in (("signs alone", False), ("density corrected", True)):
        built = inclusion_exclusion_and(
            n_features, n_neurons, density, corrected=corrected, seed=seed
        )
        found = built.epsilon(3, triples, seed=seed)
        rows.append(
            _measured(f"all triples by inclusion-exclusion, {name}, 3 on", found, affine_and(3))
        )
    return Outcome({"rows": rows})


def mixed_fan_ins(*, folder: Path, d_in: int, n_neurons: int, each: int, seed: int) -> Outcome:
    """Chosen gates of two, three and four features in superposition, on shared neurons."""
    n_features = 4 * d_in
    gates: list[Gate] = [
        gate for k in (2, 3, 4) for gate in random_gates(n_features, each, k, seed=seed + k)
    ]
    built = targeted_gates(gates, n_features, n_neurons, 4, d_in, seed=seed)
    found = built.sampled_epsilon(4, seed=seed)
    name = f"mixed fan-in 2, 3, 4, {each} gates each, 4 on"
    return Outcome({"rows": [row(name, found.own.worst, found.rms_of_classes)]})


def universal_xor(
    *, folder: Path, n_features: int, n_neurons: int, density: float, seed: int
) -> Outcome:
    """XOR of every pair, f_i + f_j - 2 AND, with the input; its error is twice that of AND."""
    built = universal_and(n_features, n_neurons, density, seed=seed)
    functions = [BooleanFunction(XOR, pair) for pair in all_pairs(n_features)]
    readoffs = function_readoffs(functions, built.readoffs, built.layer)
    found = readoffs.epsilon(functions, built.layer, 2, seed=seed)
    return Outcome({"rows": [_measured("universal XOR, all pairs, 2 on", found, AFFINE_XOR)]})


def products(*, folder: Path, dim: int, n_features: int, degree: int, seed: int) -> Outcome:
    """The AND of `degree` features as the product of their readouts, with all or all but one on.

    Degree 2 is one layer of squares, 3 one layer of cubes, 4 two stacked layers of squares.
    """
    features = random_unit_features(n_features, dim, torch.Generator().manual_seed(seed))
    drawn = random_subsets(SAMPLES, n_features, degree + 1, np.random.default_rng(seed))
    vectors = features[torch.from_numpy(np.random.default_rng(seed).permuted(drawn, axis=1))]
    gate = vectors[:, :degree]
    rows = []
    for truth, inputs in ((1.0, gate), (0.0, vectors[:, 1:])):
        read = torch.einsum("nid,njd->nji", inputs, gate).sum(dim=2)
        errors = read.prod(dim=1) - truth
        on = "all on" if truth else "one off, another on"
        name = f"products of {degree}, r = {dim}, m = {n_features:,}, {on}"
        rows.append(row(name, float(errors.abs().max()), _rms(errors)))
    return Outcome({"rows": rows})


def perturbed(
    *,
    folder: Path,
    n_features: int,
    n_neurons: int,
    density: float,
    noise: float,
    seed: int,
) -> Outcome:
    """Universal AND with Gaussian noise on its weights: constructed and fitted readouts.

    Fitted readouts are measured on a held-out fifth of the inputs with up to three features on.
    """
    built = universal_and(n_features, n_neurons, density, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    shift = torch.randn(built.layer.W_in.shape, generator=generator, dtype=torch.float64)
    layer = FeatureLayer(built.layer.W_in + noise * shift, built.layer.b_in, built.layer.features)
    on = all_composites(n_features, 2)
    activations = layer.activations(torch.from_numpy(on)).numpy()
    pairs = np.array(all_pairs(n_features))
    truth = on[:, pairs[:, 0]] & on[:, pairs[:, 1]]
    own = epsilon(activations @ built.readoffs().numpy().T, truth)
    more = np.random.default_rng(seed).permutation(all_composites(n_features, 3))
    held = layer.activations(torch.from_numpy(more)).numpy()
    n_fitted = len(more) - len(more) // 5
    readout = UANDReadout(n_jobs=1).fit(held[:n_fitted], more[:n_fitted])
    fitted = readout.errors(held[n_fitted:], more[n_fitted:])
    again, rms = fitted.epsilon(), list(fitted.rms_by_class.values())
    name = f"noise {noise:g} on the weights"
    rows = [
        row(
            f"{name}, own readoffs, 2 on",
            own.worst,
            own.rms,
            offset=own.worst_after_offset,
            exact=True,
        ),
        row(
            f"{name}, fitted readoffs, held out, 3 on",
            again.worst,
            math.sqrt(sum(x**2 for x in rms) / len(rms)),
            offset=again.worst_after_offset,
        ),
    ]
    return Outcome({"rows": rows, "noise": noise})


def sums_of_ands(
    *, folder: Path, n_features: int, n_neurons: int, density: float, terms: int, seed: int
) -> Outcome:
    """The paper's z: the sum of `terms` ANDs of disjoint pairs, with up to four features on."""
    built = universal_and(n_features, n_neurons, density, seed=seed)
    rng = np.random.default_rng(seed)
    worst, squares = 0.0, []
    on = all_composites(n_features, 4)
    on = on[rng.permutation(len(on))[: 10 * SAMPLES]]
    activations = built.layer.activations(torch.from_numpy(on))
    for _ in range(20):
        pairs = [tuple(p) for p in rng.permutation(n_features)[: 2 * terms].reshape(-1, 2).tolist()]
        read = (activations @ built.readoffs(pairs).T).sum(dim=1).numpy()
        truth = sum((on[:, i] & on[:, j]).astype(float) for i, j in pairs)
        errors = read - truth
        worst = max(worst, float(np.abs(errors).max()))
        squares.append(float(np.mean(errors**2)))
    name = f"sum of {terms} ANDs of disjoint pairs, 4 on"
    return Outcome({"rows": [row(name, worst, math.sqrt(float(np.mean(squares))))], "terms": terms})


def affine_sum(*, folder: Path, seed: int) -> Outcome:
    """The smallest worst error of an affine readout of z = x0 x1 + x2 x3, over all 16 inputs."""
    inputs = all_composites(4, 4).astype(float)
    truth = inputs[:, 0] * inputs[:, 1] + inputs[:, 2] * inputs[:, 3]
    columns = np.column_stack([inputs, np.ones(len(inputs))])
    least = linprog(
        np.eye(6)[-1],
        A_ub=np.block(
            [[columns, -np.ones((16, 1))], [-columns, -np.ones((16, 1))]],
        ),
        b_ub=np.concatenate([truth, -truth]),
        bounds=[(None, None)] * 6,
        method="highs",
    )
    errors = columns @ least.x[:-1] - truth
    name = "sum of 2 ANDs, best affine readout of the inputs"
    return Outcome(
        {"rows": [row(name, float(least.fun), _rms(torch.from_numpy(errors)), exact=True)]}
    )


def relu_probe(*, folder: Path, d_in: int, n_features: int, seed: int) -> Outcome:
    """ReLU(f_i x + f_j x - 1) of the layer's input, which a probe with its own ReLU reads."""
    rows = []
    generator = torch.Generator().manual_seed(seed)
    for name, features in (
        ("own axes", torch.eye(n_features, dtype=torch.float64)),
        (f"{d_in} axes", random_unit_features(n_features, d_in, generator)),
    ):
        on = all_composites(n_features, 2)
        read = torch.from_numpy(on.astype(float)) @ features @ features.T
        pairs = np.array(all_pairs(n_features))
        scores = (read[:, pairs[:, 0]] + read[:, pairs[:, 1]] - 1).relu().numpy()
        found = epsilon(scores, on[:, pairs[:, 0]] & on[:, pairs[:, 1]])
        offset = found.worst_after_offset
        label = f"ReLU probe on the input, {n_features} features, {name}, 2 on"
        rows.append(row(label, found.worst, found.rms, offset=offset, exact=True))
    return Outcome({"rows": rows})


def as_combination(
    *, folder: Path, n_features: int, n_neurons: int, density: float, seed: int
) -> Outcome:
    """Activations as a combination of the pairs' indicator vectors, with the ANDs as coefficients.

    The first row is the distance from the combination relative to the activations' norm, on inputs
    with two and three features on. The second is inner products of the unit indicator vectors of
    different pairs.
    """
    built = universal_and(n_features, n_neurons, density, seed=seed)
    pairs = all_pairs(n_features)
    vectors = built.neurons_of(pairs).double()
    rows = []
    for n_on in (2, 3):
        on = all_composites(n_features, n_on)
        on = on[on.sum(axis=1) == n_on]
        activations = built.layer.activations(torch.from_numpy(on))
        ands = np.stack([on[:, list(pair)].all(axis=1) for pair in pairs], axis=1)
        away = (activations - torch.from_numpy(ands.astype(float)) @ vectors).norm(dim=1)
        relative = away / activations.norm(dim=1).clamp(min=1e-12)
        name = f"activations as a combination of f-vectors, {n_on} on"
        rows.append(row(name, float(relative.max()), _rms(relative), exact=True))
    unit = torch.nn.functional.normalize(vectors, dim=1)
    gram = (unit @ unit.T).fill_diagonal_(0.0)
    off = gram[~torch.eye(len(gram), dtype=torch.bool)]
    rows.append(
        row("inner products of the pairs' f-vectors", float(off.max()), _rms(off), exact=True)
    )
    apart = [not set(a) & set(b) for a, b in combinations(pairs, 2)]
    first, second = np.triu_indices(len(pairs), 1)
    disjoint = gram[first, second][torch.tensor(apart)]
    name = "inner products, pairs without a common feature"
    rows.append(row(name, float(disjoint.max()), _rms(disjoint), exact=True))
    return Outcome({"rows": rows})


def squares_capacity(*, folder: Path, dims: Sequence[int], cosine: float, seed: int) -> Outcome:
    """How many random f-vectors r dimensions hold with all cosines small; d = r(r+1)/2 neurons."""
    values = [[r, r * (r + 1) // 2, random_capacity(r, cosine)] for r in dims]
    roots = [math.sqrt(d) for _, d, _ in values]
    logs = [math.log(m) for _, _, m in values]
    slope = float(np.polyfit(roots, logs, 1)[0])
    return Outcome({"rows": [], "capacity": values, "slope": slope, "cosine": cosine})


def three_or_more(
    *, folder: Path, n_features: int, n_neurons: int, density: float, seed: int
) -> Outcome:
    """Readouts of all C(m, 3) triples from a fan-in 3 layer, measured exactly."""
    drawn = np.random.default_rng(seed).random((n_features, n_neurons)) < density
    built = connected(torch.from_numpy(drawn), 3)
    errors = built.worst_errors(3)
    rms = float(np.sqrt(np.mean(errors.worst**2)))
    name = f"all {math.comb(n_features, 3)} triples of a fan-in 3 layer, 3 on"
    offset = float(errors.after_offset.max())
    worst = float(errors.worst.max())
    found = row(name, worst, rms, offset=offset, exact=True, affine=affine_and(3))
    return Outcome({"rows": [found]})


def _rms(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt())


LOADS = (1 / 16, 1 / 4, 1.0)
TARGET_LOADS = (1 / 128, 1 / 32, 1 / 9)
NOISES = (0.0, 0.1, 0.2, 0.4)
TERMS = (1, 2, 4, 8)
_UAND = {"n_features": 24, "n_neurons": 2_048, "density": 0.18}


def grid(plan: Plan) -> Grid:
    """All rows, in the order of the paper's sections."""
    sizes = {"d_in": 128, "n_neurons": 256}
    parts: list[tuple[str, Any, dict[str, Any]]] = [
        ("combination", as_combination, _UAND),
        ("xor", universal_xor, _UAND),
        *((f"misfires-{x:g}", misfires, {**sizes, "load": x}) for x in LOADS),
        *((f"targets-{x:g}", many_targets, {**sizes, "load": x}) for x in TARGET_LOADS),
        ("partition", partition, {"n_features": 16, "n_neurons": 8_192}),
        ("triples", three_or_more, {"n_features": 24, "n_neurons": 8_192, "density": 0.2}),
        (
            "inclusion-exclusion",
            from_pairs,
            {"n_features": 14, "n_neurons": 4_096, "density": 0.25},
        ),
        ("mixed", mixed_fan_ins, {"d_in": 256, "n_neurons": 1_024, "each": 64}),
        *(
            (f"products-{k}-{r}", products, {"dim": r, "n_features": 2_048, "degree": k})
            for k in (2, 3, 4)
            for r in (256, 1_024)
        ),
        ("capacity", squares_capacity, {"dims": [16, 32, 48, 64, 96, 128], "cosine": 0.5}),
        *((f"noise-{x:g}", perturbed, {**_UAND, "noise": x}) for x in NOISES),
        *((f"sum-{k}", sums_of_ands, {**_UAND, "terms": k}) for k in TERMS),
        ("affine-sum", affine_sum, {}),
        ("relu-probe", relu_probe, {"d_in": 48, "n_features": 64}),
    ]
    return {
        name: plan.each_seed(name, function, **arguments) for name, function, arguments in parts
    }
