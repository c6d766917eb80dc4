"""Remarks of the paper that have a closed form, beside what is measured: `superposition/remarks`.

- *XOR as one vector* (1.2): f_i + f_j - 2 f_AND(i,j) reads XOR from a sum of random unit vectors.
  Each vector v that is on and is none of the three adds (f_i + f_j - 2 f_AND) . v, of variance 6/d
  (`reader_rms`).
- *Noise budgets* (2): a sum of k readouts that err by e is off by k e if the errors are equal, and
  by sqrt(k) e (root mean square) if they are independent. The paper asks e < 1/k and, of
  independent errors, e < 1/k^2; 1/sqrt(k) is enough.
- *All functions of at most k inputs* (1.4): a truth table is a sum of ANDs with the coefficients of
  its Moebius expansion, so one vector reads it, with the root of the sum of their squares times the
  error of one reading.
- *Products of continuous variables* (1.5): under squares, (v_i . x)(v_j . x) reads a_i a_j from
  x = sum of a_k v_k, with k over s of m random unit vectors in r dimensions. With neither on its
  error is (sum of a^2) / r, root mean square.
- *Cliques of mixed sizes* (3.3): signal to noise is d / sqrt(E) for E bigrams in all cliques
  together, whatever their sizes; noise over random pairs. The paper bounds E by d; its own count
  of d^2 bigrams follows from E < d^2.
- *A linear structure* (intro of 3): features e_a + e'_b, and a head that compares a: n_a dimensions
  hold n_a n_b^2 bigrams exactly, where d_head bigrams in general position need d_head dimensions.
- *Bits* (2): the neuron picture names d subsets of d0 p out of d0 inputs, the pair picture one
  subset of d p^2 out of d neurons for each of the d0 (d0 - 1) / 2 pairs.
Source: "Computation in superposition", sections 1.2, 1.4, 1.5, 2 and 3.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln

from interp_studies.jobs.attempt import Outcome
from interp_studies.result import DESCRIBED, StudyResult, compare
from interp_studies.study import Grid, Plan, Study, StudyRun
from interp_toolkit import plots
from interp_toolkit.boolean_functions import mobius
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL
from interp_toolkit.results import Figure, Table

SEEDS = 3
DRAWS = 2_000

Vectors = Float[np.ndarray, "n d"]


def unit(rng: np.random.Generator, n: int, d: int) -> Vectors:
    """Random unit vectors."""
    drawn = rng.standard_normal((n, d))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


def reader_rms(
    weights: Float[np.ndarray, " vector"], on: Float[np.ndarray, "*input vector"], d: int
) -> Float[np.ndarray, "*input"]:
    """Root mean square error of the reader sum of w_s v_s of the vectors that are on.

    The vectors are random, of length 1 in d dimensions: each v_s . v_t has variance 1/d, and its
    factor is w_s on_t + w_t on_s.

    Args:
        weights: w of every vector; those that the reader lacks have 0.
        on: 1 for each vector that is on in an input, else 0.
        d: dimensions.
    """
    squared = np.square(weights)
    both = squared.sum() * on.sum(axis=-1) + np.square(on @ weights) - 2 * (on @ squared)
    return np.asarray(np.sqrt(np.maximum(both, 0) / d))


def xor_vector(*, folder: Path, m: int, d: int, seed: int) -> Outcome:
    """All pairs of m features read by one vector each, on all inputs with two features on."""
    rng = np.random.default_rng(seed)
    pairs = list(combinations(range(m), 2))
    features, ands = unit(rng, m, d), unit(rng, len(pairs), d)
    first, second = np.array(pairs).T
    readers = features[first] + features[second] - 2 * ands
    inputs = features[first] + features[second] + ands
    scores = readers @ inputs.T
    bits = np.zeros((len(pairs), m), bool)
    bits[np.arange(len(pairs))[:, None], np.array(pairs)] = True
    on = bits[:, first].astype(int) + bits[:, second]  # input by pair
    errors = scores - (on.T == 1)
    values = {
        f"XOR as one vector, m = {m}, d = {d}, {('neither', 'one', 'both')[own]} on": (
            float(np.sqrt(np.square(errors[own == on.T]).mean())),
            float(reader_rms(*_of_xor(own), d)),
        )
        for own in range(3)
    }
    return Outcome({"rows": _rows(values), "worst": float(np.abs(errors).max())})


def _of_xor(own: int) -> tuple[Float[np.ndarray, " vector"], Float[np.ndarray, " vector"]]:
    """The XOR vector, and two features and their AND that are on, `own` of the pair's features."""
    weights = np.array([1.0, 1.0, -2.0, 0.0, 0.0, 0.0])  # the pair's features and AND, then others
    on = {0: [0, 0, 0, 1, 1, 1], 1: [1, 0, 0, 1, 1, 0], 2: [1, 1, 1, 0, 0, 0]}[own]
    return weights, np.array(on, float)


