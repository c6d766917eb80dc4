"""Which analysis runs on which family of models, with both releases of TransformerLens.

Tiny random models of the families in `interp_toolkit.testing.families`, saved by transformers and
loaded by the toolkit. *Exact* is the largest difference of the circuit engine's logits, summed from
the parts of every layer, from transformers' own, relative to the largest logit. An analysis *runs*,
is *refused* in one line, or has *nothing* to read (undecided for every head); anything else is an
error, and the table is not written.

Run: python benchmarks/families.py --json FILE [--only FAMILY ...]   in each environment; then
     python benchmarks/families.py --page docs/compatibility.md FILE_OF_3 FILE_OF_4 --json FILE
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import interp_toolkit as it
from interp_toolkit.circuits import run_edges
from interp_toolkit.circuits.edges.passes.patched_pass import PatchedModel
from interp_toolkit.testing.families import FAMILIES, loaded

ANALYSES = (
    *("circuit", "heads", "logit-attribution", "qk", "ov", "composition", "skip-bigrams"),
    *("collapse", "doctor"),
)
OPTIONS: dict[str, dict[str, Any]] = {"circuit": {"effort": "quick"}}
UNREADABLE = re.compile(r"no (matching|copying) scores?|can be computed for any head", re.I)


def row(family: str) -> dict[str, Any]:
    """What became of one family."""
    try:
        original, model = loaded(family)
    except (it.InputError, AttributeError) as error:
        return {
            "family": family,
            "loads": "refused",
            "why": {"load": str(error).partition(": ")[2]},
        }
    result: dict[str, Any] = {"family": family, "loads": "runs", "why": {}}
    tokens = torch.randint(3, 50, (2, 20), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        truth = original(tokens).logits
    try:
        logits = run_edges(model, tokens, PatchedModel(model).wiring.edges)
        result["exact"] = float((logits - truth).abs().max() / truth.abs().max())
    except it.InputError:
        result["exact"] = None  # the circuit's own cell says why
    for name in ANALYSES:
        result[name], why = outcome(model, name)
        if why:
            result["why"][name] = why
    return result


def outcome(model: Any, name: str) -> tuple[str, str]:
    """Whether an analysis runs, and why not."""
    try:
        if name == "doctor":
            finding = it.doctor(model)
            sound = finding.status == "sound"
            return ("runs", "") if sound else ("faulty", finding.headline)
        finding = it.analyze(model, name, **OPTIONS.get(name, {}))
    except it.InputError as error:
        return "refused", str(error)
    if finding.status == "undecided" and UNREADABLE.search(finding.headline):
        return "nothing", finding.headline
    return "runs", ""


def table(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a family, of both releases."""
    of = [{row["family"]: row for row in file["rows"]} for file in files]
    rows = []
    for family in FAMILIES:
        both = [rows_of[family] for rows_of in of if family in rows_of]
        exact = max((row["exact"] for row in both if row.get("exact") is not None), default=None)
        cells: dict[str, Any] = {"family": family, "exact": exact}
        for name in ANALYSES:
            outcomes = [row.get(name, "refused") for row in both]
            words = {"runs": "✓", "refused": "–", "nothing": "–", "faulty": "faulty"}
            marks = [words[outcome] for outcome in outcomes]
            cells[name] = marks[0] if len(set(marks)) == 1 else " / ".join(marks)
        rows.append(cells)
    return rows


def page(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the table into the page, in place of the one that is there."""
    head = ["family", "exact", *ANALYSES]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for one in rows:
        cells = [f"{one[name]:.0e}" if isinstance(one[name], float) else one[name] for name in head]
        lines.append("| " + " | ".join("–" if cell is None else cell for cell in cells) + " |")
    text = path.read_text(encoding="utf-8")
    old = re.compile(r"\| family \| exact .*?(?=\n\n)", re.DOTALL)
    assert old.search(text), "the page has no such table"
    path.write_text(old.sub(lambda match: "\n".join(lines), text, count=1), encoding="utf-8")


def main() -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, help="measured files, of 3 and of 4")
    parser.add_argument("--only", nargs="+", default=list(FAMILIES), metavar="FAMILY")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    if options.page:
        files = [json.loads(file.read_text(encoding="utf-8")) for file in options.files]
        rows = table(files)
        page(options.page, rows)
        content = {"rows": rows, "releases": {file["release"]: file["rows"] for file in files}}
        options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        return
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    content = {"release": version("transformer-lens"), "rows": []}
    for family in options.only:
        since = time.perf_counter()
        content["rows"].append(row(family))
        print(f"{family} {time.perf_counter() - since:.0f} s", flush=True)
        if options.json:
            options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
