"""All artifacts, one after the other, and a page of their results: `interp reproduce all`.

    FOLDER/jobs/NAME/         the jobs of an artifact, as with `--out`, so that it can be resumed;
                              artifacts that train the same models share a folder
    FOLDER/results/NAME.json  verdict, reported and reproduced numbers, findings, settings, tables
    FOLDER/results/README.md  outcomes of all artifacts
    FOLDER/seconds.json       time of each artifact, over all runs; a model that several artifacts
                              share counts for the first one

An artifact that cannot be made here (because its text is missing on this machine, say) is reported
and skipped. Files are written as soon as an artifact is done. They differ between runs only in
durations and timed results.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interp_studies.jobs.runner import Runner
from interp_toolkit.errors import InputError
from interp_toolkit.files import read_whole_text, replacing
from interp_toolkit.registry import find
from interp_toolkit.report.html import to_json
from interp_toolkit.results import Result, jsonable

JOBS, RESULTS, SPENT = "jobs", "results", "seconds.json"
LEFT_OUT = ("jobs", "plots")  # of a result's JSON: every seed's numbers


@dataclass(frozen=True)
class Made:
    """A requested artefact.

    Attributes:
        name: name of the artefact.
        preset: preset that was run.
        result: the result; None if it could not be computed.
        why_not: the reason in one line; "" with a result.
        seconds: run time, including that of earlier, interrupted runs.
    """

    name: str
    preset: str
    result: Result | None
    why_not: str
    seconds: float


def reproduce_all(
    names: Iterable[str],
    preset: str,
    folder: Path,
    runner_for: Callable[[Path, int], Runner],
    say: Callable[[str], None],
) -> list[Made]:
    """Reproduce every artefact and store the results.

    Args:
        names: names of the artefacts.
        preset: preset to run; the first preset of artefacts that do not have it.
        folder: folder of jobs and results.
        runner_for: makes the runner from the folder of the jobs and the artefact's first seed.
        say: called with a description of the current artefact.

    Raises:
        InputError: a file cannot be written.
    """
    made: list[Made] = []
    chosen, spent = list(names), _spent(folder / SPENT)
    for number, name in enumerate(chosen, 1):
        say(f"{number} of {len(chosen)}: {name}")
        found = _make(name, preset, folder, runner_for)
        found = dataclasses.replace(found, seconds=found.seconds + spent.get(name, 0.0))
        made.append(found)
        file = folder / RESULTS / f"{name}.json"
        if found.result is not None:
            _write_result(found.result, file)
        else:
            file.unlink(missing_ok=True)  # an earlier run's would stand beside "not made"
        _write(folder / SPENT, json.dumps(spent | {m.name: m.seconds for m in made}, indent=1))
        _write(folder / RESULTS / "README.md", page(made))
    return made


def _spent(path: Path) -> dict[str, float]:
    """The run time of earlier, interrupted runs, by artefact."""
    try:
        found = json.loads(read_whole_text(path))
    except (OSError, ValueError, RecursionError):
        return {}
    ok = isinstance(found, dict) and all(isinstance(x, int | float) for x in found.values())
    return found if ok else {}


def _make(name: str, preset: str, folder: Path, runner_for: Callable[[Path, int], Runner]) -> Made:
    artefact = find("artefacts", name)
    chosen = preset if preset in artefact.presets else next(iter(artefact.presets))
    began = time.monotonic()
    result, why_not = None, ""
    try:
        place = folder / JOBS / (artefact.shares or name).replace("/", "--")
        place.parent.mkdir(parents=True, exist_ok=True)
        result = artefact.run(chosen, None, runner_for(place, artefact.first_seed))
    except InputError as error:
        why_not = str(error)
    except Exception as error:  # the others are still to be made; it is told, and the exit code too
        why_not = f"a bug: {type(error).__name__}: {error}"
    return Made(name, chosen, result, why_not, time.monotonic() - began)


def page(made: Iterable[Made]) -> str:
    """A Markdown page: a table of all artifacts that links their files."""
    lines = [
        "# Results of `interp reproduce all`",
        "",
        "Each name links to a file with the headline, findings, settings and tables, and with the "
        "reported numbers next to the reproduced ones. `interp reproduce NAME` repeats one "
        "artifact.",
        "",
        "- *Reached*, *partly reached*, *not reached*: all, some or none of the compared numbers "
        "are at least as good as the reported ones or lie in the expected range, or of the "
        "compared orderings are the reported ones.",
        "- *Answered*, *partly answered*: all or some claims are confirmed or refuted by their "
        "confidence intervals.",
        "- *Confirmed*: the claimed effect is shown in every seed. *Undecided*: the comparison "
        "could not be decided. *Described*: there is nothing to compare.",
        "",
        "| artifact | preset | outcome | minutes |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {_linked(one)} | {one.preset} | {_outcome(one)} | {one.seconds / 60:.1f} |"
        for one in made
    ]
    return "\n".join(lines) + "\n"


def _linked(one: Made) -> str:
    return one.name if one.result is None else f"[{one.name}]({one.name}.json)"


def _outcome(one: Made) -> str:
    if one.result is None:
        return f"not made: {_one_line(one.why_not)}".replace("|", "\\|")
    return one.result.status.replace("_", " ")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _write_result(result: Result, path: Path) -> None:
    document = to_json([result])
    for one in document["results"]:
        for left_out in LEFT_OUT:
            one.pop(left_out, None)
        one["tables"] = [
            {"title": t.title, "columns": list(t.columns), "rows": jsonable(t.rows)}
            for t in result.tables()
        ]
    _write(path, json.dumps(document, allow_nan=False, indent=1) + "\n")


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            Path(part).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error}") from error


def summary(made: Iterable[Made]) -> str:
    """The number of artefacts that were computed, and the missing ones, in a sentence."""
    chosen: list[Any] = list(made)
    missing = [f"{one.name} ({one.why_not})" for one in chosen if one.result is None]
    text = f"{len(chosen) - len(missing)} of {len(chosen)} artefacts made"
    return f"{text}; not made: {'; '.join(missing)}" if missing else text