def summed_rms(k: int, error: float, *, equal: bool) -> float:
    """Root mean square error of a sum of k readouts that each err by this much."""
    return error * (k if equal else math.sqrt(k))


def budgets(*, folder: Path, k: int, seed: int) -> Outcome:
    """Sums of k readouts with errors of standard deviation 1."""
    rng = np.random.default_rng(seed)
    equal = k * rng.standard_normal(DRAWS)
    independent = rng.standard_normal((DRAWS, k)).sum(axis=1)
    values = {
        f"sum of {k} readouts, {name} errors": (
            float(np.sqrt(np.square(errors).mean())),
            summed_rms(k, 1.0, equal=name == "equal"),
        )
        for name, errors in (("equal", equal), ("independent", independent))
    }
    return Outcome({"rows": _rows(values)})


def universal(*, folder: Path, k: int, m: int, d: int, seed: int) -> Outcome:
    """All functions of k of m features, from their ANDs of all fan-ins up to k in superposition."""
    rng = np.random.default_rng(seed)
    sets = [s for size in range(1, k + 1) for s in combinations(range(m), size)]
    number, vectors = {s: i for i, s in enumerate(sets)}, unit(rng, len(sets), d)
    inputs = np.array(list(product([0, 1], repeat=m)), bool)
    inputs = inputs[inputs.sum(axis=1) <= k]
    on = np.stack([inputs[:, list(s)].all(axis=1) for s in sets], axis=1)
    residuals = on.astype(float) @ vectors
    tables = [format(code, f"0{2**k}b") for code in range(2 ** (2**k))]
    squares, expected = [], []
    for chosen in combinations(range(m), k):
        index = inputs[:, list(chosen)] @ (1 << np.arange(k)[::-1])
        for table in tables:
            terms, weights = mobius(table), np.zeros(len(sets))
            for one, c in terms.items():
                if one:
                    weights[number[tuple(chosen[i] for i in one)]] = c
            value = residuals @ (weights @ vectors) + terms.get((), 0)
            truth = np.array([int(bit) for bit in table])[index]
            squares.append(np.square(value - truth).mean())
            expected.append(np.square(reader_rms(weights, on.astype(float), d)).mean())
    name = f"all {2 ** (2**k)} functions of each {k} of {m} features, d = {d}"
    values = {name: (math.sqrt(np.mean(squares)), math.sqrt(np.mean(expected)))}
    return Outcome({"rows": _rows(values)})


def product_rms(sum_of_squares: float, r: int) -> float:
    """Root mean square error of (v_i . x)(v_j . x) where neither i nor j is on."""
    return sum_of_squares / r


def products(*, folder: Path, m: int, r: int, s: int, seed: int) -> Outcome:
    """Products of continuous variables under squares, read where neither is on, and where both."""
    rng = np.random.default_rng(seed)
    v = unit(rng, m, r)
    off, both, expected = [], [], []
    for _ in range(DRAWS):
        chosen = rng.permutation(m)[: s + 2]
        a = rng.standard_normal(s)
        read = v @ (a @ v[chosen[:s]])
        i, j = chosen[s], chosen[s + 1]
        off.append(read[i] * read[j])
        both.append(read[chosen[0]] * read[chosen[1]] - a[0] * a[1])
        expected.append(product_rms(float(a @ a), r))
    rms = float(np.sqrt(np.square(off).mean()))
    values = {
        f"products, r = {r}, {s} of {m} on": (rms, float(np.sqrt(np.square(expected).mean())))
    }
    return Outcome({"rows": _rows(values), "both on": float(np.sqrt(np.square(both).mean()))})


