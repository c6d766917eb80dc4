"""The sorting algorithm of small transformers: two set by hand, and three that were trained.

Run: python examples/sorting.py [FOLDER]   (default: demo)
Writes sorting.html to the folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

import interp_toolkit as it
from interp_toolkit.circuits.sorting.evaluation import counterexamples
from interp_toolkit.data.lists.draws import ListSource
from interp_toolkit.data.lists.layout import parse_layout

TOYS = (
    "sort-min-greater",  # set by hand: the least value above the previous one
    "sort-argmax",  # set by hand: the largest of f(x) + (k + 0.5) x
    "sort-distinct-trained",
    "sort-bidirectional-trained",
    "sort-causal-trained",
)


def main(folder: Path) -> None:
    """Analyze each model, then search for lists that a trained one does not sort."""
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)
    results = []
    for name in TOYS:
        results.append(it.analyze(it.load(f"toy:{name}"), "sorting"))
        console.rule(f"toy:{name}")
        console.print(results[-1].verdict)

    console.rule("Lists that the causal model does not sort")
    layout = parse_layout("10 list10 11 sorted10", d_vocab=12, d_vocab_out=10)
    hard = ListSource("hard", n_values=10, shortest=10, longest=10)
    model = it.load("toy:sort-causal-trained")
    found = counterexamples(model, layout, hard, n=100_000, keep=3)
    console.print(f"{found.rate:.2%} of {found.searched:,} hard lists are not sorted, for example")
    for example in found.examples:
        console.print(f"{[*example.input_list]}\n  output {[*example.output]}")

    it.write_report(results, folder / "sorting.html")
    console.print(f"The report, with the pictures: {folder / 'sorting.html'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
