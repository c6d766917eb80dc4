"""How many skip-bigrams a head of given rank can implement: `superposition/skip-bigrams`.

Signal to noise is the mean score of the bigrams over the standard deviation of all other pairs.
Beside it stands the ratio over random pairs, of features that are in no bigram, which the paper's
estimates are about: pairs that share a feature with a bigram add noise.
There are four kinds of sets B, of random unit f-vectors in d dimensions, for a head of rank r:

- random pairs, 1/16 to 2 per entry of W_Q (d r entries), by the best rank-r approximation (SVD) and
  by a random projection, whose noise has a closed form (`projection_noise`)
- r cliques K x Q of disjoint features, |K| = |Q| = k, with rank one each: the paper's bound, noise
  k sqrt(r) / d < 1, allows k = d / sqrt(r), d^2 bigrams in total
- r cliques with one key feature each: the paper allows up to r d features
- the identity, feature i in query and key: any projection works, for any number of features.
Source: "Computation in superposition", sections 3.2 and 3.3.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from interp_studies.jobs.attempt import Outcome
from interp_studies.result import DESCRIBED, StudyResult, compare
from interp_studies.study import Grid, Plan, Study, StudyRun, Values
from interp_toolkit import plots
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL
from interp_toolkit.results import Figure, Table
from interp_toolkit.toys.superposition.layers.layer import random_unit_features
from interp_toolkit.toys.superposition.skip_bigrams import (
    Bigram,
    QKHead,
    bigram_matrix,
    projected_head,
    projection_noise,
    random_bigrams,
    score_quality,
    svd_head,
)

SEEDS = 3
D_MODEL, D_HEAD, FEATURES = 128, 32, 512
LOADS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0)  # bigrams for each of the d r numbers
CLIQUE_RANK = 16
CLIQUE_SIZES = (4, 8, 16, 32, 64)  # d / sqrt(r) is 32
LONE_SIZES = (8, 32, 128, 512)  # query features to one key feature
PARTS = ("signal", "noise", "ratio", "random", "auc")
STRANGERS = 500  # features in no bigram, on each side
IDENTITIES = (128, 256, 512, 1_024, 2_048)


def random_job(*, folder: Path, load: float, seed: int, sizes: tuple[int, int, int]) -> Outcome:
    """Random pairs: signal to noise of both heads, and the projection's expected noise."""
    d_model, d_head, n_features = sizes
    n_bigrams = round(load * d_model * d_head)
    features = _features(n_features, d_model, seed)
    bigrams = random_bigrams(n_features, n_bigrams, seed)
    W = bigram_matrix(bigrams, features, features)
    values: dict[str, Any] = {"load": load, "n": n_bigrams}
    for name, head in (("svd", svd_head(W, d_head)), ("projected", projected_head(W, d_head))):
        values |= _quality(head, features, features, bigrams, name)
    expected = math.sqrt(projection_noise(n_bigrams, d_model, d_head, n_features))
    return Outcome({**values, "projected_expected": 1 / expected})


def clique_job(
    *, folder: Path, n_keys: int, n_queries: int, rank: int, d_model: int, seed: int
) -> Outcome:
    """As many cliques of disjoint features as the head has dimensions, one dimension each."""
    keys = _features(rank * n_keys, d_model, 2 * seed)
    queries = _features(rank * n_queries, d_model, 2 * seed + 1)
    head = QKHead(
        queries.reshape(rank, n_queries, d_model).sum(dim=1).T.contiguous(),
        keys.reshape(rank, n_keys, d_model).sum(dim=1).T.contiguous(),
    )
    bigrams = [
        (c * n_keys + k, c * n_queries + q)
        for c in range(rank)
        for k in range(n_keys)
        for q in range(n_queries)
    ]
    found = _quality(head, queries, keys, bigrams, "exact")
    noise = math.sqrt(rank * n_keys * n_queries) / d_model
    sizes = {"n": len(bigrams), "features": rank * (n_keys + n_queries), "source_noise": noise}
    return Outcome({**found, **sizes, "n_keys": n_keys, "n_queries": n_queries})


def identity_job(*, folder: Path, n_features: int, d_model: int, d_head: int, seed: int) -> Outcome:
    """Feature i in query and key, by the best approximation and by a projection."""
    features = _features(n_features, d_model, seed)
    bigrams = [(i, i) for i in range(n_features)]
    W = bigram_matrix(bigrams, features, features)
    alone = projected_head(torch.eye(d_model, dtype=torch.float64), d_head, seed)
    values: dict[str, Any] = {"n": n_features}
    for name, head in (("svd", svd_head(W, d_head)), ("projection", alone)):
        values |= _quality(head, features, features, bigrams, name)
    return Outcome(values)