def clique_ratio(sizes: Sequence[tuple[int, int]], d: int) -> float:
    """Signal to noise over random pairs for cliques of these sizes."""
    return d / math.sqrt(sum(keys * queries for keys, queries in sizes))


def cliques(*, folder: Path, sizes: Sequence[Sequence[int]], d: int, seed: int) -> Outcome:
    """Cliques of mixed sizes of disjoint features, one dimension of the head each.

    Noise is given over random pairs of features in no clique, and over all pairs outside.
    """
    rng = np.random.default_rng(seed)
    chosen = [(int(k), int(q)) for k, q in sizes]
    keys, queries = (unit(rng, sum(pair[side] for pair in chosen), d) for side in (0, 1))
    ends = [np.cumsum([0, *(pair[side] for pair in chosen)]) for side in (0, 1)]
    blocks = [(slice(*ends[0][c : c + 2]), slice(*ends[1][c : c + 2])) for c in range(len(chosen))]
    left = np.stack([queries[q].sum(axis=0) for _, q in blocks])
    right = np.stack([keys[k].sum(axis=0) for k, _ in blocks])
    scores = (queries @ left.T) @ (right @ keys.T)
    inside = np.zeros_like(scores, bool)
    for k, q in blocks:
        inside[q, k] = True
    strangers = unit(rng, 400, d), unit(rng, 400, d)
    apart = (strangers[0] @ left.T) @ (right @ strangers[1].T)
    signal = float(scores[inside].mean())
    ratio, over_all = signal / float(apart.std()), signal / float(scores[~inside].std())
    name = f"cliques of {', '.join(f'{k} x {q}' for k, q in sorted(set(chosen)))}, d = {d}"
    row = _rows({f"{name}, noise of random pairs": (ratio, clique_ratio(chosen, d))})
    edges = sum(k * q for k, q in chosen)
    return Outcome({"rows": row, "over all other pairs": over_all, "bigrams": edges})


def linear_structure(*, folder: Path, n_a: int, n_b: int, seed: int) -> Outcome:
    """Features e_a + e'_b, compared in a: scores of all pairs."""
    a, b = np.divmod(np.arange(n_a * n_b), n_b)
    features = np.concatenate([np.eye(n_a)[a], np.eye(n_b)[b]], axis=1)
    W = np.zeros((n_a + n_b, n_a + n_b))
    W[:n_a, :n_a] = np.eye(n_a)
    scores = features @ W @ features.T
    wanted = a[:, None] == a
    worst = float(np.abs(scores - wanted).max())
    name = f"{n_a} x {n_b} features in {n_a + n_b} dimensions: bigrams of {n_a} dimensions"
    held = float((scores > 0.5).sum())
    return Outcome({"rows": _rows({name: (held, float(n_a * n_b**2))}), "worst": worst})


def log2_choose(n: float | int, k: float | int) -> float:
    """log2 of n over k."""
    return float((gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)) / math.log(2))


def bits(d0: int, d: int, p: float) -> dict[str, float]:
    """Bits that name the connections of U-AND: by neuron, by pair, and one for each weight."""
    return {
        "neurons": d * log2_choose(d0, d0 * p),
        "pairs": d0 * (d0 - 1) / 2 * log2_choose(d, max(1.0, d * p * p)),
        "weights": float(d * d0),
    }


def _rows(values: Mapping[str, tuple[float, float]]) -> list[dict[str, Any]]:
    return [{"name": n, "measured": one, "expected": of} for n, (one, of) in values.items()]


MIXED = ([(8, 8)] * 8 + [(4, 16)] * 8 + [(16, 32)] * 4, [(1, 64)] * 8 + [(24, 24)] * 4)
U_ANDS = ((64, 1_024, 0.2), (128, 4_096, 0.125), (512, 4_096, 0.15), (1_024, 1_024, 0.1))


