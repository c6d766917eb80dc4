"""Comparison of two results files: verdicts, outcomes of entries, and numbers.

Results are matched by analysis, and by model if a file has several results of one analysis; their
entries (heads, sites, edges, claims) are matched by name. A number with an interval differs if the
interval of the difference, second minus first, excludes 0:

    [second's low - first's high, second's high - first's low]

The rule is valid for any dependence between the two numbers (the same prompts, say). Its error
probability, for each number separately, is at most the sum of both intervals' error probabilities.
Numbers without an interval are never tested: their differences are reported for the evidence, and
not compared for entries. Effects on different metrics, or under different conditions, are not
compared: the metric or the condition is among the words that differ.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from interp_toolkit._version import __version__
from interp_toolkit.errors import PATH, InputError, reason_of, takes
from interp_toolkit.evidence import only_described
from interp_toolkit.files import parsed, read_whole
from interp_toolkit.finding import Finding
from interp_toolkit.formatting import counted, listed
from interp_toolkit.report.format import BOUNDS, is_number, label_of
from interp_toolkit.results import SCHEMA, Evidence, Provenance, Status, Table, head_name

if TYPE_CHECKING:
    import pandas as pd

#: the fields that name an entry; absent ones are skipped
NAMES = (
    *("of", "name", "detector", "layer", "head", "hook", "position", "function", "edge", "claim"),
    *("about", "section", "kind", "relation", "query_feature", "key_feature", "query_token"),
    *("distance", "gates", "site_name", "at"),
)
#: fields whose interval is the entry's `low` and `high`, or its `interval`
ESTIMATES = ("value", "effect", "mean", "cosine", "gap")
#: fields that do not depend on a metric
ATTENTION = ("attention", "score", "uniform", "null_mean", "excess")
#: fields whose words are outcomes, in addition to status words
WORDS = ("causal", "answer", "outcome", "word", "structure", "others")
STATUSES = frozenset(get_args(Status))
NOT_COMPARED = (
    "probe",
    "status",
    "verdict",
    "headline",
    "findings",
    "provenance",
    "notes",
    "graph",
    "jobs",
    "tables",
)
LARGEST = 256 * 2**20  # bytes of a file


@dataclass(frozen=True)
class Difference:
    """A word, a number or its interval that differs between the files.

    Attributes:
        probe, model: analysis and model of the result.
        of: the entry; "" for the result itself.
        field: field of the entry.
        first, second: the words or numbers; None: missing in that file.
        low, high: the interval of second - first, if both have intervals.
        beyond: whether the interval excludes 0; None without one.
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
    """The evidence of a comparison.

    Attributes:
        compared: number of results that both files have.
        verdicts_differ: number of these whose statuses differ.
        words_differ: number of words that differ, plus words and numbers missing in one file.
        numbers_with_intervals: number of compared numbers that have intervals; numbers_differ: how
            many of these have an interval of the difference that excludes 0.
        numbers_unlike: of those not compared, because their metric or condition differs.
        entries: number of compared entries; entries_alone: of those in one file only;
            entries_unnamed: of those not compared, because they have no name or share one.
        only_first, only_second: results without a counterpart.
    """

    compared: int
    verdicts_differ: int
    words_differ: int
    numbers_with_intervals: int
    numbers_differ: int
    entries: int
    entries_alone: int
    entries_unnamed: int
    numbers_unlike: int = 0
    only_first: Sequence[str] = ()
    only_second: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class ComparisonFinding(Finding):
    """The comparison of two files of results.

    Attributes:
        verdicts: analysis, model, and the status in each file.
        differences: differences in entries and evidence; those beyond their intervals first.
        alone: entries in one file only: analysis, model, entry, and the file.
    """

    evidence: ComparisonEvidence
    verdicts: Sequence[tuple[str, str, str, str]]
    differences: Sequence[Difference]
    alone: Sequence[tuple[str, str, str, str]]

    def to_frame(self) -> pd.DataFrame:
        """One row per difference."""
        import pandas as pd

        columns = list(Difference.__dataclass_fields__)
        rows = [[getattr(d, column) for column in columns] for d in self.differences]
        return pd.DataFrame(rows, columns=columns)

    def tables(self) -> list[Table]:
        """Verdicts, then words, numbers with and without intervals, and entries in one file."""
        first, second = self.provenance.settings["first"], self.provenance.settings["second"]
        changed = {n for n, (_, _, a, b) in enumerate(self.verdicts) if a != b}
        all_tables = [
            Table(
                "Verdicts",
                ["analysis", "model", first, second],
                [list(row) for row in self.verdicts],
                "In bold: those that differ." if changed else "",
                changed,
            )
        ]
        words, sure, plain = by_kind(self.differences)
        several = len({model for _, model, _, _ in self.verdicts}) > 1
        headings = ["analysis", *(["model"] if several else []), "entry", "field", first, second]

        def row(d: Difference) -> list[Any]:
            model = [d.model] if several else []
            return [d.probe, *model, d.of, label_of(d.field), d.first, d.second]

        if words:
            all_tables.append(
                Table(
                    "Outcomes that differ or are in one file only", headings, list(map(row, words))
                )
            )
        if sure:
            all_tables.append(
                Table(
                    "Numbers with intervals",
                    [*headings, "difference, from", "to"],
                    [[*row(d), d.low, d.high] for d in sure],
                    "Interval: of second minus first, valid for any dependence between the two; "
                    "each number is tested separately. In bold: the interval excludes 0.",
                    {n for n, d in enumerate(sure) if d.beyond},
                )
            )
        if plain:
            all_tables.append(
                Table(
                    "Numbers without intervals",
                    [*headings, "difference"],
                    [[*row(d), d.second - d.first] for d in plain],
                    "Without an interval, a difference is not tested.",
                )
            )
        if self.alone:
            columns = ["analysis", "model", "entry", "only in"]
            all_tables.append(Table("In one file only", columns, [list(row) for row in self.alone]))
        return all_tables


