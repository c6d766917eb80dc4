"""The further constructions: each figure against brute force, a closed form, or a theorem."""

from __future__ import annotations

import dataclasses
import math
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from interp_studies.jobs.runner import Runner
from interp_studies.superposition import construction_jobs as jobs
from interp_studies.superposition import constructions
from interp_toolkit.data.composites import all_composites
from interp_toolkit.registry import find
from interp_toolkit.toys.superposition.constructions.fan_in import QuadraticAND
from interp_toolkit.toys.superposition.constructions.uand import universal_and
from interp_toolkit.toys.superposition.layers.layer import random_unit_features

NOWHERE = Path("nowhere")
UAND = {"n_features": 9, "n_neurons": 200, "density": 0.3}


def rows_of(outcome) -> list[dict]:
    return outcome.values["rows"]


def layer(seed: int = 0):
    return universal_and(9, 200, 0.3, seed=seed)


def test_universal_xor_is_off_by_twice_the_and() -> None:
    [found] = rows_of(jobs.universal_xor(folder=NOWHERE, **UAND, seed=0))
    assert found["exact"]
    assert found["worst"] == pytest.approx(2 * layer().epsilon(2).worst)


def test_two_on_are_exactly_their_f_vector_and_three_are_not() -> None:
    two, three, gram, disjoint = rows_of(jobs.as_combination(folder=NOWHERE, **UAND, seed=0))
    assert two["worst"] == pytest.approx(0, abs=1e-12)
    assert 0.1 < three["worst"] < 1
    connections = layer().connections.numpy()
    sets = [connections[i] & connections[j] for i, j in combinations(range(9), 2)]
    products = [(a & b).sum() / math.sqrt(a.sum() * b.sum()) for a, b in combinations(sets, 2)]
    assert gram["worst"] == pytest.approx(max(products))
    assert disjoint["worst"] <= gram["worst"]


@pytest.mark.parametrize("load", [0.1, 0.5])
def test_interference_is_the_root_of_the_features_a_neuron_and_axis(load: float) -> None:
    found = jobs.misfires(folder=NOWHERE, d_in=100, n_neurons=100, load=load, seed=1)
    assert rows_of(found)[0]["rms"] == pytest.approx(math.sqrt(load), rel=0.05)


def test_chained_squares_are_the_product_of_four_readouts() -> None:
    """Two layers of squares, built out of squares, against the product the rows measure."""
    features = random_unit_features(12, 16, torch.Generator().manual_seed(0))
    on = torch.zeros(1, 12, dtype=torch.bool)
    on[0, [0, 1, 2, 3, 7]] = True
    v = QuadraticAND(features)
    activations = v.layer().activations(on)
    first, second = (activations @ v.readoffs([pair]).T for pair in ((0, 1), (2, 3)))
    chained = ((first + second) ** 2 - (first - second) ** 2) / 4
    own = features[[0, 1, 2, 3, 7]].sum(dim=0)
    product = math.prod(float(own @ features[i]) for i in range(4))
    assert float(chained) == pytest.approx(product)


def test_products_of_orthogonal_features_have_no_error_in_the_limit() -> None:
    for degree in (2, 3, 4):
        small, large = (
            rows_of(jobs.products(folder=NOWHERE, dim=r, n_features=60, degree=degree, seed=0))[0][
                "rms"
            ]
            for r in (64, 4_096)
        )
        assert small / large == pytest.approx(8, rel=0.25)


def test_noise_of_zero_is_the_construction_itself() -> None:
    own, fitted = rows_of(jobs.perturbed(folder=NOWHERE, **UAND, noise=0.0, seed=0))
    assert own["worst"] == pytest.approx(layer().epsilon(2).worst)
    noisy, _ = rows_of(jobs.perturbed(folder=NOWHERE, **UAND, noise=0.5, seed=0))
    assert noisy["worst"] > own["worst"]
    assert not fitted["exact"]
    assert 0 < fitted["rms"] < fitted["worst"]


def test_the_sources_z_has_an_affine_error_of_a_half() -> None:
    """1/2 (xi + xj + xk + xl - 1), as the source says, is wrong by 1/2 on pairs and on none."""
    [found] = rows_of(jobs.affine_sum(folder=NOWHERE, seed=0))
    assert found["worst"] == pytest.approx(0.5)
    inputs = all_composites(4, 4)
    truth = inputs[:, 0] * inputs[:, 1] + 1.0 * inputs[:, 2] * inputs[:, 3]
    assert np.abs((inputs.sum(axis=1) - 1) / 2 - truth).max() == pytest.approx(0.5)


