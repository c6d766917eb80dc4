"""Two files of results: which verdicts differ, which words below them, and which numbers.

Results are matched by analysis, and by model where both files have several of one analysis; their
entries (heads, sites, edges, claims) by what names them. A number with an interval, `x` with
`x_low` and `x_high`, differs where the interval of the difference is beside 0:

    [low a - high b, high a - low b]

which holds whatever the two have to do with each other (the same rows, say), with a chance to err
of at most both intervals' together. Of a number without an interval the difference is told, and
nothing is made of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp_toolkit._version import __version__
from interp_toolkit.errors import InputError
from interp_toolkit.report.format import is_number
from interp_toolkit.report.labels import label_of
from interp_toolkit.results import SCHEMA, STATUS_TONES, Evidence, Provenance, Result, Table

if TYPE_CHECKING:
    import pandas as pd

#: the fields that name an entry, of those it has
NAMES = (
    *("of", "name", "detector", "layer", "head", "hook", "position", "function", "edge", "claim"),
    *("about", "section", "kind", "relation", "query_feature", "key_feature", "gates", "place"),
)
#: fields whose words are findings, beside those that hold a status
WORDS = ("causal", "answer", "outcome", "word", "structure")
NOT_COMPARED = ("probe", "verdict", "provenance", "notes", "graph", "jobs", "tables")
LARGEST = 256 * 2**20  # bytes of a file


@dataclass(frozen=True)
class Difference:
    """A word or a number that is not the same in both files.

    Attributes:
        probe, model: of which result.
        of: the entry; "" for the result itself.
        field: of the entry.
        first, second: the words or numbers.
        low, high: the interval of second - first, where both have intervals.
        beyond: whether 0 lies outside that interval; None without one.
    """

    probe: str
    model: str
    of: str
    field: str
    first: Any
    second: Any
    low: float | None = None
    high: float | None = None
    beyond: bool | None = None


@dataclass(frozen=True)
class ComparisonEvidence(Evidence):
    """What a comparison rests on.

    Attributes:
        compared: results that both files have.
        verdicts_differ: of these, with another status.
        words_differ: words below the verdicts that differ.
        numbers_with_intervals: compared; numbers_differ: of these, beyond both intervals.
        only_first, only_second: results without a counterpart.
    """

    compared: int
    verdicts_differ: int
    words_differ: int
    numbers_with_intervals: int
    numbers_differ: int
    only_first: Sequence[str] = ()
    only_second: Sequence[str] = ()


@dataclass(frozen=True)
class ComparisonResult(Result):
    """Two files of results beside each other.

    Attributes:
        verdicts: analysis, model, and the status in either file.
        differences: below the verdicts, those beyond their intervals first.
    """

    verdicts: Sequence[tuple[str, str, str, str]]
    differences: Sequence[Difference]

    def to_frame(self) -> pd.DataFrame:
        """One row per difference."""
        import pandas as pd

        columns = list(Difference.__dataclass_fields__)
        rows = [[getattr(d, column) for column in columns] for d in self.differences]
        return pd.DataFrame(rows, columns=columns)

    def tables(self) -> list[Table]:
        """The verdicts, then words, then numbers with and without intervals."""
        first, second = self.provenance.settings["first"], self.provenance.settings["second"]
        changed = {n for n, (_, _, a, b) in enumerate(self.verdicts) if a != b}
        found = [
            Table(
                "Verdicts",
                ["analysis", "model", first, second],
                [list(row) for row in self.verdicts],
                "In bold: those that differ." if changed else "",
                changed,
            )
        ]
        words = [d for d in self.differences if isinstance(d.first, str | bool)]
        sure = [d for d in self.differences if d.beyond is not None]
        plain = [d for d in self.differences if d not in words and d.beyond is None]
        if words:
            rows = [[d.probe, d.of, label_of(d.field), d.first, d.second] for d in words]
            found.append(
                Table("Words that differ", ["analysis", "of", "field", first, second], rows)
            )
        if sure:
            found.append(
                Table(
                    "Numbers with intervals",
                    [*("analysis", "of", "field"), first, second, "difference, from", "to"],
                    [
                        [d.probe, d.of, label_of(d.field), d.first, d.second, d.low, d.high]
                        for d in sure
                    ],
                    "The interval is of the second less the first, whatever the two have to do "
                    "with each other. In bold: 0 lies outside.",
                    {n for n, d in enumerate(sure) if d.beyond},
                )
            )
        if plain:
            found.append(
                Table(
                    "Numbers without intervals",
                    ["analysis", "of", "field", first, second, "difference"],
                    [
                        [d.probe, d.of, label_of(d.field), d.first, d.second, d.second - d.first]
                        for d in plain
                    ],
                    "What such a difference means is not known.",
                )
            )
        return found


def compare(first: str | Path, second: str | Path) -> ComparisonResult:
    """Compare two files of results, as `--json` and `write_json` write them.

    Raises InputError where a file is none such, or no analysis is in both.
    """
    files = [Path(first), Path(second)]
    texts = [_read(path) for path in files]
    found = [_results(path, text) for path, text in zip(files, texts, strict=True)]
    pairs, only = matched(*found)
    if not pairs:
        raise InputError(f"{first} and {second} have no analysis in common")
    names = _labels(files)
    verdicts, differences, with_interval = [], list[Difference](), 0
    for a, b in pairs:
        verdicts.append((a["probe"], _model(a), a["evidence"]["status"], b["evidence"]["status"]))
        for difference, has_interval in _between(a, b):
            with_interval += has_interval
            if difference is not None:
                differences.append(difference)
    differences.sort(key=lambda d: (d.beyond is not True, isinstance(d.first, float)))
    changed = [(probe, a, b) for probe, _, a, b in verdicts if a != b]
    words = sum(isinstance(d.first, str | bool) for d in differences)
    beyond = sum(d.beyond is True for d in differences)
    return ComparisonResult(
        probe="compare",
        verdict=_verdict(len(pairs), changed, words, with_interval, beyond),
        evidence=ComparisonEvidence(
            "differs" if changed else "described",
            compared=len(pairs),
            verdicts_differ=len(changed),
            words_differ=words,
            numbers_with_intervals=with_interval,
            numbers_differ=beyond,
            only_first=only[0],
            only_second=only[1],
        ),
        provenance=Provenance(
            model={"name": " and ".join(names)},
            data={
                name: hashlib.sha256(text).hexdigest()
                for name, text in zip(names, texts, strict=True)
            },
            settings=dict(zip(("first", "second"), names, strict=True)),
            seed=None,
            versions={"interp-toolkit": __version__},
        ),
        verdicts=verdicts,
        differences=differences,
    )


def _verdict(
    n: int, changed: Sequence[tuple[str, str, str]], words: int, with_interval: int, beyond: int
) -> str:
    said = "; ".join(f"{probe}: {a}, then {b}".replace("_", " ") for probe, a, b in changed)
    verdicts = f"{len(changed)} of {n} verdicts differ" + (f" ({said})" if said else "")
    numbers = (
        f"of {with_interval} numbers with intervals, {beyond} differ beyond both"
        if with_interval
        else "no number has an interval"
    )
    return f"{verdicts}; below them {words} words differ; {numbers}."


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > LARGEST:
            raise InputError(f"{path} is larger than {LARGEST // 2**20} MiB: no file of results is")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def _results(path: Path, text: bytes) -> list[dict[str, Any]]:
    """What a file of results holds; raises InputError where it is none."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InputError(f"{path} is no file of results: its schema is not {SCHEMA!r}")
    results = document.get("results")
    if not isinstance(results, list) or not all(map(_is_result, results)):
        raise InputError(f"{path}: results must be a list of results (docs/results.schema.json)")
    return results


