"""How often each analysis says ✓ of models in which there is nothing to find.

Three groups of models: untrained ones of eight shapes; trained toys whose weights are permuted
(every tensor's entries in random order); hand-set toys, which are sparse, likewise.
Each analysis gets prompts and features drawn at random beside the model: `xor` two random bits that
the prompts do not hold, every prompt twice; `uand` which tokens a prompt holds; `circuit` tokens
without answers; `heads` random answers; the others what they make for themselves (`sorting` only
takes models with a layout of lists).

Run: python benchmarks/false_positives.py [--untrained 64] [--trained 30] [--hand-set 14]
     [--only NAME ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import interp_toolkit as it
from interp_toolkit.models.running.interventions import reinitialised
from interp_toolkit.results import STATUS_TONES
from interp_toolkit.stats import clopper_pearson
from interp_toolkit.toys.hand_set.untrained import random_model

SHAPES: tuple[dict[str, Any], ...] = (
    {"n_layers": 2, "d_model": 32},
    {"n_layers": 1, "d_model": 64},
    {"n_layers": 2, "n_heads": 4, "d_model": 64},
    {"n_layers": 3, "d_model": 32, "positions": "rotary"},
    {"n_layers": 4, "n_heads": 4, "d_model": 32},
    {"n_layers": 1, "d_model": 32, "biases": True},
    {"n_layers": 2, "d_model": 64, "d_mlp": 128},
    {"n_layers": 2, "d_model": 32, "d_vocab": 60},
)
TRAINED = ("induction-trained", "uand-trained", "sort-causal-trained")
HAND_SET = ("induction", "xor-2head", "uand", "sort-argmax", "duplicate-token", "skip-bigrams")
N_PROMPTS, POSITIONS = 100, 10


def untrained(count: int) -> Iterator[Any]:
    """Untrained models of every shape in turn."""
    for seed in range(count):
        shape = {"d_vocab": 30, "n_ctx": 24, "n_heads": 2, "d_mlp": 64} | SHAPES[seed % len(SHAPES)]
        yield random_model(seed, **shape)


def permuted(names: tuple[str, ...], count: int) -> Iterator[Any]:
    """Toys whose weight tensors have their entries in random order."""
    for seed in range(count):
        model = it.load(f"toy:{names[seed % len(names)]}")
        with reinitialised(model, seed=1000 + seed):
            yield model


def prompts_for(name: str, model: Any, seed: int) -> dict[str, Any] | None:
    """Random prompts, and what the analysis needs beside them; None: its own."""
    rng = np.random.default_rng([seed, 7])
    length = min(int(model.cfg.n_ctx), POSITIONS)
    tokens = rng.integers(0, int(model.cfg.d_vocab), (N_PROMPTS, length))
    if name == "xor":
        bits = rng.random((N_PROMPTS, 2)) < 0.5
        tokens, bits = np.concatenate([tokens] * 2), np.concatenate([bits] * 2)
        return {"tokens": tokens, "features": {"a": bits[:, 0], "b": bits[:, 1]}}
    if name == "uand":
        tokens = rng.integers(0, int(model.cfg.d_vocab), (4 * N_PROMPTS, length))
        held = {f"holds {t}": (tokens == t).any(1) for t in range(4)}
        return {"tokens": tokens, "features": held}
    if name == "circuit":
        return {"tokens": tokens[:32]}
    if name == "heads":
        outputs = int(getattr(model.cfg, "d_vocab_out", model.cfg.d_vocab))
        return {"tokens": tokens, "answers": rng.integers(0, outputs, N_PROMPTS)}
    return None


ANALYSES = (
    "heads", "circuit", "xor", "uand", "collapse", "sorting", "ov", "qk", "composition",
    "skip-bigrams",
)  # fmt: skip


def _for(name: str, toys: tuple[str, ...]) -> tuple[str, ...]:
    """The toys that an analysis takes."""
    return tuple(toy for toy in toys if toy.startswith("sort-")) if name == "sorting" else toys


def statuses(name: str, models: Iterator[Any], say: Callable[[str], None]) -> Counter[str]:
    """Statuses of an analysis over models; "refused" where it does not fit."""
    counts: Counter[str] = Counter()
    for seed, model in enumerate(models):
        try:
            result = it.analyze(model, name, data=prompts_for(name, model, seed))
        except it.InputError:
            counts["refused"] += 1
            continue
        counts[result.status] += 1
        if STATUS_TONES.get(result.status) == "yes":
            say(f"{name}, {seed}: {result.verdict[:200]}")
    return counts


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--untrained", type=int, default=64)
    parser.add_argument("--trained", type=int, default=30)
    parser.add_argument("--hand-set", type=int, default=14)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    console, rows, start = Console(), [], time.perf_counter()
    for name in track([n for n in ANALYSES if not options.only or n in options.only], "analyses"):
        groups = {
            "untrained": untrained(options.untrained),
            "permuted trained": permuted(_for(name, TRAINED), options.trained),
            "permuted hand-set": permuted(_for(name, HAND_SET), options.hand_set),
        }
        for group, models in groups.items():
            counts = statuses(name, models, console.print)
            models_judged = sum(counts.values()) - counts["refused"]
            yes = sum(n for status, n in counts.items() if STATUS_TONES.get(status) == "yes")
            low, high = clopper_pearson(yes, models_judged) if models_judged else (0.0, 1.0)
            rows.append(
                {"analysis": name, "group": group, "models": models_judged, "yes": yes,
                 "low": low, "high": high, "statuses": dict(counts)}
            )  # fmt: skip
    table = Table(title="✓ where there is nothing to find")
    for column in ("analysis", "models", "judged", "✓", "95 % interval", "statuses"):
        table.add_column(column)
    for r in rows:
        interval = f"{r['low']:.1%} to {r['high']:.1%}"
        cells = (r["analysis"], r["group"], r["models"], r["yes"], interval, r["statuses"])
        table.add_row(*map(str, cells))
    console.print(table, f"{time.perf_counter() - start:.0f} s")
    if options.json:
        options.json.write_text(json.dumps({"groups": rows}, indent=1))


if __name__ == "__main__":
    main()
