"""Are skip-bigrams found rightly? Error on random heads; echoes and numbers on planted ones.

- random heads: Gaussian W_Q and W_K with random features, and heads of untrained models on their
  embeddings: the share with any discovery, with the Clopper-Pearson upper bound at 95 %. It must be
  at most the stated level.
- planted heads: bigrams of 4 d_resid random unit features, cut to rank d_head by SVD; drawn one by
  one, one query for 8 keys ("hub") or in blocks of 4 x 4 ("clique"). AUC of |t| before pursuit,
  recall, echoes (discoveries that were not planted) among the discoveries, and the estimated
  number: how often it is given, and how often its interval covers the truth.

Run: python benchmarks/skip_bigram_levels.py [--heads 1000] [--seeds 5] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy import stats
from sklearn.metrics import roc_auc_score

from interp_toolkit.circuits.skip_bigrams.find import find_skip_bigrams
from interp_toolkit.circuits.skip_bigrams.head import skip_bigrams_of
from interp_toolkit.circuits.skip_bigrams.scores import Features, Form, PairScores
from interp_toolkit.models.transformer.config import Normalization
from interp_toolkit.report.html import write_text
from interp_toolkit.stats import LEVEL
from interp_toolkit.toys.hand_set.untrained import Positions, random_model

SIZES = ((64, 16), (128, 32), (256, 32))
FRACTIONS = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4)  # of d_resid * d_head
FEW = 1 / 16
BLOCKS = {"random": (1, 1), "hub": (1, 8), "clique": (4, 4)}  # queries, keys
POSITIONS: tuple[Positions, ...] = ("standard", "rotary", "none")
NORMS: tuple[Normalization | None, ...] = (None, "LN", "RMS")
CONFIDENCE = 0.95
MEMORY = 2**30


def random_heads(count: int) -> dict[str, Any]:
    """How many heads of random weights show anything."""
    wrong = 0
    for seed in track(range(count), "random heads"):
        rng = np.random.default_rng(seed)
        d = int(rng.choice([8, 16, 32, 64]))
        d_head = int(rng.choice([d // 8, d // 4, d // 2]))
        n_features = int(rng.choice([d // 2, d, 4 * d]))
        W_Q, W_K = rng.standard_normal((2, d, d_head))
        features = rng.standard_normal((n_features, d))
        wrong += bool(skip_bigrams_of((W_Q, W_K), features, seed=seed).bigrams)
    return level("Gaussian weights", wrong, count)


def untrained_heads(count: int) -> dict[str, Any]:
    """How many heads of untrained models show anything on the model's embeddings."""
    wrong = heads = 0
    for seed in track(range(count // 8), "untrained models"):
        rng = np.random.default_rng([1, seed])
        model = random_model(
            seed,
            d_model=int(rng.choice([16, 32, 64])),
            d_head=int(rng.choice([4, 8, 16])),
            d_vocab=int(rng.choice([16, 60, 200])),
            positions=POSITIONS[int(rng.integers(3))],
            normalization=NORMS[int(rng.integers(3))],
        )
        found = find_skip_bigrams(model, seed=seed)
        heads += len(found)
        wrong += sum(bool(one.bigrams) for one in found)
    return level("untrained, embeddings", wrong, heads)


def level(name: str, wrong: int, count: int) -> dict[str, Any]:
    """The share and its upper bound."""
    bound = stats.beta.ppf(CONFIDENCE, wrong + 1, count - wrong) if wrong < count else 1.0
    return {"heads": name, "count": count, "wrong": wrong, "upper_bound": float(bound)}


def plant(
    d: int, d_head: int, n: int, kind: str, seed: int
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray], set[tuple[int, int]]]:
    """Features, (W_Q, W_K) and bigrams (query, key)."""
    rng = np.random.default_rng([2, seed])
    m = 4 * d
    features = rng.standard_normal((m, d))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    bigrams: set[tuple[int, int]] = set()
    while len(bigrams) < n:
        queries, keys = (rng.choice(m, size, replace=False) for size in BLOCKS[kind])
        bigrams |= {(int(q), int(k)) for q in queries for k in keys}
    query, key = np.array(sorted(bigrams)).T
    U, sizes, Vt = np.linalg.svd(features[query].T @ features[key])
    return features, (U[:, :d_head] * sizes[:d_head], Vt[:d_head].T), bigrams


def planted_heads(seeds: int) -> list[dict[str, Any]]:
    """One row for each size, fraction and kind."""
    settings = [
        (d, d_head, kind, fraction)
        for d, d_head in SIZES
        for kind in BLOCKS
        for fraction in FRACTIONS
    ]
    return [planted_row(*setting, seeds) for setting in track(settings, "planted heads")]


def planted_row(d: int, d_head: int, kind: str, fraction: float, seeds: int) -> dict[str, Any]:
    """Means over seeds."""
    rows: list[dict[str, Any]] = []
    for seed in range(seeds):
        features, head, bigrams = plant(d, d_head, round(d * d_head * fraction), kind, seed)
        found = skip_bigrams_of(head, features, seed=seed)
        pairs = {(int(b.query_feature[1:]), int(b.key_feature[1:])) for b in found.bigrams}
        rows.append(
            {
                "auc": auc(features, head, bigrams),
                "recall": len(pairs & bigrams) / len(bigrams),
                "echoes": len(pairs - bigrams) / len(pairs) if pairs else None,
                "covers": None
                if found.interval is None
                else found.interval[0] <= len(bigrams) <= found.interval[1],
                "width": None
                if found.interval is None
                else (found.interval[1] - found.interval[0]) / len(bigrams),
            }
        )
    means: dict[str, Any] = {"d_resid": d, "d_head": d_head, "kind": kind, "share": fraction}
    for name in rows[0]:
        known = [row[name] for row in rows if row[name] is not None]
        means[name] = float(np.mean(known)) if known else None
    means["numbers"] = sum(row["covers"] is not None for row in rows)
    means["covered"] = sum(bool(row["covers"]) for row in rows)
    return means


def auc(
    features: np.ndarray, head: tuple[np.ndarray, np.ndarray], bigrams: set[tuple[int, int]]
) -> float:
    """Of |t| before anything is taken out: bigrams against all other pairs."""
    directions = torch.from_numpy(features)
    form = Form(*(torch.from_numpy(factor) for factor in head))
    scores = PairScores(form, Features(directions, directions, features.shape[1]), 1e-9, 0, MEMORY)
    t = np.abs(scores.block(slice(None), slice(None)).numpy())
    truth = np.zeros(t.shape, bool)
    truth[tuple(np.array(sorted(bigrams)).T)] = True
    return float(roc_auc_score(truth.ravel(), t.ravel()))


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """A table on the terminal."""
    table = Table(title=title)
    for name in rows[0]:
        table.add_column(name)
    for row in rows:
        table.add_row(*(f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()))
    Console(width=140).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heads", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    levels = [random_heads(options.heads), untrained_heads(options.heads)]
    show(f"Heads that show anything at level {LEVEL:g}", levels)
    planted = planted_heads(options.seeds)
    show("Planted heads", planted)
    given = sum(row["numbers"] for row in planted)
    covered = sum(row["covered"] for row in planted)
    print(f"intervals: {given} given, {covered} cover the truth")
    if options.json:
        few = [row for row in planted if row["share"] <= FEW]
        found = {
            "levels": levels,
            "heads": sum(row["count"] for row in levels),
            "heads with any": sum(row["wrong"] for row in levels),
            "at most a bigram for 16 parameters": {
                "recall": {
                    kind: {
                        str(d): min(
                            r["recall"] for r in few if (r["kind"], r["d_resid"]) == (kind, d)
                        )
                        for d, _ in SIZES
                    }
                    for kind in BLOCKS
                },
                "echoes": max(row["echoes"] or 0.0 for row in few),
            },
            "intervals": {"given": given, "cover": covered},
            "planted": planted,
        }
        write_text(options.json, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
