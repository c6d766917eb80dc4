"""Audits of heads in models that strangers trained, against what was measured independently.

Takes the folder that `zoo_heads.py` takes. For each model and relation of its `truth.json`: the
claim "this head contributes by this relation" for every head listed under it (true), and for heads
that are listed under none (a few of them, drawn). A head that is not listed costs less than three
points of accuracy by the relation, or less than three times a control: a claim of at least 5 % of
the behavior may then still be so, and what is confirmed there is shown to be looked at.

Run: python benchmarks/zoo_audits.py FOLDER [--others 2] [--only NAME ...]
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

import interp_toolkit as it
from interp_toolkit.circuits.heads.detectors import OURS


def claims_of(
    truth: dict[str, Any], n_layers: int, n_heads: int, others: int, rng: np.random.Generator
) -> list[tuple[str, str, bool]]:
    """Head, relation, and whether the head is listed under it."""
    listed = [(h["head"], h["kind"]) for h in truth["heads"] if h["kind"] in OURS]
    heads = {head for head, _ in listed}
    names = [f"L{layer}H{head}" for layer in range(n_layers) for head in range(n_heads)]
    rest = [name for name in names if name not in heads]
    found = [(head, kind, True) for head, kind in listed]
    for kind in sorted({kind for _, kind in listed}):
        for i in rng.permutation(len(rest))[:others].tolist():
            found.append((rest[i], kind, False))
    return found


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--others", type=int, default=2, help="heads not listed, a relation")
    parser.add_argument("--only", nargs="+")
    arguments = parser.parse_args()
    answers: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    folders = sorted(f for f in arguments.folder.iterdir() if (f / "truth.json").is_file())
    if arguments.only:
        folders = [f for f in folders if f.name in arguments.only]
    began = time.process_time()
    for folder in track(folders, "audits"):
        truth = json.loads((folder / "truth.json").read_text())
        if not truth.get("heads") or not (folder / "answers.npz").is_file():
            continue
        try:
            model = it.load(folder / "model.pt")
            cfg, rng = model.cfg, np.random.default_rng(0)
            asked = claims_of(truth, cfg.n_layers, cfg.n_heads, arguments.others, rng)
            for head, kind, listed in asked:
                claim = {"heads": [head], "relation": kind}
                (found,) = it.audit(model, [claim], data=folder / "answers.npz").claims
                answers[listed][found.answer] += 1
                if found.answer != ("confirmed" if listed else "refuted"):
                    why = "; ".join(f"{p.answer}: {p.summary}" for p in found.parts if p.asserted)
                    print(f"{folder.name} {head} {kind}, listed {listed}: {found.answer} ({why})")
        except it.InputError as error:
            print(f"{folder.name}: {error}")
    for listed, counts in answers.items():
        print("listed" if listed else "not listed", dict(counts))
    print(f"{time.process_time() - began:.0f} s CPU")


if __name__ == "__main__":
    main()
