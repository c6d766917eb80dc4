"""Training steps a second of frozen-qk and mixit over standard, in one run.

Next-token loss on random tokens with AdamW, of models of one shape; rounds of a few steps are taken
in turn, and medians compared. The source reports +23.9 % (frozen-qk) and +32.0 % (mixit) at 12
layers, 512 wide, 2,048 positions. As a peer, where TransformerLens has it: a `HookedTransformer` of
the standard variant's shape.

What is frozen saves its weights' gradients and its optimiser steps, no more: gradients still pass
through queries and keys to what is trained in front of them. The run prints which share of the
matrix products' arithmetic that is, a bound on what frozen-qk can gain by it.
Run: python benchmarks/variant_throughput.py [--device cuda --preset paper] [--dtype bfloat16]
     [--rows N] [--rounds 9] [--json FILE]
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

from interp_toolkit.models.transformer.config import DTYPES, TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer, next_token_loss
from interp_toolkit.toys.random_attention.variants import Variant, freeze, variant_config

SOURCE = {"frozen-qk": 23.9, "mixit": 32.0}  # per cent over standard
TIMED: tuple[Variant, ...] = ("standard", "frozen-qk", "mixit")
PRESETS: dict[str, dict[str, int]] = {
    "small": {"n_layers": 2, "d_model": 128, "n_heads": 4, "n_ctx": 64, "d_vocab": 256},
    "paper": {"n_layers": 12, "d_model": 512, "n_heads": 8, "n_ctx": 2_048, "d_vocab": 16_384},
}
ROWS = {"small": 32, "paper": 4}
STEPS = {"cpu": 3, "cuda": 5}  # timed together: one measurement

Loss = Callable[[torch.Tensor], Any]


def ours(variant: Variant, preset: str, dtype: torch.dtype, device: str) -> tuple[Loss, Any]:
    cfg = variant_config(variant, **PRESETS[preset], dtype=dtype, seed=0)  # type: ignore[arg-type]
    model = Transformer(cfg).to(device)
    model.check_tokens = False
    freeze(model, variant)
    return lambda tokens: model(tokens, return_type="loss"), model.parameters()


def peer(preset: str, dtype: torch.dtype, device: str) -> tuple[Loss, Any] | None:
    """A `HookedTransformer` of the standard shape; it has biases behind its gated MLPs."""
    try:
        from transformer_lens import HookedTransformer, HookedTransformerConfig
    except ImportError:
        return None
    shared = variant_config("standard", **PRESETS[preset], dtype=dtype, seed=0)  # type: ignore[arg-type]
    names = """n_layers d_model n_ctx d_head n_heads d_vocab d_mlp act_fn gated_mlp
        normalization_type positional_embedding_type rotary_dim dtype"""
    fields = {name: getattr(shared, name) for name in names.split()}
    model = HookedTransformer(HookedTransformerConfig(**fields, device=device))
    return lambda tokens: next_token_loss(model(tokens), tokens), model.parameters()


def stepper(loss: Loss, parameters: Any, tokens: torch.Tensor, steps: int) -> Callable[[], float]:
    trained = [p for p in parameters if p.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=1e-4)

    def run() -> float:
        _wait(tokens)
        start = time.perf_counter()
        for _ in range(steps):
            optimiser.zero_grad()
            loss(tokens).backward()
            optimiser.step()
        _wait(tokens)
        return steps / (time.perf_counter() - start)

    return run


def _wait(tokens: torch.Tensor) -> None:
    if tokens.is_cuda:
        torch.cuda.synchronize()


def frozen_share(cfg: TransformerConfig) -> float:
    """Weight gradients of W_Q and W_K over all matrix products of a standard step."""
    assert cfg.d_mlp is not None
    projections = 4 * cfg.d_model * cfg.n_heads * cfg.d_head
    pattern = 2 * cfg.n_ctx * cfg.n_heads * cfg.d_head
    layer = projections + pattern + 3 * cfg.d_model * cfg.d_mlp
    whole = 3 * (cfg.n_layers * layer + cfg.d_model * cfg.d_vocab)
    return cfg.n_layers * projections / 2 / whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--preset", choices=tuple(PRESETS), default="small")
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="float32")
    parser.add_argument("--rows", type=int, default=0, help="of a batch; 0: the preset's")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tf32", action="store_true", help="float32 products in TF32 (GPU)")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high" if args.tf32 else "highest")
    dtype, shape = DTYPES[args.dtype], PRESETS[args.preset]
    rows = args.rows or ROWS[args.preset]
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(shape["d_vocab"], (rows, shape["n_ctx"]), generator=generator)
    tokens = tokens.to(args.device)
    made: dict[str, tuple[Loss, Any] | None] = {
        variant: ours(variant, args.preset, dtype, args.device) for variant in TIMED
    }
    made["HookedTransformer"] = peer(args.preset, dtype, args.device)
    steps = STEPS[args.device]
    timed = {name: stepper(*one, tokens, steps) for name, one in made.items() if one is not None}
    for run in timed.values():
        run()
    rates: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(args.rounds):
        for name, run in timed.items():
            rates[name].append(run())
    _report(args, rows, rates)


def _report(args: argparse.Namespace, rows: int, rates: dict[str, list[float]]) -> None:
    device = torch.cuda.get_device_name() if args.device == "cuda" else "one CPU thread"
    print(f"{args.preset}: {PRESETS[args.preset]}, {rows} rows, {args.dtype}, {device}")
    found = {}
    for name, each in rates.items():
        ratios = [a / b for a, b in zip(each, rates["standard"], strict=True)]
        gain = (statistics.median(ratios) - 1) * 100
        found[name] = {"steps_per_second": statistics.median(each), "over_standard": gain}
        source = f", source {SOURCE[name]:+.1f} %" if name in SOURCE else ""
        print(f"{name:18} {statistics.median(each):9.3f} steps/s  {gain:+6.1f} %{source}")
    cfg = variant_config("standard", **PRESETS[args.preset])  # type: ignore[arg-type]
    bound = frozen_share(cfg)
    print(
        f"gradients of W_Q and W_K: {bound:.1%} of the products' arithmetic; "
        f"without them alone: at most {1 / (1 - bound) - 1:+.1%}"
    )
    if args.json:
        record = {**vars(args), "json": None, "rows": rows, "device_name": device, "rates": found}
        args.json.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