def by_kind(
    differences: Sequence[Difference],
) -> tuple[list[Difference], list[Difference], list[Difference]]:
    """Split into words and missing values, numbers with intervals, and numbers without."""
    kinds: tuple[list[Difference], list[Difference], list[Difference]] = ([], [], [])
    for difference in differences:
        numbers = is_number(difference.first) and is_number(difference.second)
        kinds[0 if not numbers else 2 if difference.beyond is None else 1].append(difference)
    return kinds


@takes(first=PATH, second=PATH)
def compare(first: str | Path, second: str | Path) -> ComparisonFinding:
    """Compare two files of results, as `--json` and `write_json` write them.

    Raises InputError if a file holds no results, or if no result has a counterpart.

    Examples:
        >>> import interp_toolkit as it
        >>> for toy in ("xor-1head", "xor-2head"):
        ...     it.write_json([it.analyze(f"toy:{toy}", "xor")], f"{toy}.json")
        >>> it.compare("xor-1head.json", "xor-2head.json").headline
        '1 of 1 statuses differ: xor: not separable, then separable.'
    """
    files = [Path(first), Path(second)]
    texts = [_read(path) for path in files]
    results = [_results(path, text) for path, text in zip(files, texts, strict=True)]
    pairs, only = matched(*results)
    if not pairs:
        raise InputError(
            f"{first} and {second} have no results that can be matched: they have no analysis in "
            "common, or several results of one, and their models do not match"
        )
    names = _labels(files)
    verdicts, differences, alone = [], list[Difference](), list[tuple[str, str, str, str]]()
    with_interval = n_entries = unnamed = unlike = 0
    for a, b in pairs:
        probe, model = a["probe"], _model(a)
        verdicts.append((probe, model, a["evidence"]["status"], b["evidence"]["status"]))
        (first_entries, left), (second_entries, also_left) = entries_of(a), entries_of(b)
        metrics = _metric(a), _metric(b)
        if metrics[0] != metrics[1]:
            differences.append(Difference(probe, model, "", "metric", *metrics))
        unnamed += left + also_left
        for entry in first_entries.keys() | second_entries.keys():
            if entry not in second_entries or entry not in first_entries:
                alone.append((probe, model, entry, names[entry in second_entries]))
        for of in first_entries:
            if of in second_entries:
                n_entries += bool(of)
                for difference, has_interval in _between(
                    (probe, model, of),
                    first_entries[of],
                    second_entries[of],
                    same_metric=metrics[0] == metrics[1],
                ):
                    with_interval += has_interval is True
                    unlike += has_interval is None
                    if difference is not None:
                        differences.append(difference)
    differences.sort(key=lambda d: (d.beyond is not True, isinstance(d.first, float)))
    words, sure, _ = by_kind(differences)
    changed = [(probe, a, b) for probe, _, a, b in verdicts if a != b]
    evidence = ComparisonEvidence(
        "differs" if changed or words or alone else only_described(None)[0],
        compared=len(pairs),
        verdicts_differ=len(changed),
        words_differ=len(words),
        numbers_with_intervals=with_interval,
        numbers_differ=sum(d.beyond is True for d in sure),
        entries=n_entries,
        entries_alone=len(alone),
        entries_unnamed=unnamed,
        numbers_unlike=unlike,
        only_first=only[0],
        only_second=only[1],
    )
    return ComparisonFinding(
        probe="compare",
        headline=_headline(evidence, changed),
        findings=_findings(evidence, changed, words, sure),
        evidence=evidence,
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
        alone=sorted(alone),
    )


