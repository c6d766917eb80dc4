"""Do trained heads reach the skip-bigram capacity? `open/bigram-capacity`.

The data are random bigrams B of m unit f-vectors in d dimensions. A head has rank r. The load is
the number of bigrams per entry of W_Q (d r entries, as many as W_K has), from 1/16 to 2. Three
heads implement each B:

    svd        the paper's construction: the best rank-r approximation of the sum of the bigrams'
               outer products
    logistic   trained to classify pairs as bigrams: mean logistic loss of the bigrams plus five
               times that of all other pairs
    attention  trained as attention: cross-entropy of the softmax over all m keys, where a bigram's
               key is the target of its query

Training uses full batches and Adam with a cosine schedule. Two quantities are measured over all
pairs. The AUC within queries is the probability that a bigram scores higher than another pair with
the same query. The signal-to-noise ratio is the difference of means over the standard deviation of
the other pairs. The capacity of a head is the load at which the AUC within queries falls to 0.95,
interpolated on a logarithmic scale.

"Computation in superposition", section 3, asks this question.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp_studies.claims import Claim, JudgedClaim, clauses, judge
from interp_studies.jobs.attempt import Outcome
from interp_studies.result import FRESH, StudyResult
from interp_studies.study import Grid, Plan, Study, StudyRun, Values
from interp_toolkit import plots
from interp_toolkit.plots import shade
from interp_toolkit.results import Figure, Table
from interp_toolkit.toys.superposition.layers.layer import random_unit_features
from interp_toolkit.toys.superposition.skip_bigrams import (
    QKHead,
    bigram_matrix,
    presence,
    random_bigrams,
    svd_head,
)

SEEDS = 6
D_MODEL, D_HEAD, FEATURES = 48, 12, 192
LOADS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0)
STEPS, RATE = 600, 0.02
OTHERS = 5.0  # weight of other pairs' mean loss beside the bigrams'
HEADS = ("svd", "logistic", "attention")
ENOUGH = 0.95


def trained_job(
    *,
    folder: Path,
    load: float,
    seed: int,
    sizes: tuple[int, int, int],
    steps: int,
    rate: float,
    others: float,
) -> Outcome:
    """Train the three heads on one set of bigrams; `sizes` are d, r and m."""
    d_model, d_head, n_features = sizes
    features = random_unit_features(n_features, d_model, torch.Generator().manual_seed(seed))
    bigrams = random_bigrams(n_features, max(1, round(load * d_model * d_head)), seed)
    present = presence(bigrams, n_features, n_features)
    heads = {"svd": svd_head(bigram_matrix(bigrams, features, features), d_head)}
    for name in HEADS[1:]:
        heads[name] = train(features, present, d_head, name, seed, steps, rate, others)
    values: dict[str, Any] = {"load": load, "seed": seed, "n": len(bigrams)}
    for name, head in heads.items():
        values[name] = quality(head.scores(features, features), present)
    return Outcome(values)


def train(
    features: Float[Tensor, "feature d_model"],
    present: Bool[Tensor, "query key"],
    d_head: int,
    loss: str,
    seed: int,
    steps: int,
    rate: float,
    others: float,
) -> QKHead:
    """Train W_Q and W_K from a random initialization; see the module.

    `others` is the weight of the other pairs' mean logistic loss, relative to that of the bigrams.
    """
    generator = torch.Generator().manual_seed(seed)
    d_model, scale = features.shape[1], 1 / math.sqrt(features.shape[1])
    weights = [torch.randn(d_model, d_head, generator=generator) * scale for _ in range(2)]
    W_Q, W_K, bias = (w.requires_grad_() for w in (*weights, torch.zeros(1)))
    optimiser = torch.optim.Adam([W_Q, W_K, bias], lr=rate)
    vectors, wanted = features.float(), present.float()
    n_right, n_other = wanted.sum(), (1 - wanted).sum()
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = rate * 0.5 * (1 + math.cos(math.pi * step / steps))
        scores = (vectors @ W_Q) @ (vectors @ W_K).T
        if loss == "attention":
            cost = -(torch.log_softmax(scores, dim=1) * wanted).sum() / n_right
        else:
            signed = torch.nn.functional.softplus((scores + bias) * (1 - 2 * wanted))
            cost = (signed * wanted).sum() / n_right
            cost = cost + others * (signed * (1 - wanted)).sum() / n_other
        optimiser.zero_grad()
        torch.autograd.backward(cost)
        optimiser.step()
    return QKHead(W_Q.detach().double(), W_K.detach().double())


def quality(
    scores: Float[Tensor, "query key"], present: Bool[Tensor, "query key"]
) -> dict[str, float]:
    """AUC within queries, and signal to noise; see the module."""
    shares = []
    for row, right in zip(scores, present, strict=True):
        if right.any() and not right.all():
            others = row[~right].sort().values
            below = torch.searchsorted(others, row[right])
            upto = torch.searchsorted(others, row[right], right=True)
            shares.append((below + upto).double() / (2 * len(others)))
    inside, outside = scores[present], scores[~present]
    ratio = (inside.mean() - outside.mean()) / outside.std(correction=0)
    return {"auc": float(torch.cat(shares).mean()), "ratio": float(ratio)}


def capacity(loads: Sequence[float], aucs: Sequence[float]) -> float:
    """The load at which the AUC first falls below ENOUGH, interpolated on a logarithmic scale.

    The first load if the AUC is below ENOUGH there; the last if it never falls below.
    """
    x, y = np.log(np.array(loads)), np.array(aucs)
    below = np.flatnonzero(y < ENOUGH)
    if not len(below):
        return float(loads[-1])
    after = int(below[0])
    if after == 0:
        return float(loads[0])
    share = (y[after - 1] - ENOUGH) / (y[after - 1] - y[after])
    return float(np.exp(x[after - 1] + share * (x[after] - x[after - 1])))


def grid(plan: Plan) -> Grid:
    """One set of bigrams at every load, with equal sizes and training."""
    sizes = (D_MODEL, D_HEAD, FEATURES)
    training: dict[str, Any] = {"steps": STEPS, "rate": RATE, "others": OTHERS}
    return {
        load: plan.each_seed(f"load-{load:g}", trained_job, load=load, sizes=sizes, **training)
        for load in LOADS
    }


def measures(values: Sequence[Values]) -> dict[str, list[float]]:
    """By seed: capacities, and signal-to-noise ratios relative to the construction."""
    by_seed: dict[str, list[float]] = {}
    for seed in sorted({v["seed"] for v in values}):
        of = sorted((v for v in values if v["seed"] == seed), key=lambda v: float(v["load"]))
        loads = [v["load"] for v in of]
        held = {head: capacity(loads, [v[head]["auc"] for v in of]) for head in HEADS}
        gains = [v["logistic"]["ratio"] / v["svd"]["ratio"] for v in of if v["load"] >= 0.25]
        for name, value in {
            **held,
            **{f"{head} beside": held[head] / held["svd"] for head in HEADS[1:]},
            "gain": statistics.geometric_mean(gains),
            "full": statistics.fmean(v["attention"]["auc"] for v in of if v["load"] == 1),
        }.items():
            by_seed.setdefault(name, []).append(value)
    return by_seed


CLAIMS = [  # made on seeds 0 to 5
    Claim(
        "svd",
        "the construction holds 0.2 to 0.45 skip-bigrams per entry of W_Q",
        above=0.2,
        below=0.45,
        overturned_by="a load outside at larger d",
        clauses=(
            f"the construction separates bigrams from a query's other keys (AUC {ENOUGH:g}) up "
            "to this many bigrams per entry of d x d_head:",
            "the construction's capacity, in bigrams per entry of d x d_head, is not 0.2 to 0.45:",
            "the construction's capacity, in bigrams per entry of d x d_head,",
        ),
        factor=True,
    ),
    *(
        Claim(
            f"{head} beside",
            f"heads trained {how} hold more than 1.5 times as many as the construction",
            above=1.5,
            overturned_by=overturned_by,
            clauses=(
                f"heads trained {how} hold more, by a factor of",
                f"heads trained {how} hold less than 1.5 times as many:",
                f"the factor by which heads trained {how} hold more",
            ),
            factor=True,
        )
        for head, how, overturned_by in (
            (
                "logistic",
                "by logistic loss on all pairs",
                "trained heads that stop at the construction's load",
            ),
            ("attention", "by cross-entropy of attention", "the same"),
        )
    ),
    Claim(
        "gain",
        "at loads from 1/4 on, training on all pairs raises the signal-to-noise ratio by a factor "
        "of 1.1 to 1.5",
        above=1.1,
        below=1.5,
        overturned_by="a factor outside at larger d",
        clauses=(
            "Training on all pairs raises the signal-to-noise ratio by a factor of",
            "Training on all pairs does not raise the signal-to-noise ratio by 1.1 to 1.5:",
            "The factor by which training on all pairs raises the signal-to-noise ratio",
        ),
        factor=True,
    ),
    Claim(
        "full",
        "at one skip-bigram per entry of W_Q the AUC within queries of heads trained by "
        "cross-entropy of attention is below 0.95",
        below=ENOUGH,
        overturned_by="a loss or time of training that reaches it",
        clauses=(
            f"at one bigram per entry the AUC of trained attention is below {ENOUGH:g}:",
            f"at one bigram per entry the AUC of trained attention is above {ENOUGH:g}:",
            f"whether the AUC of trained attention is below {ENOUGH:g} at one bigram per entry",
        ),
    ),
]


def verdict(findings: Sequence[JudgedClaim]) -> str:
    """Whether trained heads exceed the construction; one clause per claim."""
    outcomes = {finding.judgement for finding in findings[1:3]}
    answer = "Whether trained heads exceed it is undecided"
    if outcomes == {"confirmed"}:
        answer = "Trained heads exceed it"
    elif outcomes == {"refuted"}:
        answer = "Trained heads do not hold 1.5 times as many"
    svd, logistic, attention, gain, full = clauses(CLAIMS, findings)
    return f"{answer}: {svd}; {logistic}; {attention}. {gain}; {full}."


def report(run: StudyRun) -> StudyResult:
    """The claims, and median AUC and signal to noise by load."""
    findings = judge(CLAIMS, measures(run.values), "sets of bigrams")
    measured = (("AUC within queries", "auc"), ("signal / noise", "ratio"))

    def medians(head: str, of: str) -> list[float]:
        return [statistics.median(v[head][of] for v in run.by_point[load]) for load in LOADS]

    rows = [[head, name, *medians(head, of)] for head in HEADS for name, of in measured]
    caption = "By bigrams per entry of d x d_head; medians over sets of bigrams."
    table = Table("Heads by load", ["head", "measure", *(f"{x:g}" for x in LOADS)], rows, caption)
    across = plots.axis("bigrams per entry of d x d_head", "log")
    up = {"auc": plots.axis("AUC within queries", "linear")}
    up["ratio"] = plots.axis("signal / noise", "log")
    figures = [
        Figure(
            f"Trained heads: {name}",
            f"d = {D_MODEL}, d_head = {D_HEAD}, {FEATURES} features; medians.",
            [
                plots.line(LOADS, medians(head, of), shade(number, len(HEADS)), head)
                | plots.marked(plots.symbol(number), size=8)
                for number, head in enumerate(HEADS)
            ],
            plots.layout(across, up[of])
            | ({"shapes": [plots.at_y(ENOUGH)]} if of == "auc" else {}),
        )
        for name, of in measured
    ]
    sizes = {"d_model": D_MODEL, "d_head": D_HEAD, "features": FEATURES}
    return run.result(
        verdict(findings),
        settings={**sizes, "steps": STEPS, "rate": RATE, "others": OTHERS},
        claims=findings,
        details=[table],
        notes=[
            f"Random bigrams of {FEATURES} features, d = {D_MODEL}, d_head = {D_HEAD}, one feature "
            f"a token, {STEPS} steps of Adam on all pairs: what these losses find, not the most "
            "that a head can hold."
        ],
        plots=figures,
    )


BIGRAM_CAPACITY = Study(
    "open/bigram-capacity",
    "whether trained heads reach the skip-bigram capacity of the construction",
    "Computation in superposition, section 3 (left open)",
    {"small": f"{SEEDS} sets of bigrams at {len(LOADS)} loads; about 3 minutes"},
    grid,
    report,
    SEEDS,
    question="Do trained heads reach the skip-bigram capacity that the construction has?",
    first_seed=FRESH,
)
