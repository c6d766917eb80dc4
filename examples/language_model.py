"""A real language model: does it name the indirect object, by which heads, and is that all?

Run: python examples/language_model.py [FOLDER] [MODEL]   (default: real-demo, SmolLM2-135M)
`make real` installs the model and runs this: a few minutes on two cores. Writes language_model.html
and the circuit, in EAP-IG's format, to the folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

import interp_toolkit as it
from interp_toolkit.circuits.metrics.prompts import prompts_from_data
from interp_toolkit.circuits.metrics.task_check import task_performance
from interp_toolkit.report import render
from interp_toolkit.testing.real import smollm2_path

ROWS = 32  # half to choose edges on, half to judge them on
TASKS = ("indirect-object", "gendered-pronoun", "subject-verb-agreement", "successor")


def main(folder: Path, source: str | Path | None) -> None:
    """Ask, cut, hold against rivals, draw."""
    if source is None:
        raise SystemExit("no language model is installed: make real, or give a file or folder")
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)
    model = it.load(source)

    console.rule("What it can do: the share of prompts in which it prefers the right answer")
    for name in TASKS:
        prompts = prompts_from_data(it.task(model, name, rows=ROWS), model)
        console.print(f"{name}: {task_performance(model, prompts).summary}")

    console.rule(
        "Which heads move, suppress or inhibit; what carries it, and what that stands up to"
    )
    data = it.task(model, "indirect-object", rows=ROWS)
    roles = it.analyze(model, "roles", data=data)
    circuit = it.analyze(model, "circuit", data=data, memory="2GiB")
    render([roles, circuit], console)
    circuit.write_graph(folder / "indirect-object.eap.json")

    it.write_report([roles, circuit], folder / "language_model.html")
    console.print(f"The report, with the pictures: {folder / 'language_model.html'}")


if __name__ == "__main__":
    given = sys.argv[1:]
    main(Path(given[0] if given else "real-demo"), given[1] if given[1:] else smollm2_path())