def _features(n: int, d_model: int, seed: int) -> torch.Tensor:
    return random_unit_features(n, d_model, torch.Generator().manual_seed(seed))


def _quality(
    head: QKHead,
    queries: torch.Tensor,
    keys: torch.Tensor,
    bigrams: Sequence[Bigram],
    name: str,
) -> dict[str, float]:
    quality = score_quality(head.scores(queries, keys), bigrams)
    d_model = queries.shape[1]
    strangers = [_features(STRANGERS, d_model, 7_001 + side) for side in range(2)]
    apart = head.scores(*strangers)
    return {
        f"{name}_random": quality.signal / float(apart.std()),
        f"{name}_ratio": quality.signal / quality.noise,
        f"{name}_auc": quality.auc,
        f"{name}_signal": quality.signal,
        f"{name}_noise": quality.noise,
    }


#: by kind: what its size is called, and the ratios that are shown
KINDS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "random": ("load", {"SVD": "svd_ratio", "projection": "projected_ratio"}),
    "cliques": ("n_keys", {"a rank a clique": "exact_ratio"}),
    "one key": ("n_queries", {"a rank a clique": "exact_ratio"}),
    "identity": ("n", {"SVD": "svd_ratio", "projection": "projection_ratio"}),
}


def grid(plan: Plan) -> Grid:
    """All kinds of sets, at all sizes."""
    cliques = {"rank": CLIQUE_RANK, "d_model": D_MODEL}
    points: dict[tuple[str, float | int], tuple[str, Callable[..., Outcome], dict[str, Any]]] = {}
    for load in LOADS:
        sizes = (D_MODEL, D_HEAD, FEATURES)
        points["random", load] = f"random-{load:g}", random_job, {"load": load, "sizes": sizes}
    for k in CLIQUE_SIZES:
        sides = {"n_keys": k, "n_queries": k}
        points["cliques", k] = f"cliques-{k}", clique_job, {**sides, **cliques}
    for n in LONE_SIZES:
        sides = {"n_keys": 1, "n_queries": n}
        points["one key", n] = f"one-key-{n}", clique_job, {**sides, **cliques}
    for m in IDENTITIES:
        heads = {"n_features": m, "d_model": D_MODEL, "d_head": D_HEAD}
        points["identity", m] = f"identity-{m}", identity_job, heads
    return {
        point: plan.each_seed(name, function, **arguments)
        for point, (name, function, arguments) in points.items()
    }


ByKind = Mapping[str, Mapping[float, Sequence[Values]]]  # by kind and size, one per seed


def _medians(by_size: Mapping[float, Sequence[Values]], key: str) -> dict[float, float]:
    return {size: statistics.median(v[key] for v in of) for size, of in by_size.items()}


def verdict(by_kind: ByKind) -> str:
    """Signal to noise of each kind, at the sizes that the paper discusses."""
    svd = _medians(by_kind["random"], "svd_ratio")
    loads = ", ".join(f"{svd[x]:.1f} at {x:g}" for x in LOADS)
    of_strangers = _medians(by_kind["random"], "svd_random")
    strangers = ", ".join(f"{of_strangers[x]:.1f}" for x in LOADS)
    cliques = _medians(by_kind["cliques"], "exact_ratio")
    bound = round(D_MODEL / math.sqrt(CLIQUE_RANK))
    lone = _medians(by_kind["one key"], "exact_ratio")
    same = _medians(by_kind["identity"], "projection_ratio")
    first, last = min(same), max(same)
    return (
        f"Random bigrams, d = {D_MODEL}, d_head = {D_HEAD}: signal-to-noise ratio over all other "
        f"pairs {loads} bigrams per entry of d x d_head ({strangers} over random pairs). "
        f"{CLIQUE_RANK} cliques of k x k: {cliques[bound]:.1f} "
        f"at k = d/sqrt(d_head) = {bound}, {CLIQUE_RANK * bound**2:,} bigrams = d², where the "
        f"source's noise equals the signal; with one key feature per clique {lone[D_MODEL]:.1f} "
        f"at {D_MODEL} query features, {CLIQUE_RANK * D_MODEL:,} features in total. The identity "
        f"graph: {same[first]:.1f} with {first:g} features and {same[last]:.1f} with {last:g}, "
        "about the square root of d_head. The source gives orders of growth and no figures."
    )