def _is_result(found: Any) -> bool:
    return (
        isinstance(found, dict)
        and all(isinstance(found.get(key), str) for key in ("probe", "verdict"))
        and isinstance(found.get("evidence"), dict)
        and isinstance(found["evidence"].get("status"), str)
        and isinstance(found.get("provenance"), dict)
    )


def _model(result: Mapping[str, Any]) -> str:
    model = result["provenance"].get("model")
    return str(model.get("name") or "model") if isinstance(model, dict) else "model"


def _labels(files: Sequence[Path]) -> list[str]:
    """Short names that differ."""
    names = [path.name for path in files]
    if names[0] == names[1]:
        names = [str(path) for path in files]
    return [f"{names[0]} (first)", f"{names[1]} (second)"] if names[0] == names[1] else names


def matched(
    first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]
) -> tuple[list[tuple[Mapping[str, Any], Mapping[str, Any]]], tuple[list[str], list[str]]]:
    """Results that belong together, and those that are alone: "heads of model.pt"."""
    pairs = []
    alone: tuple[list[str], list[str]] = ([], [])
    for probe in dict.fromkeys(r["probe"] for r in [*first, *second]):
        mine, theirs = ([r for r in side if r["probe"] == probe] for side in (first, second))
        if len(mine) == len(theirs) == 1:
            pairs.append((mine[0], theirs[0]))
            continue
        for result in mine:
            like = [other for other in theirs if _model(other) == _model(result)]
            if like:
                pairs.append((result, like[0]))
                theirs.remove(like[0])
            else:
                alone[0].append(f"{probe} of {_model(result)}")
        alone[1].extend(f"{probe} of {_model(result)}" for result in theirs)
    return pairs, alone


