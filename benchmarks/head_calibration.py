"""Are detected heads detected rightly? Error on untrained models, power on planted ones.

Four questions, each on models drawn at random from many shapes (see `draw_shape`):

- untrained models: the share of *models* with any head detected by any detector, with the
  Clopper-Pearson upper bound at 95 %. It must be at most the stated level.
- the same with all weights scaled up, so that random attention is sharp (no promise is made there;
  what happens is said).
- planted models at full strength: the share of planted heads found, and the share of models in
  which another head is wrongly detected.
- power: the share of planted heads found, by strength.

What is said of the effects of heads is held against nulls of its own, in `knockout_calibration`.

Run: python benchmarks/head_calibration.py [--models 1000] [--json FILE] [--html FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

import numpy as np
import torch
from planted import planted
from rich.progress import track
from scipy import stats

from interp_toolkit.circuits.heads.scores import HeadScores, detect
from interp_toolkit.stats import LEVEL
from interp_toolkit.toys.hand_set.untrained import random_model

DETECTORS = ("induction", "previous-token", "duplicate-token", "k-hop", "first-token")
KINDS = ("previous-token", "duplicate-token", "induction", "decoy")
GAINS = (1.5, 2.0)  # of every weight: attention scores grow with its fourth power
STRENGTHS = (0.0, 0.02, 0.05, 0.08, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0)
CONFIDENCE = 0.95
WITH_BOS = 0.25  # share of models whose rows begin with a token of their own


def draw_shape(rng: np.random.Generator) -> dict[str, Any]:
    """Sizes and architecture of an untrained model."""
    n_heads = int(rng.choice([2, 4, 8]))
    shape: dict[str, Any] = {
        "n_layers": int(rng.choice([1, 2, 3])),
        "n_heads": n_heads,
        "d_model": int(rng.choice([8, 16, 32, 64, 128])),
        "d_head": int(rng.choice([4, 8, 16])),
        "d_vocab": int(rng.choice([4, 5, 8, 16, 50, 200, 1000])),
        "n_ctx": int(rng.choice([16, 32, 64, 96])),
        "positions": str(rng.choice(["standard", "rotary", "none"])),
        "normalization": [None, "LN", "RMS"][int(rng.integers(3))],
    }
    if rng.random() < 0.3:
        shape["d_mlp"] = 4 * shape["d_model"]
    if rng.random() < 0.3:
        shape["n_key_value_heads"] = n_heads // 2
    if rng.random() < 0.2:
        shape["bidirectional"] = True
    return shape


def draw_planted(rng: np.random.Generator, kind: str | None = None) -> dict[str, Any]:
    """What is planted, and where: kind, vocabulary, context, positions, sizes."""
    n_heads = int(rng.choice([2, 4, 6]))
    shape: dict[str, Any] = {
        "kind": str(rng.choice(KINDS)) if kind is None else kind,
        "n_layers": int(rng.choice([2, 3])),
        "n_heads": n_heads,
        "d_vocab": int(rng.choice([4, 6, 8, 16, 32])),
        "n_ctx": int(rng.choice([32, 48, 64])),
        "positions": str(rng.choice(["standard", "rotary"])),
    }
    if shape["kind"] == "duplicate-token":
        shape["positions"] = "standard"  # the only ones it can be planted with
    if rng.random() < 0.3:
        shape["n_key_value_heads"] = n_heads // 2
    return shape


def untrained(count: int, gain: float, seed: int = 0) -> dict[str, Any]:
    """How many untrained models have any head detected."""
    wrong: list[dict[str, Any]] = []
    n_heads = 0
    for i in track(range(count), f"untrained, gain {gain}"):
        rng = np.random.default_rng([seed, i])
        shape = draw_shape(rng)
        bos = 0 if rng.random() < WITH_BOS else None
        model = random_model(i, gain=gain, **shape)
        detectors = (*DETECTORS, "next-token") if shape.get("bidirectional") else DETECTORS
        found = detect(model, None, detectors, bos=bos, seed=i)
        n_heads += found.detected[0].size
        for name, layer, head in all_found(found):
            wrong.append(
                {**shape, "bos": bos, "seed": i, "detector": name, "layer": layer, "head": head}
            )
    models = len({w["seed"] for w in wrong})
    return {
        "gain": gain,
        "models": count,
        "heads": n_heads,
        "wrong_models": models,
        "upper_bound": upper_bound(models, count),
        "wrong": wrong,
    }


def all_found(found: HeadScores) -> Iterator[tuple[str, int, int]]:
    """Every detection: detector, layer, head."""
    for scores in found.scores:
        for layer, head in found.detected_heads(scores.detector):
            yield scores.detector, layer, head


def full_strength(count: int, seed: int = 1) -> dict[str, Any]:
    """How many planted heads are found at strength 1, and in how many models others are."""
    planted_heads = hits = 0
    missed: list[dict[str, Any]] = []
    wrong: list[dict[str, Any]] = []
    for i in track(range(count), "planted"):
        shape = draw_planted(np.random.default_rng([seed, i]))
        model = planted(seed=i, **shape)
        truth = {tuple(head) for head in model.ground_truth.heads}
        found = set(all_found(detect(model, None, DETECTORS, seed=i)))
        planted_heads += len(truth)
        hits += len(truth & found)
        missed += [{**shape, "seed": i, "head": head} for head in sorted(truth - found)]
        wrong += [{**shape, "seed": i, "head": head} for head in sorted(found - truth)]
    models = len({w["seed"] for w in wrong})
    return {
        "models": count,
        "planted": planted_heads,
        "found": hits,
        "missed": missed,
        "wrong_models": models,
        "upper_bound": upper_bound(models, count),
        "wrong": wrong,
    }


def power(count: int, seed: int = 2) -> dict[str, list[float]]:
    """The share of planted heads found, by kind of head and strength."""
    kinds = KINDS[:3]
    curves: dict[str, list[float]] = {kind: [] for kind in kinds}
    for strength in track(STRENGTHS, "power"):
        hits = dict.fromkeys(kinds, 0)
        for kind in kinds:
            for i in range(count):
                shape = draw_planted(np.random.default_rng([seed, i]), kind)
                model = planted(seed=i, strength=strength, **shape)
                truth = next(tuple(h) for h in model.ground_truth.heads if h.detector == kind)
                hits[kind] += truth in set(all_found(detect(model, None, DETECTORS, seed=i)))
        for kind in kinds:
            curves[kind].append(hits[kind] / count)
    return curves


def upper_bound(wrong: int, count: int) -> float:
    """Clopper and Pearson's, one-sided."""
    return float(stats.beta.ppf(CONFIDENCE, wrong + 1, count - wrong)) if wrong < count else 1.0