def _headline(evidence: ComparisonEvidence, changed: Sequence[tuple[str, str, str]]) -> str:
    n = evidence.compared
    if changed:
        probe, first, second = changed[0]
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        return f"{len(changed)} of {n} statuses differ: {_then(probe, first, second)}{more}."
    same = "The status is the same" if n == 1 else f"All {n} statuses are the same"
    entries = evidence.words_differ + evidence.entries_alone
    if entries:
        return f"{same}, but {entries} of the details below differ."
    if evidence.numbers_differ:
        return f"{same}; {evidence.numbers_differ} numbers differ beyond their intervals."
    if not evidence.numbers_with_intervals:
        return f"{same}; no number has an interval to compare."
    return f"{same}, and nothing differs beyond its interval."


def _findings(
    evidence: ComparisonEvidence,
    changed: Sequence[tuple[str, str, str]],
    words: Sequence[Difference],
    numbers: Sequence[Difference],
) -> list[str]:
    """Sentences on verdicts, outcomes, numbers with intervals, and entries not compared."""
    sentences = []
    if len(changed) > 1:
        sentences.append(f"Verdicts: {listed([_then(*one) for one in changed])}.")
    if words:
        ranked = sorted(words, key=lambda d: d.field not in ("status", "detected", *WORDS))
        named = [_then(f"{d.of or d.probe} {label_of(d.field)}", d.first, d.second) for d in ranked]
        sentences.append(f"{len(words)} outcomes differ: {listed(named)}.")
    if evidence.numbers_with_intervals:
        beyond = [f"{d.of or d.probe} {label_of(d.field)}" for d in numbers if d.beyond]
        sentences.append(
            f"{len(beyond)} of {evidence.numbers_with_intervals} numbers with a confidence "
            "interval differ beyond both intervals, each tested separately"
            + (f": {listed(beyond)}." if beyond else ".")
        )
    else:
        sentences.append("No number that can be compared has an interval, so none is tested.")
    if evidence.numbers_unlike:
        sentences.append(
            f"Not compared, since their metric or condition differs: "
            f"{counted(evidence.numbers_unlike, 'number')} with intervals."
        )
    if evidence.entries_alone:
        sentences.append(f"In one file only: {evidence.entries_alone} entries.")
    if evidence.entries_unnamed:
        sentences.append(
            f"Not compared, since they have no unique name: {evidence.entries_unnamed} entries."
        )
    return sentences


def _then(name: str, first: Any, second: Any) -> str:
    before, after = ("missing" if v is None else str(v).replace("_", " ") for v in (first, second))
    return f"{name}: {before}, then {after}"


def _read(path: Path) -> bytes:
    try:
        return read_whole(path, LARGEST)
    except OSError as error:
        raise InputError(f"{path}: {reason_of(error)}") from error


def _results(path: Path, text: bytes) -> list[dict[str, Any]]:
    """The results in a file's text; raises InputError if it is not a results file."""
    document = parsed(text, str(path), nan=False)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InputError(f"{path} is not a results file: its schema is not {SCHEMA!r}")
    results = document.get("results")
    if not isinstance(results, list) or not all(map(_is_result, results)):
        raise InputError(f"{path}: results must be a list of results (docs/results.schema.json)")
    return results


def _is_result(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and all(isinstance(value.get(key), str) for key in ("probe", "verdict"))
        and isinstance(value.get("evidence"), dict)
        and isinstance(value["evidence"].get("status"), str)
        and isinstance(value.get("provenance"), dict)
    )


def _labels(files: Sequence[Path]) -> list[str]:
    """Short, distinct names for the files."""
    names = [path.name for path in files]
    if names[0] == names[1]:
        names = [str(path) for path in files]
    return [f"{names[0]} (first)", f"{names[1]} (second)"] if names[0] == names[1] else names


def matched(
    first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]
) -> tuple[list[tuple[Mapping[str, Any], Mapping[str, Any]]], tuple[list[str], list[str]]]:
    """Pairs of matching results, and descriptions of unmatched ones: "heads of model.pt".

    If a file has several results of one analysis, they are matched by the hash of the model's file,
    then by its path, then by the model's name, where that is unique in both files.
    """
    pairs = []
    alone: tuple[list[str], list[str]] = ([], [])
    for probe in dict.fromkeys(r["probe"] for r in [*first, *second]):
        in_first, in_second = ([r for r in side if r["probe"] == probe] for side in (first, second))
        if len(in_first) == len(in_second) == 1:
            pairs.append((in_first[0], in_second[0]))
            continue
        for key in (_hash, _path, _model):
            for result in list(in_first):
                like = [other for other in in_second if key(other) == key(result)]
                own = [other for other in in_first if key(other) == key(result)]
                if key(result) and len(like) == len(own) == 1:
                    pairs.append((result, like[0]))
                    in_first.remove(result)
                    in_second.remove(like[0])
        for side, left in zip(alone, (in_first, in_second), strict=True):
            side.extend(f"{probe} of {_model(result)}" for result in left)
    return pairs, alone