def grid(plan: Plan) -> Grid:
    """The measurements, at each seed."""
    points: dict[str, Any] = {
        "xor": plan.each_seed("xor", xor_vector, m=32, d=1_024),
        "universal-2": plan.each_seed("universal-2", universal, k=2, m=10, d=1_024),
        "universal-3": plan.each_seed("universal-3", universal, k=3, m=8, d=1_024),
        "structure": plan.each_seed("structure", linear_structure, n_a=32, n_b=32),
    }
    for k in (2, 8, 32):
        points[f"budget-{k}"] = plan.each_seed(f"budget-{k}", budgets, k=k)
    for s in (2, 8):
        name = f"products-{s}"
        points[name] = plan.each_seed(name, products, m=2_048, r=512, s=s)
    for number, sizes in enumerate(MIXED):
        name = f"cliques-{number}"
        points[name] = plan.each_seed(name, cliques, sizes=sizes, d=128)
    return points


def report(run: StudyRun) -> StudyResult:
    """Each remark: the closed form and the measured value."""
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for values in run.values:
        for one in values["rows"]:
            rows.setdefault(one["name"], []).append(one)
    measured = {n: statistics.median(float(o["measured"]) for o in of) for n, of in rows.items()}
    expected = {n: statistics.median(float(o["expected"]) for o in of) for n, of in rows.items()}
    off = {n: abs(measured[n] / expected[n] - 1) for n in rows}
    largest = max(off, key=off.__getitem__)
    per_and = [(*sizes, bits(*sizes)) for sizes in U_ANDS]
    over_all = [v["over all other pairs"] for v in run.values if "over all other pairs" in v]
    least = min(over_all)
    return run.result(
        f"Closed forms and measurements differ by at most {100 * off[largest]:.0f} % (median over "
        f"seeds; {largest}). Sums of k readouts with independent errors grow as sqrt(k), so an "
        "error below 1/sqrt(k) is enough, where the source asks for 1/k^2. Cliques of mixed sizes "
        "keep d / sqrt(bigrams) over random pairs and less over all other pairs "
        f"(at least {least:.2f}), since these share features with cliques. To name U-AND's "
        "connections by neurons takes fewer bits than by pairs at every size measured.",
        settings={"dtype": "float64"},
        evidence=DESCRIBED,
        quantities=[
            compare(name, "measured", [float(o["measured"]) for o in of], unit="")
            for name, of in rows.items()
        ],
        details=[
            Table(
                "Closed forms",
                ["remark", "closed form", "measured"],
                [[name, expected[name], measured[name]] for name in rows],
                "Medians over seeds. XOR, functions, products: root mean square errors.",
            ),
            Table(
                "Bits that name the connections of U-AND",
                ["d0", "d", "p", "by neurons", "by pairs", "one a weight"],
                [
                    [d0, d, p, *(float(f"{of[n]:.3g}") for n in ("neurons", "pairs", "weights"))]
                    for d0, d, p, of in per_and
                ],
            ),
        ],
        plots=[_figure(measured, expected)],
    )


def _figure(measured: Mapping[str, float], expected: Mapping[str, float]) -> Figure:
    names = list(measured)
    series = (
        ("measured", measured, CLASS_COLORS[1], "diamond"),
        ("closed form", expected, NEUTRAL, "line-ns-open"),
    )
    return Figure(
        "Closed forms and measurements",
        "Medians over seeds.",
        [
            plots.markers([of[n] for n in names], names, color, label, symbol=symbol, size=8)
            for label, of, color, symbol in series
        ],
        plots.layout(plots.axis("value", "log"), {"automargin": True, "dtick": 1} | plots.DOWNWARD)
        | {"height": 26 * len(names) + 120},
    )


REMARKS = Study(
    "superposition/remarks",
    "remarks of the paper with a closed form: XOR vectors, noise budgets, bits and others",
    "Computation in superposition, sections 1.2, 1.4, 1.5, 2 and 3",
    {"small": f"{SEEDS} draws in float64; seconds"},
    grid,
    report,
    SEEDS,
)
