"""Are p-values uniform where the null holds? Every null of the analyses, on models drawn anew.

A model or its data are drawn so that nothing is there to be found, one p-value is taken from each,
and their distribution is held against the uniform one:

- composition: one pair of heads of an untrained model, for queries, keys and values;
- own token, OV and QK: one head of an untrained model;
- each detector of heads: one head of an untrained model (a check on several controls at once, whose
  largest p counts, so it should be conservative);
- boolean: XOR of two random bits that the prompts do not hold, at the hooks of an untrained model;
- universal AND: an untrained MLP against the same weights in random order, "better" and "worse" (a
  rank among few copies, so in steps);
- roles: how largest-of-all sign flips judge noise of as many heads and measures;
- skip-bigrams: one pair of random features in a random head;
- universal keys: random values of random sets of features (a bound, so it should be conservative).

Then, unless nulls are asked for by name, whole analyses of untrained models, on rows and features
drawn beside them: how often do they say that something is there? Each says that it does so in at
most 5 %.

Kolmogorov and Smirnov's test, two-sided where a null is meant to be exact, and one-sided (are small
p-values too frequent?) for all; the shares at most 0.05 and 0.01 have Clopper and Pearson's 95 %
intervals. P-values are *too small* if a share lies above its level for certain, or the one-sided
test rejects at 0.01 over all nulls (Holm); else that was *not seen*, in as many runs.

Run: python benchmarks/calibration.py [--runs 500] [--only NAME ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy import stats

import interp_toolkit as it
from interp_toolkit.circuits.heads.scores import detect
from interp_toolkit.circuits.skip_bigrams.scores import p_values
from interp_toolkit.circuits.universal_keys.scores import chance_to_fit, least_function
from interp_toolkit.circuits.weights.composition import MODES, composition_scores
from interp_toolkit.circuits.weights.self_scores import weight_scores
from interp_toolkit.results import STATUS_TONES
from interp_toolkit.stats import holm, sign_flip_p_values
from interp_toolkit.toys.hand_set.untrained import random_model

DETECTORS = ("induction", "previous-token", "duplicate-token", "k-hop", "first-token")
LEVELS = (0.05, 0.01)
EXACT = {"skip-bigrams"}

Draws = Iterator[dict[str, float]]


def composition(runs: int) -> Draws:
    """One pair of heads a model."""
    for seed in range(runs):
        scores = composition_scores(random_model(seed, d_head=8, d_model=32))
        at = np.argwhere(~np.isnan(scores.p_value[0]))[0]
        yield {f"composition {m}": float(scores.p_value[(k, *at)]) for k, m in enumerate(MODES)}


def own_token(runs: int) -> Draws:
    """One head a model."""
    for seed in range(runs):
        frame = weight_scores(random_model(seed, n_layers=1, d_head=8, d_model=32))
        yield {f"own token, {c.upper()}": float(frame[f"{c}_p"].iloc[0]) for c in ("ov", "qk")}


def detectors(runs: int) -> Draws:
    """One head a model, by every detector."""
    for seed in range(runs):
        found = detect(random_model(seed, d_head=8, d_model=32), None, DETECTORS, seed=seed)
        yield {f"heads, {s.detector}": float(s.p_value[1, 0]) for s in found.scores}


def boolean(runs: int) -> Draws:
    """Two bits that have nothing to do with the prompts."""
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        model = random_model(seed, n_layers=1, d_head=8, d_model=16, d_vocab=8, n_ctx=8)
        tokens = rng.integers(0, 8, (240, 6))
        bits = {"a": rng.random(240) < 0.5, "b": rng.random(240) < 0.5}
        result = it.analyze(model, "xor", data={"tokens": tokens, "features": bits})
        yield {"boolean": min(s.held_out.p_value for s in result.sites if s.held_out is not None)}


def universal_and(runs: int) -> Draws:
    """An MLP of normal weights, which are no better in this order than in another."""
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        model = random_model(seed, n_layers=1, d_head=8, d_model=16, d_mlp=64, d_vocab=2, n_ctx=6)
        tokens = rng.integers(0, 2, (400, 5))
        bits = {f"f{k}": tokens[:, k] == 1 for k in range(5)}
        evidence = it.analyze(model, "uand", data={"tokens": tokens, "features": bits}).evidence
        if evidence.p_better is not None:
            yield {"universal AND, better than random": float(evidence.p_better)}


def roles(runs: int) -> Draws:
    """Noise of as many contrasts as eight heads have; the smallest p counts."""
    for seed in range(runs):
        noise = np.random.default_rng(seed).standard_t(3, (8 * 6, 24))
        yield {"roles": float(np.nanmin(sign_flip_p_values(noise, seed=seed)))}


def skip_bigrams(runs: int) -> Draws:
    """One pair of random directions in a random head."""
    d, d_head = 24, 6
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        W = rng.standard_normal((d, d_head)) @ rng.standard_normal((d_head, d))
        query, key = rng.standard_normal((2, d))
        a = query @ W
        t = np.sqrt(d) * (key / np.linalg.norm(key)) @ a / np.linalg.norm(a)
        yield {"skip-bigrams": float(p_values(np.array([t]), float(d))[0])}


def universal_keys(runs: int) -> Draws:
    """Ten sets of three features with values that have nothing to do with them."""
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        on, value = rng.random((10, 3)) < 0.5, rng.permutation(10) < 5
        found = least_function(on, value)
        p = 1.0 if found is None else chance_to_fit(on, value, len(found.features))
        yield {"universal keys": p}


NULLS: dict[str, Callable[[int], Draws]] = {
    "composition": composition,
    "own-token": own_token,
    "heads": detectors,
    "boolean": boolean,
    "uand": universal_and,
    "roles": roles,
    "skip-bigrams": skip_bigrams,
    "universal-keys": universal_keys,
}
WHOLE = ("heads", "composition", "qk", "ov", "skip-bigrams", "xor", "uand", "collapse", "circuit")


def verdicts(runs: int) -> Iterator[dict[str, str]]:
    """The status of each whole analysis, of one untrained model each."""
    sizes = {"n_layers": 2, "n_heads": 4, "d_head": 8, "d_model": 32, "d_mlp": 64}
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        model = random_model(seed, **sizes, d_vocab=50, n_ctx=32)
        tokens = rng.integers(0, 50, (240, 8))
        bits = {"a": rng.random(240) < 0.5, "b": rng.random(240) < 0.5}
        featured = {"data": {"tokens": tokens, "features": bits}, "seed": seed}
        given = {"xor": featured, "uand": featured, "circuit": {"data": tokens[:32], "seed": seed}}
        yield {name: it.analyze(model, name, **given.get(name, {})).status for name in WHOLE}


def counted(found: list[dict[str, str]]) -> list[list[Any]]:
    """Of each analysis how often it says yes, and what it says else."""
    rows: list[list[Any]] = []
    for name in WHOLE:
        said = Counter(one[name] for one in found)
        yes = sum(n for status, n in said.items() if STATUS_TONES.get(status) == "yes")
        interval = stats.binomtest(yes, len(found)).proportion_ci(0.95, method="exact")
        share = f"{yes / len(found):.3f} ({interval.low:.3f} to {interval.high:.3f})"
        words = ", ".join(f"{status.replace('_', ' ')} {n}" for status, n in said.most_common())
        rows.append([name, len(found), share, words])
    return rows


def judged(name: str, values: list[float]) -> dict[str, Any]:
    """What a null's p-values say."""
    p = np.array(values)
    row: dict[str, Any] = {"null": name, "runs": len(p)}
    for level in LEVELS:
        found = stats.binomtest(int((p <= level).sum()), len(p))
        interval = found.proportion_ci(0.95, method="exact")
        row[f"at most {level}"] = [found.statistic, float(interval.low), float(interval.high)]
    row["too small"] = float(stats.kstest(p, "uniform", alternative="greater").pvalue)
    row["uniform"] = float(stats.kstest(p, "uniform").pvalue) if name in EXACT else None
    return row


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=500, help="of each null")
    parser.add_argument("--models", type=int, default=200, help="for whole analyses")
    parser.add_argument("--only", nargs="*", choices=list(NULLS), default=list(NULLS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found: dict[str, list[float]] = {}
    for name in options.only:
        for values in track(NULLS[name](options.runs), name, total=options.runs):
            for null, p in values.items():
                found.setdefault(null, []).append(p)
    rows = [judged(name, values) for name, values in found.items()]
    adjusted = holm(np.array([row["too small"] for row in rows]))
    for row, p in zip(rows, adjusted.tolist(), strict=True):
        above = any(row[f"at most {level}"][1] > level for level in LEVELS)
        row["says"] = "too small" if above or p <= 0.01 else "not seen"
    heads = ["null", "runs", "p ≤ 0.05", "p ≤ 0.01", "too small, p", "uniform, p", "too small?"]
    cells = [
        [
            row["null"],
            row["runs"],
            *("{:.3f} ({:.3f} to {:.3f})".format(*row[f"at most {level}"]) for level in LEVELS),
            f"{row['too small']:.2g}",
            None if row["uniform"] is None else f"{row['uniform']:.2g}",
            row["says"],
        ]
        for row in rows
    ]
    table = Table()
    for head in heads:
        table.add_column(head)
    for line in cells:
        table.add_row(*("-" if cell is None else str(cell) for cell in line))
    console = Console(width=140)
    console.print(table)
    tables = [{"title": "Nulls", "columns": heads, "rows": cells}]
    if options.only == list(NULLS):
        asked = track(verdicts(options.models), "whole analyses", total=options.models)
        said, whole = counted(list(asked)), Table("analysis", "models", "says yes", "statuses")
        for line in said:
            whole.add_row(*map(str, line))
        console.print(whole)
        tables.append(
            {"title": "Whole", "columns": [c.header for c in whole.columns], "rows": said}
        )
    if options.json:
        options.json.write_text(json.dumps({"nulls": rows, "tables": tables}, indent=1) + "\n")


if __name__ == "__main__":
    main()
