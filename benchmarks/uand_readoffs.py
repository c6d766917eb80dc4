"""Readoffs of all pairs of 512 features, against scikit-learn's LinearRegression in blocks.

512 features, each on with probability 0.02, 1,024 neurons, 20,000 rows to fit and 4,000 held out:
fit and held-out errors of all 130,816 pairs. The peer fits as many targets at once as fit the
memory that ours takes at its peak, and is timed on a few blocks and scaled. Also: 1,000 features,
499,500 pairs, and how much memory that takes.

    python benchmarks/uand_readoffs.py [--repeats 3] [--blocks 2] [--no-large] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression

from interp_toolkit.files import replacing
from interp_toolkit.probes import UANDReadout
from interp_toolkit.probes.uand.readout import all_pairs

FITTED, HELD_OUT, NEURONS, RATE, DENSITY = 20_000, 4_000, 1_024, 0.02, 0.06


def layer(n_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Activations of random 0/1 connections with bias -1, and the features."""
    rng = np.random.default_rng(0)
    on = rng.random((FITTED + HELD_OUT, n_features)) < RATE
    weights = (rng.random((n_features, NEURONS)) < DENSITY).astype(np.float32)
    return np.maximum(on.astype(np.float32) @ weights - 1, 0), on


def peak() -> float:
    """GiB, of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def ours(n_features: int) -> dict[str, Any]:
    before = peak()
    X, on = layer(n_features)
    start = time.perf_counter()
    readout = UANDReadout().fit(X[:FITTED], on[:FITTED])
    errors = readout.errors(X[FITTED:], on[FITTED:])
    seconds = time.perf_counter() - start
    found = errors.epsilon()
    return {
        "seconds": seconds,
        "memory_gib": peak() - before,
        "pairs": len(errors.pairs),
        "seen": int(errors.observed.sum()),
        "rms": found.rms,
        "q99": found.q99,
    }


def theirs(n_features: int, blocks: int, memory_gib: float) -> dict[str, Any]:
    """LinearRegression, block after block of targets, with the errors of its predictions."""
    X, on = layer(n_features)
    pairs = all_pairs(n_features)
    bytes_a_pair = (2 * FITTED + 2 * HELD_OUT + 2 * NEURONS) * X.itemsize  # targets, scores, coef
    size = int(memory_gib * 2**30 / bytes_a_pair)
    start = time.perf_counter()
    for block in np.split(pairs[: blocks * size], np.arange(size, blocks * size, size)):
        truth = on[:, block[:, 0]] & on[:, block[:, 1]]
        fitted = LinearRegression(copy_X=True).fit(X[:FITTED], truth[:FITTED].astype(X.dtype))
        errors = np.abs(fitted.predict(X[FITTED:]) - truth[FITTED:])
        errors.max(axis=0)
    seconds = time.perf_counter() - start
    return {"block": size, "seconds": seconds * len(pairs) / min(blocks * size, len(pairs))}


def alone(function: Any, *arguments: Any) -> Any:
    """In a process of its own, so that its peak memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--no-large", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    runs, peers = [], []
    for _ in range(options.repeats):
        runs.append(alone(ours, 512))
        peers.append(alone(theirs, 512, options.blocks, runs[-1]["memory_gib"]))
        print(f"ours {runs[-1]}\nscikit-learn {peers[-1]}", file=sys.stderr)
    mine = statistics.median(run["seconds"] for run in runs)
    ratios = [p["seconds"] / r["seconds"] for p, r in zip(peers, runs, strict=True)]
    report = {
        "seconds": mine,
        "memory_gib": max(run["memory_gib"] for run in runs),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "peer_seconds": statistics.median(p["seconds"] for p in peers),
        "pairs": runs[0]["pairs"],
    }
    if not options.no_large:
        report["1,000 features"] = alone(ours, 1_000)
    print(json.dumps(report, indent=1))
    print(
        f"{report['pairs']:,} pairs in {mine:.1f} s and {report['memory_gib']:.2f} GiB "
        f"(wanted: 30 s, 2 GiB); {report['ratio']:.0f} times as fast as LinearRegression (wanted 5)"
    )
    if options.json:
        with replacing(options.json) as partial:
            partial.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
