"""A training step of the sorting recipes: through tables, and as a plain `HookedTransformer` loop.

Both take the same batches of 1,024 lists from the same source, drawing included, and the same
optimizer, ours as the trainer makes it (by one fused kernel), the plain one as PyTorch does by
itself; their losses on one batch and one set of weights agree. One thread; medians of rounds taken
in turn. Needs TransformerLens 3 (for `HookedTransformer`).
With `--device cuda`: how long 5,000 steps of experiment 1 take on that GPU, by the recipe itself.
Run: python benchmarks/sorting_steps.py [--rounds 7] [--json FILE] [--device cuda]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from interp_toolkit.training.engine.trainer import fit, optimiser_of

STEPS = 15  # timed together: one measurement
EXPERIMENTS = {"sort-causal": 14, "sort-distinct": 14, "sort-bidirectional": 8}  # wanted ratios
GPU_STEPS = 5_000
POST_SECONDS = 200  # the source's, on an A100

Loss = Callable[[Any], torch.Tensor]
Trained = tuple[Loss, torch.optim.Optimizer]


def problem_of(recipe: str, **settings: Any) -> Any:
    from interp_toolkit.registry import find
    from interp_toolkit.training.sorting import Sorting

    return Sorting(find("recipes", recipe).config(**settings), seed=0)


def plain_optimiser(problem: Any, parameters: Any) -> torch.optim.Optimizer:
    config = problem.config
    kind = torch.optim.AdamW if config.optimiser == "adamw" else torch.optim.Adam
    return kind(parameters, lr=config.lr, weight_decay=config.weight_decay, betas=config.betas)


def ours(problem: Any) -> Trained:
    problem.model.check_tokens = False
    return problem.loss, optimiser_of(problem.model, problem.config, capturable=False)


def plain(problem: Any) -> Trained:
    """The peer, with the same weights: a forward pass, and the loss at the places that are read."""
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    cfg = problem.model.cfg
    names = "n_layers d_model n_ctx d_head n_heads d_vocab d_vocab_out attn_only attention_dir"
    model = HookedTransformer(
        HookedTransformerConfig(
            **{name: getattr(cfg, name) for name in names.split()}, normalization_type=None
        )
    )
    model.load_state_dict(problem.model.state_dict(), strict=False)

    def loss(batch: Any) -> torch.Tensor:
        logits = model(batch.tokens)
        read = logits.gather(1, batch.read[:, :, None].expand(-1, -1, logits.shape[-1]))
        return torch.nn.functional.cross_entropy(read[batch.present], batch.answer[batch.present])

    return loss, plain_optimiser(problem, model.parameters())


def stepper(problem: Any, loss: Loss, optimiser: torch.optim.Optimizer) -> Callable[[], float]:
    generator = torch.Generator().manual_seed(0)

    def steps() -> float:
        start = time.perf_counter()
        for _ in range(STEPS):
            optimiser.zero_grad()
            loss(problem.draw(generator)).backward()
            optimiser.step()
        return (time.perf_counter() - start) / STEPS * 1e3

    return steps


def compare(recipe: str, rounds: int) -> dict[str, float]:
    mine, theirs = ours(problem := problem_of(recipe)), plain(problem)
    batch = problem.draw(torch.Generator().manual_seed(1))
    with torch.no_grad():
        apart = abs(float(mine[0](batch) - theirs[0](batch)))
    timed = [stepper(problem, *mine), stepper(problem, *theirs)]
    for steps in timed:
        steps()
    times = [[steps() for steps in timed] for _ in range(rounds)]
    ratios = [b / a for a, b in times]
    return {
        "ours_ms": statistics.median(a for a, _ in times),
        "plain_ms": statistics.median(b for _, b in times),
        "ratio": statistics.median(ratios),
        "ratio_low": min(ratios),
        "ratio_high": max(ratios),
        "losses_apart": apart,
    }


def on_gpu(device: str) -> dict[str, Any]:
    """Seconds for 5,000 steps, the first of them (recording the graph) included."""
    problem = problem_of("sort-causal", device=device, steps=GPU_STEPS)
    torch.cuda.synchronize()
    start = time.perf_counter()
    fitted = fit(problem, problem.config, seed=0)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return {
        "card": torch.cuda.get_device_name(device),
        "steps": GPU_STEPS,
        "seconds": seconds,
        "loss": fitted.loss,
        "post_seconds": POST_SECONDS,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found: dict[str, Any] = {}
    if args.device != "cpu":
        found["gpu"] = on_gpu(args.device)
        print("{card}: {steps:,} steps in {seconds:.1f} s, loss {loss:.4f}".format(**found["gpu"]))
    else:
        torch.set_num_threads(1)
        for recipe, wanted in EXPERIMENTS.items():
            found[recipe] = row = compare(recipe, args.rounds)
            print(
                f"{recipe}: ours {row['ours_ms']:.1f} ms a step, plain {row['plain_ms']:.1f} ms, "
                f"ratio {row['ratio']:.1f} ({row['ratio_low']:.1f} to {row['ratio_high']:.1f}; "
                f"wanted {wanted}), losses apart by {row['losses_apart']:.0e}"
            )
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
