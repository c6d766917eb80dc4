"""Computation in superposition: which ANDs two layers compute, and which pairs a head checks for.

Run: python examples/superposition.py [FOLDER]   (default: demo)
Writes superposition.html to the folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

import interp_toolkit as it
from interp_toolkit.probes import UANDReadoff


def main(folder: Path) -> None:
    """A construction, a trained layer, a head; then the readoffs on plain arrays."""
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)
    built, trained = it.load("toy:uand"), it.load("toy:uand-trained")
    head = it.load("toy:skip-bigrams")
    results = []
    for title, model, probe, options in (
        ("Random 0/1 weights, by the source's construction", built, "uand", {}),
        ("A layer that was trained", trained, "uand", {}),
        ("A head with 64 bigrams in 16 dimensions", head, "skip-bigrams", {"features": directions}),
    ):
        chosen = {name: make(model) for name, make in options.items()}
        results.append(it.analyze(model, probe, **chosen))
        console.rule(title)
        console.print(results[-1].verdict)
    planted, found = head.ground_truth.bigrams[0, 0], results[-1].found[0].bigrams
    console.print(
        f"{len(set(planted) & {pair_of(b) for b in found})} of {len(planted)} are planted"
    )

    console.rule("The same readoffs on plain arrays")
    on = it.data.composites.all_composites(12, 4)
    neurons = (on.astype(float) @ built.ground_truth.connections[:12] - 1).clip(min=0)
    errors = UANDReadoff().fit(neurons[::2], on[::2]).epsilon(neurons[1::2], on[1::2])
    console.print(f"66 pairs of 12 features, up to 4 on, held out: {errors.epsilon()}")

    it.write_report(results, folder / "superposition.html")
    console.print(f"The report, with the pictures: {folder / 'superposition.html'}")


def directions(model):
    """The features that the head was made for."""
    return model.ground_truth.features


def pair_of(bigram):
    """(key, query) by number."""
    return int(bigram.key_feature), int(bigram.query_feature)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
