"""Files of models that strangers trained: which load as saved, which with what their error asks.

The folder has one folder a model: `raw.*` as its author saved it, `cfg.json` (the truth about its
configuration), `answers.npz` (tokens, answers, answer_positions) and `truth.json` (accuracy).
Each file is loaded as saved, else with the settings that its own error message names, their values
from cfg.json, else with a mapping `NAME.json` from `--keys`. The accuracy on the answers is then
held against the truth, and where the rows say that an assumption is wrong, what they say is done.
Run: python benchmarks/zoo_loading.py FOLDER [--keys FOLDER] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import interp_toolkit as it
from interp_toolkit.models.loading.check_assumptions import AssumptionsCheck, check_assumptions

TOLERANCE = 0.02  # of accuracy: the truth was measured on other rows of the same kind


@dataclass
class Row:
    """What became of one file.

    Attributes:
        name: of the model.
        how: "as saved", the options that it took, or "never".
        accuracy: as loaded.
        truth: what its author's code gives.
        says: what the rows say of the assumptions, or why it never loaded.
        corrected: the accuracy with what they say.
    """

    name: str
    how: str
    accuracy: float | None
    truth: float
    says: str = ""
    corrected: float | None = None

    @property
    def verdict(self) -> str:
        """Whether the accuracy is the truth's, at last."""
        if self.accuracy is None:
            return "never"
        if abs(self.accuracy - self.truth) <= TOLERANCE:
            return "right"
        fixed = self.corrected is not None and abs(self.corrected - self.truth) <= TOLERANCE
        return "wrong, told and put right" if fixed else "wrong"


def first_that_loads(path: Path, cfg: dict[str, Any], keys: Path | None) -> tuple[str, Any, Any]:
    """(how, the model or None, options or the error)."""
    tries: list[tuple[str, Callable[[str], dict[str, Any] | None]]] = [
        ("as saved", lambda error: {}),
        ("with", lambda error: asked_for(error, cfg)),
        ("with", lambda error: mapping(error, keys)),
    ]
    given: dict[str, Any] = {}
    error = ""
    for how, options in tries:
        more = options(error)
        if more is None:
            continue
        given |= more
        try:
            model = it.load(path, **given)
        except it.InputError as refused:
            error = str(refused)
        else:
            return (how if how == "as saved" else as_options(given)), model, given
    return "never", None, error.replace(str(path), path.name)


def asked_for(error: str, cfg: dict[str, Any]) -> dict[str, Any] | None:
    names = re.findall(r"--set (\w+)=", error)
    known = {name: cfg[name] for name in names if name in cfg}
    return {n: "none" if v is None else v for n, v in known.items()} or None


def mapping(error: str, keys: Path | None) -> dict[str, Any] | None:
    return {"keys": keys} if keys is not None and keys.is_file() and "--keys" in error else None


def as_options(given: dict[str, Any]) -> str:
    return " ".join("--keys FILE" if n == "keys" else f"--set {n}={v}" for n, v in given.items())


def checked(model: Any, folder: Path) -> AssumptionsCheck:
    with np.load(folder / "answers.npz") as data:
        return check_assumptions(model, data["tokens"], data["answers"], data["answer_positions"])


def row_of(folder: Path, raw: Path, keys: Path | None) -> Row:
    cfg = json.loads((folder / "cfg.json").read_text())
    truth = float(json.loads((folder / "truth.json").read_text())["accuracy"])
    mine = None if keys is None else keys / f"{folder.name}.json"
    how, model, given = first_that_loads(raw, cfg, mine)
    if model is None:
        return Row(folder.name, how, None, truth, says=given)
    check = checked(model, folder)
    row = Row(folder.name, how, check.as_loaded.right, truth, says=check.sentence or "")
    if check.better is not None:
        row.corrected = check.better.right
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--keys", type=Path, help="a folder of NAME.json mappings")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for folder in sorted(path for path in options.folder.iterdir() if path.is_dir()):
        for raw in sorted(folder.glob("raw.*")):
            row = row_of(folder, raw, options.keys)
            rows.append(row)
            accuracy = "-" if row.accuracy is None else f"{row.accuracy:.4f}"
            print(f"{row.name:24} {accuracy:>7} {row.truth:7.4f}  {row.verdict:6} {row.how}")
            if row.says:
                print(f"{'':24} {row.says}")
    ways = Counter("as saved" if r.how == "as saved" else r.how.split()[0] for r in rows)
    print(f"{len(rows)} files;", ", ".join(f"{n} {way}" for way, n in ways.most_common()))
    verdicts = Counter(row.verdict for row in rows)
    print("; ".join(f"{n} {verdict}" for verdict, n in verdicts.most_common()))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
