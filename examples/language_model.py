"""A real language model: task performance, and the heads and the circuit of the IOI task.

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

ROWS = 32  # half to select edges, half to test them
TASKS = ("indirect-object", "gendered-pronoun", "subject-verb-agreement", "successor")


def main(folder: Path, source: str | Path | None) -> None:
    """Measure tasks, classify heads, find and test a circuit, write the report."""
    if source is None:
        raise SystemExit("no language model is installed: make real, or give a file or folder")
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)
    model = it.load(source)

    console.rule("Tasks: the fraction of prompts on which the model prefers the right answer")
    for name in TASKS:
        prompts = prompts_from_data(it.task(model, name, rows=ROWS), model)
        console.print(f"{name}: {task_performance(model, prompts).summary}")

    console.rule("Indirect objects: the roles of heads, and a circuit with its checks")
    data = it.task(model, "indirect-object", rows=ROWS)
    roles = it.analyze(model, "roles", data=data)
    circuit = it.analyze(model, "circuit", data=data, memory="2GiB")
    render([roles, circuit], console)
    circuit.write_graph(folder / "indirect-object.eap.json")

    it.write_report([roles, circuit], folder / "language_model.html")
    console.print(f"The report, with the pictures: {folder / 'language_model.html'}")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    folder = Path(arguments[0] if arguments else "real-demo")
    main(folder, arguments[1] if arguments[1:] else smollm2_path())
