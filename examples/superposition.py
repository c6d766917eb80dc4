"""Computation in superposition: the ANDs that two layers compute, the skip-bigrams of a head.

Run: python examples/superposition.py [FOLDER]   (default: demo)
Writes superposition.html to the folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from rich.console import Console

import interp_toolkit as it
from interp_toolkit.data.composites import all_composites
from interp_toolkit.probes import UANDReadout


def main(folder: Path) -> None:
    """Analyze a construction, a trained layer and a head; then fit readouts on plain arrays."""
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)
    built, trained, heads = (it.load(f"toy:{n}") for n in ("uand", "uand-trained", "skip-bigrams"))
    results = []
    for title, model, probe in (
        ("A layer with random 0/1 weights, the construction of the source", built, "uand"),
        ("A trained layer", trained, "uand"),
        (
            "A head built for 64 skip-bigrams in 16 dimensions, and a random head",
            heads,
            "skip-bigrams",
        ),
    ):
        results.append(it.analyze(model, probe))
        console.rule(title)
        console.print(results[-1].verdict)
    planted = set(heads.ground_truth.bigrams[0, 0])
    found = {
        (int(b.key_feature), int(b.query_feature)) for b in results[-1].head_bigrams[0].bigrams
    }
    console.print(
        f"{len(found & planted)} of the {len(found)} found are among the 64 that it was built for."
    )

    console.rule("AND readouts on plain arrays")
    on = np.random.default_rng(0).permutation(all_composites(16, 4))  # booleans [input, feature]
    connections = built.ground_truth.connections[:16, :400].astype(float)  # [feature, neuron]
    neurons, fitted = (on @ connections - 1).clip(min=0), 2_000
    readout = UANDReadout().fit(neurons[:fitted], on[:fitted])
    errors = readout.epsilon(neurons[fitted:], on[fitted:])
    console.print(
        f"120 pairs, held-out inputs: worst error {errors.worst:.2f}, "
        f"{errors.worst_after_offset:.2f} after the best gain and bias; rms error {errors.rms:.3f}"
    )

    it.write_report(results, folder / "superposition.html")
    console.print(f"The report, with the pictures: {folder / 'superposition.html'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
