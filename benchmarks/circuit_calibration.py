"""Does a circuit earn its ✓ only where there is one? Untrained models, and models of known truth.

Untrained: three architectures (GPT-2's: learned positions, LayerNorm, GELU; Llama's: rotary, RMS
norm, gated MLP, shared key heads; attention only), random prompts in pairs with random answers and
wrong ones. Whatever is found there is false; the share with a ✓ (equivalence) is told with Clopper
and Pearson's bound, and how many got past the question whether the model does the task.

Planted: models whose heads are known (`interp_studies.challenge.families.shared_work`): shared,
backed up, among decoys, sinks, idle and noisy heads. Of the heads in the
circuit, the share that does the work (precision); of those that do, the share in the circuit
(recall); by how the work is shared, and by how noisy the logits are.
Both searches: by cutting every edge, and by attribution as for large models.

Run: python benchmarks/circuit_calibration.py [--untrained 200] [--planted 40] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from head_recall import draw_works
from rich.progress import track

from interp_studies.challenge.families.layouts import Layout
from interp_studies.challenge.families.shared_work import Work, shared_work
from interp_toolkit.circuits.edges import screened, search
from interp_toolkit.circuits.edges.analysis import status_of
from interp_toolkit.circuits.edges.circuit import Circuit
from interp_toolkit.circuits.metrics.prompts import Prompts, prompts_from_data
from interp_toolkit.files import replacing
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.stats import clopper_pearson

ROWS, N_POS, D_VOCAB = 64, 12, 60
SIZES: dict[str, Any] = {"n_layers": 3, "d_model": 32, "n_ctx": N_POS, "d_vocab": D_VOCAB}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "GPT-2": {
        "n_heads": 4,
        "d_head": 8,
        "d_mlp": 64,
        "act_fn": "gelu_new",
        "normalization_type": "LN",
    },
    "Llama": {
        "n_heads": 4,
        "d_head": 8,
        "n_key_value_heads": 2,
        "d_mlp": 64,
        "act_fn": "silu",
        "gated_mlp": True,
        "normalization_type": "RMS",
        "positional_embedding_type": "rotary",
    },
    "attention only": {"n_heads": 4, "d_head": 8, "attn_only": True, "normalization_type": "LN"},
}
NOISES = (0.1, 0.3, 0.6, 1.0)  # of the gain, for the figure by strength


def untrained(architecture: str, seed: int) -> tuple[Transformer, Prompts]:
    """A model with weights at initialization, scaled so that its logits differ, and prompts."""
    torch.manual_seed(seed)
    model = Transformer(TransformerConfig(**SIZES, **ARCHITECTURES[architecture]))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                scale = float(10 ** (torch.rand((), generator=generator) - 1.0))
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
            assert torch.isfinite(parameter).all(), name
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, D_VOCAB, (ROWS, N_POS))
    corrupted = tokens.copy()
    places = rng.integers(0, N_POS - 1, ROWS)
    corrupted[np.arange(ROWS), places] = rng.integers(0, D_VOCAB, ROWS)
    answers = rng.integers(0, D_VOCAB, ROWS)
    wrong = (answers + rng.integers(1, D_VOCAB, ROWS)) % D_VOCAB
    prompts = Prompts(
        torch.from_numpy(tokens),
        0,
        np.zeros(ROWS, dtype=np.int64),
        "random prompts in pairs",
        torch.from_numpy(answers)[:, None],
        torch.full((ROWS, 1), N_POS - 1),
        torch.from_numpy(wrong)[:, None],
        torch.from_numpy(corrupted),
    )
    return model.eval(), prompts


@contextmanager
def as_large() -> Iterator[None]:
    """The search of large models, whatever the size."""
    before = search.MANY, screened.FEWEST_NODES, screened.FEWEST_EDGES
    search.MANY, screened.FEWEST_NODES, screened.FEWEST_EDGES = 0, 1, 2
    try:
        yield
    finally:
        search.MANY, screened.FEWEST_NODES, screened.FEWEST_EDGES = before


def on_untrained(count: int) -> dict[str, Any]:
    """Models with a ✓, and those past the first question."""
    found: dict[str, list[int]] = {}
    for number, architecture in enumerate(ARCHITECTURES):
        n = count // len(ARCHITECTURES) + (number < count % len(ARCHITECTURES))
        ticks, at_home = 0, 0
        for seed in track(range(n), architecture):
            model, prompts = untrained(architecture, 1000 * number + seed)
            with as_large():
                large = search.find_circuit(model, prompts, seed=seed)
            at_home += large.nothing is None
            each = search.find_circuit(model, prompts, seed=seed) if large.nothing is None else None
            ticks += any(c is not None and status_of(c)[0] == "detected" for c in (large, each))
        found[architecture] = [n, at_home, ticks]
    total, past, ticks = np.sum(list(found.values()), axis=0).tolist()
    return {
        "models": total,
        "past the first question": past,
        "with a tick": ticks,
        "at most": clopper_pearson(ticks, total, 0.95)[1],
        "by architecture": found,
    }


def _heads(circuit: Circuit) -> set[tuple[int, int]]:
    nodes = {n for e in circuit.included for n in (e.edge.source, e.edge.target)}
    return {(n.layer, n.head) for n in nodes if n.layer is not None and n.head is not None}


def on_planted(works: list[tuple[str, Work]]) -> dict[str, dict[str, list[int]]]:
    """By search and kind: true heads in the circuit, true heads, heads in it, ticks, models."""
    counts: dict[str, dict[str, list[int]]] = {"each edge": {}, "attribution": {}}
    for kind, work in track(works, "planted"):
        model = shared_work(work, torch.float32)
        prompts = prompts_from_data(work.layout.rows(2 * ROWS, 3), model)
        truth = {at[1:] for at in model.ground_truth.true}
        circuits = {"each edge": search.find_circuit(model, prompts)}
        with as_large():
            circuits["attribution"] = search.find_circuit(model, prompts)
        for name, circuit in circuits.items():
            heads = _heads(circuit)
            tick = status_of(circuit)[0] == "detected"
            row = counts[name].setdefault(kind, [0] * 5)
            new = [len(truth & heads), len(truth), len(heads), int(tick), 1]
            counts[name][kind] = [a + b for a, b in zip(row, new, strict=True)]
    return counts


def by_noise(count: int) -> list[tuple[str, Work]]:
    """One head at work, under noise of these sizes."""
    names = ("pointer", "previous-token", "first-token", "induction")
    return [
        (
            f"noise {noise:g}",
            Work(Layout(names[i % 4], 12, 20), noise=noise, decoys=2, idle=2, seed=i),
        )
        for noise in NOISES
        for i in range(count)
    ]


def told(counts: dict[str, dict[str, list[int]]]) -> None:
    """A line for each search and kind."""
    for search_name, kinds in counts.items():
        sums: dict[str, list[int]] = defaultdict(lambda: [0] * 5)
        for kind, row in [*kinds.items(), *(("all", row) for row in kinds.values())]:
            sums[kind] = [a + b for a, b in zip(sums[kind], row, strict=True)]
        for kind, (hit, true, heads, ticks, n) in sums.items():
            print(
                f"{search_name:12s} {kind:15s} recall {hit}/{true}, precision {hit}/{heads}, "
                f"ticks {ticks} of {n}"
            )


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--untrained", type=int, default=200)
    parser.add_argument("--planted", type=int, default=40)
    parser.add_argument("--strength", type=int, default=4, help="models at each strength")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    random = on_untrained(arguments.untrained)
    print(random)
    planted = on_planted(draw_works(arguments.planted))
    told(planted)
    strength = on_planted(by_noise(arguments.strength))
    told(strength)
    if arguments.json:
        content = {"untrained": random, "planted": planted, "by noise": strength}
        with replacing(arguments.json) as partial:
            partial.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
