"""What finding heads costs, beside a bare forward pass and beside TransformerLens's `detect_head`.

A random model of GPT-2 small's shape (12 layers, 12 heads, width 768), 8 prompts of 256 tokens, one
thread. Every figure is a median of fresh measurements taken in turn; peak memory, on the CPU, is
that of a process which does one thing, above a process which does the bare pass.
Needs TransformerLens 3 (for `HookedTransformer`, which `detect_head` is made for).
Run: python benchmarks/head_detectors.py [--repeats 5] [--device cuda] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from interp_toolkit.report.html import write_text

ROWS, LENGTH, LAYERS = 8, 256, 12
DETECTORS = ("induction", "previous-token", "duplicate-token", "k-hop", "first-token")
PEERS = ("induction_head", "previous_token_head", "duplicate_token_head")
TASKS = ("bare pass", "ours", "run_with_cache")


def random_gpt2(device: str) -> Any:
    """GPT-2 small with the random weights of seed 0, on a shorter context."""
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    config = HookedTransformerConfig(
        n_layers=LAYERS,
        n_heads=12,
        d_model=768,
        d_head=64,
        d_mlp=3072,
        act_fn="gelu_new",
        n_ctx=2 * LENGTH,
        d_vocab=50257,
        normalization_type="LN",
        seed=0,
        device=device,
    )
    return HookedTransformer(config)


def make(device: str) -> tuple[Any, Any]:
    """The model and the prompts."""
    import torch

    from interp_toolkit.circuits.metrics.prompts import repeated_prompts

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    model = random_gpt2(device)
    prompts = repeated_prompts(model, rows=ROWS, n_pos=LENGTH)
    # there is no tokenizer: text is the number of a row
    model.to_tokens = lambda text: prompts.tokens[[int(row) for row in [*text]]]
    return model, prompts.tokens.to(device)


def bare_pass(model: Any, tokens: Any) -> None:
    model(tokens, stop_at_layer=LAYERS)


def ours(model: Any, tokens: Any) -> None:
    from interp_toolkit.circuits import score_heads

    score_heads(model, tokens, DETECTORS)


def run_with_cache(model: Any, tokens: Any) -> None:
    model.run_with_cache(tokens, stop_at_layer=LAYERS)


def detect_head(model: Any, tokens: Any) -> None:
    from transformer_lens.head_detector import detect_head as detect

    for name in PEERS:
        detect(model, [str(row) for row in range(len(tokens))], name)


def seconds(task: Any, model: Any, tokens: Any) -> float:
    start = time.perf_counter()
    task(model, tokens)
    if tokens.is_cuda:
        tokens[:1].cpu()  # waits for all that was asked for
    return time.perf_counter() - start


def peak_mebibytes(task: str) -> float:
    """Peak memory of a process that makes the model and does one thing."""
    done = subprocess.run(
        [sys.executable, __file__, "--peak", task], check=True, capture_output=True, text=True
    )
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--peak", choices=TASKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    tasks = {"bare pass": bare_pass, "ours": ours, "run_with_cache": run_with_cache}
    if options.peak:
        tasks[options.peak](*make("cpu"))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    model, tokens = make(options.device)
    timed = {"bare pass": bare_pass, "ours": ours, "detect_head": detect_head}
    times: dict[str, list[float]] = {name: [] for name in timed}
    ours(model, tokens[:2])  # imports
    for _ in range(options.repeats):
        for name, task in timed.items():
            times[name].append(seconds(task, model, tokens))
    medians = {name: statistics.median(values) for name, values in times.items()}
    on_cpu = options.device == "cpu"
    peaks = {task: peak_mebibytes(task) for task in TASKS} if on_cpu else {}
    for name, median in medians.items():
        low, high = min(times[name]), max(times[name])
        print(f"{name:16} {median:7.2f} s  ({low:.2f} to {high:.2f})")
    print(
        f"all {len(DETECTORS)} detectors: {medians['ours'] / medians['bare pass']:.3f} bare passes"
    )
    print(f"three detect_head calls: {medians['detect_head'] / medians['ours']:.1f} times ours")
    above = {task: peaks[task] - peaks["bare pass"] for task in TASKS[1:] if on_cpu}
    for task, mebibytes in above.items():
        print(f"peak memory of {task}: {mebibytes:+.0f} MiB")
    if options.json:
        found = {
            "device": options.device,
            "medians_s": medians,
            "detect_head over ours": medians["detect_head"] / medians["ours"],
            "ours over a bare pass": medians["ours"] / medians["bare pass"],
            "memory above a bare pass, MiB": above,
            "times_s": times,
        }
        write_text(options.json, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
