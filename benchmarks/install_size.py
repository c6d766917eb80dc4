"""What an install weighs: every package that `pip install interp-toolkit` brings, in MB.

Walks the requirements of this environment's interp-toolkit without extras, and of each extra what
it adds, and sums the files that each distribution has recorded. Most of ours transformer-lens
requires too: leaving those out would save nothing, which the last column says.

Run: python benchmarks/install_size.py [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rich.console import Console
from rich.table import Table

NAME = "interp-toolkit"
EXTRAS = ("sae", "real", "dask", "tensorboard", "wandb")


def megabytes(found: Distribution) -> float:
    """Of the files that the distribution has recorded."""
    sizes = (Path(str(found.locate_file(file))) for file in found.files or ())
    return sum(path.stat().st_size for path in sizes if path.is_file()) / 1e6


def required(name: str, extra: str = "") -> list[Requirement]:
    """What it requires here; with an extra, what that adds."""
    try:
        listed = distribution(name).requires or []
    except PackageNotFoundError:
        return []
    found = [Requirement(line) for line in listed]
    here = [r for r in found if r.marker is None or r.marker.evaluate({"extra": extra})]
    if not extra:
        return here
    return [r for r in here if r.marker is not None and not r.marker.evaluate({"extra": ""})]


def closure(names: list[str]) -> set[str]:
    """These and all that they require, as installed here."""
    seen: set[str] = set()
    while names:
        name = str(canonicalize_name(names.pop()))
        if name not in seen and name != NAME:
            seen.add(name)
            names += [r.name for r in required(name)]
    return seen


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    own = [r.name for r in required(NAME)]
    base = closure(list(own))
    sizes: dict[str, float] = {}
    for name in base:
        try:
            sizes[name] = megabytes(distribution(name))
        except PackageNotFoundError:
            continue
    rows: list[list[str | float]] = []
    for name in sorted(own, key=lambda n: -_alone(n, own, sizes)):
        whole = sum(sizes.get(part, 0.0) for part in closure([name]))
        itself = sizes.get(str(canonicalize_name(name)), 0.0)
        rows.append([name, itself, whole, _alone(name, own, sizes)])
    extras: list[list[str | float | None]] = []
    for extra in EXTRAS:
        added = closure([r.name for r in required(NAME, extra)]) - base
        try:
            extras.append([extra, len(added), sum(megabytes(distribution(n)) for n in added)])
        except PackageNotFoundError:
            extras.append([extra, None, None])
    total = sum(sizes.values())
    heads = ["package", "itself, MB", "with what it brings, MB", "nothing else brings, MB"]
    table = Table(*heads)
    for row in rows:
        table.add_row(*(x if isinstance(x, str) else f"{x:,.1f}" for x in row))
    console = Console(width=110)
    console.print(table)
    console.print(f"{len(sizes)} packages, {total:,.0f} MB", extras)
    if options.json:
        content = {
            "packages": len(sizes),
            "mb": total,
            "tables": [
                {"title": "Requirements", "columns": heads, "rows": rows},
                {"title": "Extras", "columns": ["extra", "packages", "MB"], "rows": extras},
            ],
        }
        options.json.write_text(json.dumps(content, indent=1) + "\n")


def _alone(name: str, own: list[str], sizes: dict[str, float]) -> float:
    """What would not be there without this one requirement."""
    others = closure([other for other in own if other != name])
    return sum(sizes.get(part, 0.0) for part in closure([name]) - others)


if __name__ == "__main__":
    main()