def figure(curves: dict[str, list[float]]) -> Any:
    import plotly.graph_objects as go

    lines = [
        go.Scatter(x=STRENGTHS, y=values, name=kind, mode="lines+markers")
        for kind, values in curves.items()
    ]
    return go.Figure(
        lines,
        {
            "title": {"text": "Planted heads found, by strength"},
            "xaxis": {"title": {"text": "strength of the planted weights"}},
            "yaxis": {"title": {"text": "share of planted heads found"}, "range": [0, 1.02]},
            "template": "plotly_white",
        },
    )


def say(report: dict[str, Any]) -> None:
    for run in report["untrained"]:
        print(
            f"untrained, gain {run['gain']}: {run['wrong_models']} of {run['models']} models with "
            f"any of {run['heads']} heads detected; at most {run['upper_bound']:.2%} "
            f"({CONFIDENCE:.0%} bound; level {LEVEL:.0%})"
        )
    run = report["planted"]
    print(
        f"planted: {run['found']} of {run['planted']} heads found; in {run['wrong_models']} of "
        f"{run['models']} models another head is detected, at most {run['upper_bound']:.2%}"
    )
    for kind, values in report["power"].items():
        print(
            f"power, {kind}:",
            " ".join(f"{s}:{v:.2f}" for s, v in zip(STRENGTHS, values, strict=True)),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--html", type=Path, help="the power curve")
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    report = {
        "untrained": [
            untrained(options.models if gain == 1.0 else max(options.models // 4, 1), gain)
            for gain in (1.0, *GAINS)
        ],
        "planted": full_strength(options.models),
        "power": power(max(options.models // 20, 1)),
    }
    say(report)
    print(f"{time.perf_counter() - start:.0f} s")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))
    if options.html:
        options.html.write_text(figure(report["power"]).to_html(config={"displayModeBar": False}))


if __name__ == "__main__":
    main()
