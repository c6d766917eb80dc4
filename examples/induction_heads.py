"""Which heads copy from the context, what feeds them, and a decoy that only looks like one.

Run: python examples/induction_heads.py [FOLDER]   (default: demo)
Writes heads.html and the circuit as circuit.graphml to the folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

import interp_toolkit as it
from interp_toolkit.circuits import composition_graph, ov_circuit, score_heads, write_graph
from interp_toolkit.report import render


def main(folder: Path) -> None:
    """Score heads, knock out attention, find a circuit, read the heads' copying weights."""
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)
    decoy, trained = it.load("toy:induction-decoy"), it.load("toy:induction-trained")

    console.rule("Attention alone: both heads of layer 1 look like induction heads")
    frame = score_heads(decoy)
    columns = ["detector", "layer", "head", "score", "null_mean", "p_adjusted"]
    console.print(frame.loc[frame.detected, columns].to_string(index=False))

    console.rule("Knocking out their attention: only one of them carries the task")
    results = [it.analyze(decoy, "heads"), it.analyze(trained, "heads")]
    results.append(it.analyze(trained, "circuit"))
    render(results, console)

    console.rule("The OV weights of the trained heads in layer 1 copy tokens")
    for head in range(3):
        copying = ov_circuit(trained, layer=1, head=head).copying()
        console.print(f"L1H{head}: {copying.rank.first:.0%} of tokens raise themselves most")

    it.write_report(results, folder / "heads.html")
    write_graph(composition_graph(trained), folder / "circuit.graphml")
    console.print(f"The report, with the pictures: {folder / 'heads.html'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