def load_figure(values: Mapping[float, Sequence[Values]]) -> Figure:
    """Random bigrams: signal to noise by load, and the projection's closed form."""
    data = []
    for number, (name, key) in enumerate(KINDS["random"][1].items()):
        points = _medians(values, key)
        data.append(
            plots.line(points, points.values(), CLASS_COLORS[number], name)
            | plots.marked(plots.symbol(number), size=8)
        )
    expected = _medians(values, "projected_expected")
    data.append(plots.dashed(expected, expected.values(), "projection, closed form"))
    layout = plots.layout(
        plots.axis("bigrams for each of d x d_head numbers", "log"),
        plots.axis("signal / noise", "log"),
    )
    layout |= {"shapes": [plots.at_y(1.0)]}
    caption = (
        f"Random bigrams of {FEATURES} features, d = {D_MODEL}, d_head = {D_HEAD}; medians over "
        "seeds. The dashed line at 1: a bigram's mean score is what other pairs scatter by."
    )
    return Figure("Skip-bigrams by number", caption, data, layout)


def clique_figure(by_kind: ByKind) -> Figure:
    """Cliques: signal to noise by the number of bigrams, and the noise that the paper predicts."""
    values = {kind: [v for of in by_size.values() for v in of] for kind, by_size in by_kind.items()}
    data = []
    for number, kind in enumerate(("cliques", "one key")):
        points = sorted((v["n"], v["exact_ratio"]) for v in values[kind])
        name = "k x k" if kind == "cliques" else "one key feature"
        x, y = zip(*points, strict=True)
        symbol = plots.symbol(number)
        data.append(plots.markers(x, y, CLASS_COLORS[number], name, symbol=symbol, size=8))
    bound = sorted({(v["n"], 1 / v["source_noise"]) for v in values["cliques"]})
    x, y = zip(*bound, strict=True)
    data.append(plots.line(x, y, NEUTRAL, "k x k, source's noise"))
    layout = plots.layout(plots.axis("bigrams", "log"), plots.axis("signal / noise", "log"))
    layout |= {"shapes": [plots.at_x(float(D_MODEL**2)), plots.at_y(1.0)]}
    caption = (
        f"{CLIQUE_RANK} cliques of disjoint features, d = {D_MODEL}, d_head = {CLIQUE_RANK}: a "
        "dimension of the head each. The vertical line: d² bigrams. The source counts pairs that "
        "hold neither feature of a clique; pairs that hold one add to the noise here."
    )
    return Figure("Superposed cliques", caption, data, layout)


def report(run: StudyRun) -> StudyResult:
    """Signal to noise of every kind, size and head."""
    by_kind: dict[str, dict[float, Sequence[Values]]] = {}
    for (kind, size), values in run.by_point.items():
        by_kind.setdefault(kind, {})[float(size)] = values
    quantities = [
        compare(
            f"{kind}, {head}",
            f"signal / noise at {of} = {size:g}",
            [float(v[key]) for v in values],
            unit="",
        )
        for kind, (of, heads) in KINDS.items()
        for head, key in heads.items()
        for size, values in by_kind[kind].items()
    ]
    quantities += [
        compare(
            f"{kind}, {head}",
            f"signal / noise of random pairs at {of} = {size:g}",
            [float(v[f"{key.removesuffix('_ratio')}_random"]) for v in values],
            unit="",
        )
        for kind, (of, heads) in KINDS.items()
        for head, key in heads.items()
        for size, values in by_kind[kind].items()
    ]
    rows = [
        [kind, v["n"], seed, head, *(v[f"{name}_{part}"] for part in PARTS)]
        for (kind, _), values in run.by_point.items()
        for seed, v in zip(run.seeds, values, strict=True)
        for head, key in KINDS[kind][1].items()
        for name in [key.removesuffix("_ratio")]
    ]
    columns = ["set", "bigrams", "seed", "head", "signal", "noise", "ratio", "random pairs", "AUC"]
    return run.result(
        verdict(by_kind),
        settings={"d_model": D_MODEL, "d_head": D_HEAD, "clique_rank": CLIQUE_RANK},
        evidence=DESCRIBED,
        quantities=quantities,
        details=[Table("Every seed", columns, rows)],
        plots=[load_figure(by_kind["random"]), clique_figure(by_kind)],
    )


SKIP_BIGRAMS = Study(
    "superposition/skip-bigrams",
    "how many skip-bigrams a head can implement: random pairs, cliques up to d², the identity",
    "Computation in superposition, section 3",
    {"small": f"{SEEDS} draws in float64; seconds"},
    grid,
    report,
    SEEDS,
)
