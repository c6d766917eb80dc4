"""Attention variants: a model trained with frozen queries and keys, and untrained deep models.

Run: python examples/random_attention.py [FOLDER]   (default: demo)
Trains one model, half a minute on one CPU core. Writes random_attention.html to the folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

import interp_toolkit as it
from interp_studies.jobs.runner import Runner
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.registry import find
from interp_toolkit.toys.random_attention.variants import Variant, variant_config

DEPTH = 16


def untrained(variant: Variant) -> Transformer:
    """An untrained deep model with GPT-2's scale of initial weights."""
    cfg = variant_config(
        variant,
        n_layers=DEPTH,
        n_heads=4,
        d_model=64,
        n_ctx=64,
        d_vocab=512,
        initial_std=0.02,
        seed=0,
        model_name=f"{variant}, {DEPTH} layers, untrained",
    )
    return Transformer(cfg)


def main(folder: Path) -> None:
    """Find the circuit of a model with frozen queries and keys; compare hidden states by depth."""
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)
    console.rule("Retrieval, trained with frozen random queries and keys (half a minute)")
    circuit = find("artefacts", "random-attention/figure-3")
    results = [circuit.run("small", 1, Runner())]
    console.print(results[-1].verdict)

    variants: tuple[Variant, ...] = ("random", "mixit")
    for variant in variants:
        console.rule(f"{variant}: {DEPTH} untrained layers")
        results.append(it.analyze(untrained(variant), "collapse"))
        console.print(results[-1].verdict)

    it.write_report(results, folder / "random_attention.html")
    console.print(f"The report, with the patterns: {folder / 'random_attention.html'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
