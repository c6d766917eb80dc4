"""How long the command line makes one wait, against importing TransformerLens itself.

Each figure is the processor time of a fresh interpreter, the commands taken in turn so that a busy
machine slows all alike. The ratio to the import is the median of the ratios within a round.
Run: python benchmarks/startup.py [--repeats 7] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from interp_toolkit.report.html import write_text

COMMANDS = {
    "import transformer_lens": ["-c", "import transformer_lens"],
    "import interp_toolkit": ["-c", "import interp_toolkit"],
    "interp --help": ["-m", "interp_toolkit", "--help"],
    "interp list": ["-m", "interp_toolkit", "list"],
    "interp show heads": ["-m", "interp_toolkit", "show", "heads"],
    "interp analyze toy:xor-2head": [
        *["-m", "interp_toolkit", "analyze", "toy:xor-2head", "--probe", "xor", "--quiet"]
    ],
}


def seconds(arguments: list[str]) -> float:
    """Processor seconds of a new interpreter on one thread."""
    before = os.times()
    subprocess.run(
        [sys.executable, *arguments],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    after = os.times()
    return (after.children_user - before.children_user) + (
        after.children_system - before.children_system
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    for arguments in COMMANDS.values():  # fill the disk cache
        seconds(arguments)
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(options.repeats):
        for name, arguments in COMMANDS.items():
            times[name].append(seconds(arguments))
    medians = {name: statistics.median(values) for name, values in times.items()}
    base = times["import transformer_lens"]
    fractions = {}
    for name, values in times.items():
        ratios = [value / import_ for value, import_ in zip(values, base, strict=True)]
        low, fraction, high = statistics.quantiles(ratios, n=4)
        fractions[name] = fraction
        relative = f"{fraction:6.1%} ({low:.1%} to {high:.1%}) of TransformerLens's import"
        print(f"{name:30} {medians[name]:6.2f} s  {relative}")
    if options.json:
        times_as_long = {name: 1 / fraction for name, fraction in fractions.items()}
        found = {
            "medians_s": medians,
            "import over it": times_as_long,
            "fraction of the import": fractions,
            "times_s": times,
        }
        write_text(options.json, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