def _between(
    a: Mapping[str, Any], b: Mapping[str, Any]
) -> Iterator[tuple[Difference | None, bool]]:
    """Every word and number that both have: the difference, if any; whether it has an interval."""
    entries, others = dict(entries_of(a)), dict(entries_of(b))
    for of, mine in entries.items():
        theirs = others.get(of)
        if theirs is None:
            continue
        for field, value in mine.items():
            other = theirs.get(field)
            place = (a["probe"], _model(a), of, field)
            if is_word(field, value) and is_word(field, other):
                if of or field != "status":
                    yield (Difference(*place, value, other) if value != other else None), False
            elif is_number(value) and is_number(other) and field not in NAMES:
                yield from _numbers(place, mine, theirs, plain=not of)


def _numbers(
    place: tuple[str, str, str, str],
    mine: Mapping[str, Any],
    theirs: Mapping[str, Any],
    *,
    plain: bool,
) -> Iterator[tuple[Difference | None, bool]]:
    """A number's difference; without an interval only where `plain`."""
    field = place[-1]
    value, other = float(mine[field]), float(theirs[field])
    bounds = _interval(field, mine), _interval(field, theirs)
    if bounds[0] is not None and bounds[1] is not None:
        low, high = bounds[1][0] - bounds[0][1], bounds[1][1] - bounds[0][0]
        same = value == other and bounds[0] == bounds[1]
        beyond = low > 0 or high < 0
        yield (None if same else Difference(*place, value, other, low, high, beyond)), True
    elif plain and value != other and not field.endswith(("_low", "_high")):
        yield Difference(*place, value, other), False


def _interval(field: str, entry: Mapping[str, Any]) -> tuple[float, float] | None:
    """`field_low` to `field_high`, or `low` to `high` of an entry's value or effect."""
    for low, high in ((f"{field}_low", f"{field}_high"), ("low", "high")):
        own = low != "low" or field in ("value", "effect")
        if own and is_number(entry.get(low)) and is_number(entry.get(high)):
            return float(entry[low]), float(entry[high])
    return None


def is_word(field: str, value: Any) -> bool:
    """Whether a value says a finding in a word."""
    if isinstance(value, bool):
        return True
    return isinstance(value, str) and (field in WORDS or value in STATUS_TONES)


def entries_of(result: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The evidence as "", and every named entry of the result's lists, by list and name."""
    yield "", result["evidence"]
    for key, value in result.items():
        if key in NOT_COMPARED or not isinstance(value, list):
            continue
        entries = [entry for entry in value if isinstance(entry, dict)]
        names = [" ".join(str(e[n]) for n in NAMES if e.get(n) is not None) for e in entries]
        for name, entry in zip(names, entries, strict=True):
            if name and names.count(name) == 1:
                yield f"{key}: {name}", entry