def _of_model(result: Mapping[str, Any], key: str) -> str:
    model = result["provenance"].get("model")
    return str(model.get(key) or "") if isinstance(model, dict) else ""


def _hash(result: Mapping[str, Any]) -> str:
    return _of_model(result, "sha256")


def _path(result: Mapping[str, Any]) -> str:
    return _of_model(result, "path")


def _model(result: Mapping[str, Any]) -> str:
    return _of_model(result, "name") or "model"


def _metric(result: Mapping[str, Any]) -> str | None:
    """The metric of a result's effects, with its unit; None if it names none."""
    sources = result.get("task_check"), result["evidence"]
    parts = [s.get(key) for s in sources if isinstance(s, dict) for key in ("metric", "unit")]
    return ", ".join(part for part in parts if isinstance(part, str)) or None


def _between(
    entry: tuple[str, str, str],
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    *,
    same_metric: bool,
) -> Iterator[tuple[Difference | None, bool | None]]:
    """Compare an entry's words and numbers.

    Yields the difference (None if the values are the same), and whether both have intervals; None
    for numbers of different metrics or conditions, which are not compared.
    """
    same_condition = first.get("others") == second.get("others")
    for field in dict.fromkeys([*first, *second]):
        value, other = first.get(field), second.get(field)
        where = (*entry, field)
        if field in NAMES or (not entry[2] and field == "status"):
            continue
        if is_word(field, value) or is_word(field, other):
            yield (Difference(*where, value, other) if value != other else None), False
        elif is_number(value) and is_number(other):
            if not (same_metric or field in ATTENTION) or (
                field == "effect" and not same_condition
            ):
                yield None, None if _interval(field, first) else False
                continue
            yield from _numbers(where, first, second, plain=not entry[2])
        elif is_number(value) or is_number(other):
            comparable = not entry[2] or _interval(field, first) or _interval(field, second)
            bound = field.endswith(BOUNDS) or field in ("low", "high")
            if comparable and not bound and (value is None or other is None):
                yield Difference(*where, value, other), False


def _numbers(
    where: tuple[str, str, str, str],
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    *,
    plain: bool,
) -> Iterator[tuple[Difference | None, bool]]:
    """A number's difference; without an interval only if `plain`."""
    field = where[-1]
    value, other = float(first[field]), float(second[field])
    bounds = _interval(field, first), _interval(field, second)
    if bounds[0] is not None and bounds[1] is not None:
        low, high = bounds[1][0] - bounds[0][1], bounds[1][1] - bounds[0][0]
        same = value == other and bounds[0] == bounds[1]
        beyond = low > 0 or high < 0
        yield (None if same else Difference(*where, value, other, low, high, beyond)), True
    elif plain and value != other and not field.endswith(BOUNDS):
        yield Difference(*where, value, other), False


def _interval(field: str, entry: Mapping[str, Any]) -> tuple[float, float] | None:
    """A number's interval: its own bounds, or the entry's if the number is the entry's estimate."""
    stem = field.removesuffix("_effect")
    ends = [[entry.get(stem + bound) for bound in BOUNDS]]
    if field in ESTIMATES:
        ends += [[entry.get("low"), entry.get("high")], entry.get("interval") or []]
    for each in ends:
        if isinstance(each, list) and len(each) == 2 and all(map(is_number, each)):
            return float(each[0]), float(each[1])
    return None


def is_word(field: str, value: Any) -> bool:
    """Whether a value is an outcome: a boolean, a status word, or a word of a field in WORDS."""
    if isinstance(value, bool):
        return True
    return isinstance(value, str) and (field in WORDS or value in STATUSES)


def _name(entry: Mapping[str, Any]) -> str:
    """The name of an entry, such as `induction L1H0`."""
    fields = {name: str(entry[name]) for name in NAMES if entry.get(name) is not None}
    layer, head = entry.get("layer"), entry.get("head")
    if isinstance(layer, int) and isinstance(head, int):
        fields["layer"] = head_name(layer, head)
        del fields["head"]
    return " ".join(fields.values())


def entries_of(result: Mapping[str, Any]) -> tuple[dict[str, Mapping[str, Any]], int]:
    """The evidence (under "") and the lists' entries by name; the number without a unique name."""
    named: dict[str, Mapping[str, Any]] = {"": result["evidence"]}
    unnamed = 0
    for key, value in result.items():
        if key in NOT_COMPARED or not isinstance(value, list):
            continue
        entries = [entry for entry in value if isinstance(entry, dict)]
        names = list(map(_name, entries))
        times = Counter(names)
        for name, entry in zip(names, entries, strict=True):
            if name and times[name] == 1:
                named[f"{key}: {name}"] = entry
            else:
                unnamed += 1
    return named, unnamed
