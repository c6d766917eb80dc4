"""One head cannot compute XOR, two can: train both, and see each verdict with its witness.

Four points in a few dimensions are easily separated, so that two trained heads separate XOR shows
little: any labels would be. In the hand-set model at the end nothing but XOR is separable.

Run: python examples/xor_demo.py [FOLDER]   (default: demo)
Writes the two checkpoints and report.html to the folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

import interp_toolkit as it
from interp_toolkit.report import render
from interp_toolkit.training.xor import XorTraining, train


def main(folder: Path) -> None:
    """Train, save, load, analyze, report."""
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)
    results = []
    for heads in (1, 2):
        console.rule(f"{heads} head{'s' if heads > 1 else ''}")
        console.print(f"Training {heads}-head models on XOR ...")
        run = train(XorTraining(heads=heads, seeds=3, steps=1000))
        console.print(run.verdict)
        path = folder / f"xor-{heads}head.pt"
        it.save(run.model, path, task=run.task, training=run.training)
        console.print(f"Analyzing {path} ...")
        result = it.analyze(it.load(path), "xor")
        render([result], console)
        results.append(result)
    console.rule("2 heads with weights set by hand")
    results.append(it.analyze("toy:xor-2head", "xor"))
    render(results[-1:], console)
    it.write_report(results, folder / "report.html")
    console.rule("Done")
    render(results, console, quiet=True)
    console.print(f"The report, with the pictures: {folder / 'report.html'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