def test_one_term_is_the_and_itself() -> None:
    sizes = {**UAND, "n_features": 8}
    [one] = rows_of(jobs.sums_of_ands(folder=NOWHERE, **sizes, terms=1, seed=0))
    assert one["worst"] <= universal_and(8, 200, 0.3, seed=0).epsilon(4).worst + 1e-9
    [four] = rows_of(jobs.sums_of_ands(folder=NOWHERE, **sizes, terms=4, seed=0))
    assert one["rms"] < four["rms"] < 4 * one["rms"] + 1e-9


def test_a_probe_with_a_relu_reads_the_and_off_the_input() -> None:
    own, superposed = rows_of(jobs.relu_probe(folder=NOWHERE, d_in=12, n_features=16, seed=0))
    assert own["worst"] == pytest.approx(0, abs=1e-12)
    assert superposed["worst"] > 0.1


def test_all_triples_and_partition_are_exact() -> None:
    sizes = {"n_features": 9, "n_neurons": 900}
    [triples] = rows_of(jobs.three_or_more(folder=NOWHERE, **sizes, density=0.4, seed=0))
    ands, three = rows_of(jobs.partition(folder=NOWHERE, **sizes, seed=0))
    assert all(found["exact"] for found in (triples, ands, three))
    assert three["worst"] > ands["worst"]


def test_inclusion_exclusion_mixed_and_targets_run_at_small_sizes() -> None:
    alone, corrected = rows_of(
        jobs.from_pairs(folder=NOWHERE, n_features=6, n_neurons=600, density=0.3, seed=0)
    )
    assert corrected["rms"] < alone["rms"]
    [mixed] = rows_of(jobs.mixed_fan_ins(folder=NOWHERE, d_in=64, n_neurons=256, each=8, seed=0))
    assert 0 < mixed["rms"] < mixed["worst"]
    few, many = (
        rows_of(jobs.many_targets(folder=NOWHERE, d_in=64, n_neurons=64, load=load, seed=0))[0]
        for load in (1 / 128, 1 / 16)
    )
    assert few["rms"] < many["rms"]


@pytest.mark.parametrize("k", [2, 3, 4])
def test_affine_bounds_are_those_of_linear_programs(k: int) -> None:
    cube = np.array(list(product((0.0, 1.0), repeat=k)))
    columns = np.column_stack([cube, np.ones(len(cube))])
    for truth, bound in (
        (cube.all(axis=1), jobs.affine_and(k)),
        (cube.sum(axis=1) % 2, jobs.AFFINE_XOR),
    ):
        t = truth.astype(float)
        slack = -np.ones((len(cube), 1))
        found = linprog(
            [0.0] * (k + 1) + [1.0],
            A_ub=np.block([[columns, slack], [-columns, slack]]),
            b_ub=np.concatenate([t, -t]),
            bounds=[(None, None)] * (k + 2),
        )
        assert found.fun == pytest.approx(bound, abs=1e-9)


def test_rows_are_held_against_their_own_bound_and_none_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
    texts,
) -> None:
    """An exact 0 counts, and a triple at 0.3 is below a triple's 1/3; a pair at 0.3 is not."""
    made = [
        jobs.row("an error of 0", 0.0, 0.0, offset=0.0, exact=True),
        jobs.row("triples", 0.5, 0.1, offset=0.3, exact=True, affine=jobs.affine_and(3)),
        jobs.row("pairs", 0.5, 0.1, offset=0.3, exact=True),
        jobs.row("not measured", 0.5, 0.1, exact=True),
    ]
    for name, of in (("NOISES", 0.1), ("TERMS", 2), ("LOADS", 1.0)):
        monkeypatch.setattr(constructions, name, (of,))
    for kind in ("own readoffs, 2 on", "fitted readoffs, held out, 3 on"):
        made.append(jobs.row(f"noise 0.1 on the weights, {kind}", 0.1, 0.1))
    made.append(jobs.row("sum of 2 ANDs of disjoint pairs, 4 on", 0.1, 0.1))
    made.append(jobs.row("misfires, m p / d0 = 1", 0.1, 0.1))
    rows = {one["name"]: [one] for one in made}
    capacity = {"capacity": [[4, 10, 20.0]], "slope": 0.5, "cosine": 0.3}
    texts(constructions.verdict(rows, capacity))


def test_the_page(monkeypatch: pytest.MonkeyPatch, texts) -> None:
    def few(plan):
        kept = ("noise", "sum-", "misfires", "capacity", "affine", "xor")
        return {name: made for name, made in jobs.grid(plan).items() if name.startswith(kept)}

    monkeypatch.setattr(jobs, "SAMPLES", 50)
    study = dataclasses.replace(find("artefacts", "superposition/constructions"), grid=few)
    result = study.run("small", 1, Runner(workers=1))
    texts(result.verdict)
    assert {q.of for q in result.quantities} == {row[0] for row in result.tables()[2].rows}
    plan = study.plan("small", 2, Runner())
    names = [job.name for made in jobs.grid(plan).values() for job in made]
    assert len(set(names)) == len(names)
