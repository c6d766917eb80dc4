"""Attribution to edges against exact cuts, on a real language model: what does screening miss?

Exact effects are taken of a pool: the largest estimates of EAP (one gradient) and EAP-IG (2, 5 and
10 gradients), every edge into the logits, and some drawn from all the others. Told for each kind of
estimate: Spearman's rank correlation with the effects over the pool and over the drawn ones, the
share of the pool's 50 largest effects among its own 50, 200 and 1,000 largest estimates, its price
in bare forward passes on the same rows; and of the edges drawn, how many reach the 50th effect.

Where TransformerLens still has HookedTransformer, estimates made with its hooks
(`plain_attribution`) are held against ours on a small model: largest difference, rank correlation,
and the price of both in the same run. EAP-IG's own code (github.com/hannamw/EAP-IG) allocates its
scores on "cuda" whatever the model is on, and takes strings: it does not run on a CPU as it is.

Run: python benchmarks/attribution.py [MODEL] [--task indirect-object] [--rows 16] [--pool 400]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from plain_attribution import hooked_attribution
from rich.progress import track
from scipy import stats

import interp_toolkit as it
from interp_toolkit.circuits.edges.passes.edge_ablation import EdgeAblation
from interp_toolkit.circuits.edges.passes.patched_pass import PatchedModel
from interp_toolkit.circuits.metrics.metrics import LogitDifference
from interp_toolkit.circuits.metrics.prompts import Prompts, prompts_from_data
from interp_toolkit.files import replacing
from interp_toolkit.models.running.forward import run
from interp_toolkit.testing.real import smollm2_path

STEPS = {"EAP": 1, "EAP-IG, 2": 2, "EAP-IG, 5": 5, "EAP-IG, 10": 10}
TOP = 50
AMONG = (50, 200, 1000)
SMALL: dict[str, Any] = {
    "n_layers": 4,
    "d_model": 64,
    "n_ctx": 32,
    "d_head": 16,
    "n_heads": 4,
    "d_mlp": 256,
    "d_vocab": 100,
    "act_fn": "gelu_new",
    "normalization_type": "LN",
    "device": "cpu",
}


def timed(work: Callable[[], Any], times: int = 1) -> tuple[Any, float]:
    """What it gives, and the median of its CPU seconds."""
    seconds = []
    for _ in range(times):
        start = time.process_time()
        given = work()
        seconds.append(time.process_time() - start)
    return given, float(np.median(seconds))


def against_exact(source: Any, task: str, n_rows: int, n_pool: int) -> dict[str, Any]:
    """Estimates of each kind against exact effects of the pool."""
    model = it.load(source)
    prompts = prompts_from_data(it.task(model, task, rows=n_rows), model)
    judged = LogitDifference(prompts)
    rows = torch.arange(len(prompts))
    _, bare = timed(lambda: run(model, prompts.tokens), 5)
    engine = PatchedModel(model)
    trial = EdgeAblation(engine, prompts, rows, rows, judged, 2**31)
    found: dict[str, tuple[np.ndarray, float]] = {}
    for name, steps in track(STEPS.items(), "estimates"):
        scores, seconds = timed(partial(trial.attributions, steps))
        found[name] = scores.mean(0), seconds / bare
    edges = engine.wiring.edges
    pool = {i for i, edge in enumerate(edges) if edge.target.kind == "logits"}
    for scores, _ in found.values():
        pool |= set(np.argsort(-np.abs(scores))[:n_pool].tolist())
    others = np.setdiff1d(np.arange(len(edges)), sorted(pool))
    drawn = np.random.default_rng(0).choice(others, min(n_pool, len(others)), replace=False)
    chosen = np.array([*sorted(pool), *drawn.tolist()])
    intact, parts = trial.intact(), []
    for part in track(np.array_split(chosen, -(-len(chosen) // 64)), "exact cuts"):
        parts.append(intact[:, None] - trial.values([[edges[i]] for i in part.tolist()]))
    effects = np.concatenate(parts, axis=1).mean(0)
    largest = chosen[np.argsort(-np.abs(effects))[:TOP]]
    fiftieth = float(np.sort(np.abs(effects))[-TOP])
    told = {}
    for name, (scores, price) in found.items():
        order = np.argsort(-np.abs(scores))
        told[name] = {
            "bare passes": round(price, 1),
            "rank correlation, pool": float(stats.spearmanr(scores[chosen], effects).statistic),
            "rank correlation, drawn": float(
                stats.spearmanr(scores[drawn], effects[len(pool) :]).statistic
            ),
        } | {f"top {TOP} among {n}": float(np.isin(largest, order[:n]).mean()) for n in AMONG}
    return {
        "edges": len(edges),
        "pool": len(chosen),
        "drawn": len(drawn),
        "drawn that reach the 50th effect": int((np.abs(effects[len(pool) :]) >= fiftieth).sum()),
        "50th effect": fiftieth,
        "behaviour": float(intact.mean()),
        "estimates": told,
    }


def against_hooks(n_rows: int = 16, n_pos: int = 12) -> dict[str, Any] | str:
    """Ours and the way with hooks, on the same small model with random weights."""
    try:
        from transformer_lens import HookedTransformerConfig
        from transformer_lens.HookedTransformer import HookedTransformer
    except ImportError as error:
        return f"not run: {error}"
    torch.manual_seed(0)
    model = HookedTransformer(HookedTransformerConfig(**SMALL))
    model.cfg.use_split_qkv_input = model.cfg.use_attn_result = model.cfg.use_hook_mlp_in = True
    generator = torch.Generator().manual_seed(1)
    clean, corrupted = torch.randint(0, 100, (2, n_rows, n_pos), generator=generator)
    answers, wrong = torch.randint(0, 100, (2, n_rows, 1), generator=generator)
    last = torch.full_like(answers, n_pos - 1)
    periods = np.zeros(n_rows, dtype=np.int64)
    prompts = Prompts(clean, 0, periods, "random", answers, last, wrong, corrupted)
    judged, rows = LogitDifference(prompts), torch.arange(n_rows)
    trial = EdgeAblation(PatchedModel(model), prompts, rows, rows, judged, 2**30)
    told: dict[str, Any] = {}
    for name, steps in STEPS.items():
        theirs, their_seconds = timed(
            partial(
                hooked_attribution,
                model,
                clean,
                corrupted,
                lambda logits: judged.from_full_logits(logits, rows),
                steps,
            ),
            3,
        )
        ours, our_seconds = timed(partial(trial.attributions, steps), 3)
        peer = np.array([-float(theirs[e.eap_name].detach().mean()) for e in trial.edges])
        told[name] = {
            "largest difference, of the largest": float(
                np.abs(ours.mean(0) - peer).max() / np.abs(peer).max()
            ),
            "rank correlation": float(stats.spearmanr(ours.mean(0), peer).statistic),
            "ours / with hooks, CPU": our_seconds / their_seconds,
        }
    return told


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", nargs="?", default=smollm2_path())
    parser.add_argument("--task", default="indirect-object")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--pool", type=int, default=400, help="of each kind of estimate")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found: dict[str, Any] = {"against hooks": against_hooks()}
    print(json.dumps(found, indent=1))
    if arguments.model is None:
        print("no language model is installed (make real), and none was given")
    else:
        found["against exact cuts"] = against_exact(
            arguments.model, arguments.task, arguments.rows, arguments.pool
        )
        print(json.dumps(found["against exact cuts"], indent=1))
    if arguments.json:
        with replacing(arguments.json) as partial:
            partial.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
