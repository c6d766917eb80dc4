"""Training steps a second of frozen-qk and mixit over standard, in any dtype and beside a peer.

The measurement is that of `interp reproduce random-attention/throughput` (see
`interp_studies.random_attention.throughput.timing`); this adds the dtype, the number of rows, and
as a peer, where TransformerLens has it, a `HookedTransformer` of the standard variant's shape.
Run: python benchmarks/variant_throughput.py [--device cuda --preset paper] [--dtype bfloat16]
     [--rows N] [--rounds 9] [--json FILE]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
from pathlib import Path
from typing import Any

import torch

from interp_studies.random_attention.throughput.study import PRESETS, THEIRS
from interp_studies.random_attention.throughput.timing import (
    TIMED,
    Loss,
    TimingSizes,
    frozen_share,
    gains,
    products,
    rates,
    stepper,
    variant_loss,
)
from interp_toolkit.models.transformer.config import DTYPES
from interp_toolkit.models.transformer.transformer import next_token_loss


def peer(sizes: TimingSizes, dtype: torch.dtype, device: str) -> tuple[Loss, Any] | None:
    """A `HookedTransformer` of the standard shape; it has biases behind its gated MLPs."""
    try:
        from transformer_lens import HookedTransformer, HookedTransformerConfig
    except ImportError:
        return None
    shared = sizes.config("standard", 0, dtype)
    names = """n_layers d_model n_ctx d_head n_heads d_vocab d_mlp act_fn gated_mlp
        normalization_type positional_embedding_type rotary_dim dtype"""
    fields = {name: getattr(shared, name) for name in names.split()}
    model = HookedTransformer(HookedTransformerConfig(**fields, device=device))
    return lambda tokens: next_token_loss(model(tokens), tokens), model.parameters()


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
    dtype, sizes = DTYPES[args.dtype], PRESETS[args.preset]
    sizes = dataclasses.replace(sizes, rows=args.rows or sizes.rows, rounds=args.rounds)
    tokens = sizes.tokens(0, args.device)
    made: dict[str, tuple[Loss, Any] | None] = {
        variant: variant_loss(sizes.config(variant, 0, dtype), variant, args.device)
        for variant in TIMED
    }
    made["HookedTransformer"] = peer(sizes, dtype, args.device)
    timed = {
        name: stepper(*m, tokens, sizes.steps, sizes.lr)
        for name, m in made.items()
        if m is not None
    }
    _report(args, sizes, rates(timed, sizes.rounds))


def _report(args: argparse.Namespace, sizes: TimingSizes, by_name: dict[str, list[float]]) -> None:
    device = torch.cuda.get_device_name() if args.device == "cuda" else "one CPU thread"
    print(f"{args.preset}: {sizes}, {args.dtype}, {device}")
    found = {}
    for name, each in by_name.items():
        gain = statistics.median(gains(by_name, name)) * 100
        found[name] = {"steps_per_second": statistics.median(each), "over_standard": gain}
        source = f", source {100 * THEIRS[name]:+.1f} %" if name in THEIRS else ""
        print(f"{name:18} {statistics.median(each):9.3f} steps/s  {gain:+6.1f} %{source}")
    cfg = sizes.config("standard", 0)
    bounds = {
        "frozen-qk": 1 / (1 - frozen_share(cfg)) - 1,
        "mixit": products(cfg) / products(cfg, "mixed") - 1,
        "no attention": products(cfg) / products(cfg, "none") - 1,
    }
    print("by the products' arithmetic alone:", {k: f"{bound:+.1%}" for k, bound in bounds.items()})
    if args.json:
        record = {
            **vars(args),
            "json": None,
            "device_name": device,
            "rates": found,
            "bounds": bounds,
        }
        args.json.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
