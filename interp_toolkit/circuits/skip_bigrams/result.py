"""The result of looking for skip-bigrams in a model's heads: sentence, tables, frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from interp_toolkit.circuits.skip_bigrams.directions import ALIKE
from interp_toolkit.circuits.skip_bigrams.figures import bigram_figures
from interp_toolkit.circuits.skip_bigrams.head import Bigram, HeadBigrams
from interp_toolkit.circuits.skip_bigrams.head_views import HeadView
from interp_toolkit.results import Figure, Result, Table, jsonable

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 20  # rows of a table
NAMED = 3  # bigrams, and heads, that the verdict names
FEWEST_OF_HUB = 3  # bigrams that share a feature, for it to be listed
_HEAD = (
    *("layer", "head", "distance", "estimated_count", "interval", "count_note", "capacity"),
    *("n_pairs", "tail", "shared", "stopped"),
)
_BIGRAM = ("key_feature", "query_feature", "score", "strength", "z")


@dataclass(frozen=True)
class SkipBigramResult(Result):
    """Skip-bigrams of a model's heads.

    Attributes:
        heads: one for each head and distance: its bigrams, their estimated number and interval,
            its capacity, the complete blocks with more than one bigram, and how many blocks hold
            all.
        found: the same with all there is, for graphs and figures.
    """

    heads: Sequence[dict[str, Any]]
    found: Sequence[HeadBigrams] = field(repr=False)

    omit_from_json: ClassVar[frozenset[str]] = frozenset({"found"})

    def to_frame(self) -> pd.DataFrame:
        """One row per bigram, head by head."""
        import pandas as pd

        columns = ["layer", "head", "distance", *_BIGRAM, "alternatives"]
        rows = [
            [
                *(found.layer, found.head, found.distance),
                *(getattr(b, c) for c in _BIGRAM),
                alternatives_of(b),
            ]
            for found in self.found
            for b in found.bigrams
        ]
        return pd.DataFrame(rows, columns=columns)

    def tables(self) -> list[Table]:
        """Heads; the clearest head's bigrams; its shared features."""
        ordered = clearest(self.found)
        tables = [_head_table(ordered)]
        if ordered[0].bigrams:
            tables += [_bigram_table(ordered[0]), *_hub_tables(ordered[0])]
        return tables

    def figures(self) -> list[Figure]:
        """Of the clearest head: its z, the graph of its bigrams, scores among the strongest."""
        first = clearest(self.found)[0]
        return bigram_figures(first, place(first))


def clearest(found: Sequence[HeadBigrams]) -> list[HeadBigrams]:
    """Those with the most bigrams first."""
    return sorted(found, key=lambda one: -len(one.bigrams))


def place(found: HeadBigrams) -> str:
    """Such as L1H0, or L1H0 at distance 2."""
    return HeadView(*_head(found), found.distance).name


def head_record(found: HeadBigrams) -> dict[str, Any]:
    """A head as JSON has it."""
    record = {name: jsonable(getattr(found, name)) for name in _HEAD}
    record["bigrams"] = jsonable(list(found.bigrams))
    record["blocks"] = jsonable([block for block in found.blocks if block.size > 1])
    record["n_blocks"] = len(found.blocks)
    return record


def verdict(found: Sequence[HeadBigrams]) -> str:
    """How many bigrams the heads check for, and which are the strongest."""
    some = [one for one in clearest(found) if one.bigrams]
    n_heads, several = _n_heads(found), len(found) > 1
    at = f" for each {_each(found)}" if several else ""
    level = f"level {found[0].level:.0%}{at}"
    if not some:
        where = f"{n_heads} heads" if n_heads > 1 else place(found[0])
        if n_heads == 1 and several:
            where = f"{HeadView(*_head(found[0]), None).name} at {len(found)} distances"
        return f"No skip-bigram stands out in {where}: {_unremarkable(found)} ({level})."
    first = some[0]
    of_all = f"{_n_heads(some)} of {n_heads} heads check for skip-bigrams ({level}): "
    alone = f"{place(first)} checks for {_number(first)} ({level})"
    named = ", ".join(f"{place(one)} {len(one.bigrams):,}" for one in some[1:NAMED])
    others = (f"; {named}" if named else "") + (" and others" if len(some) > NAMED else "")
    start = (
        f"{of_all}{place(first)} for {_number(first)}{others}" if n_heads > 1 else alone + others
    )
    strongest = ", ".join(
        f"key {b.key_feature} for query {b.query_feature}{' (attends less)' if b.z < 0 else ''}"
        for b in first.bigrams[:NAMED]
    )
    alike = sum(bool(b.alternatives) for b in first.bigrams)
    up_to = f"; {alike:,} of them up to features that are alike (|cos| > {ALIKE})" if alike else ""
    return f"{start}; the clearest of {place(first)}: {strongest}{up_to}."


def evidence_of(found: Sequence[HeadBigrams], notes: Sequence[str]) -> dict[str, Any]:
    """What the verdict rests on."""
    evidence: dict[str, Any] = {
        "status": "detected" if any(one.bigrams for one in found) else "not_detected",
        "null": "features drawn independently of the head's weights, row by row and column by "
        "column: the larger of the two p-values counts",
        "adjusted": "Benjamini and Hochberg, over all pairs of a head",
        "pairs of features, each head": found[0].n_pairs,
        "capacity": "d_resid x d_head: the order of how many a head can check for",
    }
    if len(found) > 1:
        evidence["several heads"] = (
            f"the level holds for each {_each(found)}: without any bigram, up to "
            f"{found[0].level * len(found):.2g} of {len(found)} would show one by chance"
        )
    if any(one.tail == "empirical" for one in found):
        evidence["features"] = (
            "not spread over all directions as random ones are: p-values are from each row's and "
            "column's own spread and a normal tail, and hold less strictly"
        )
    cosines = [c for one in found for c in one.shared if c is not None]
    if cosines:
        evidence["shared direction"] = (
            f"features have a mean cosine of {max(cosines):.2g}: the direction that they share is "
            "left out, on their side and in the weights"
        )
    alike = sum(bool(b.alternatives) for one in found for b in one.bigrams)
    if alike:
        evidence["alike"] = (
            f"{alike:,} bigrams have a feature with others at |cos| > {ALIKE}, any of which may be "
            "meant: the level is of false discoveries up to such features"
        )
    if notes:
        evidence["notes"] = "; ".join(notes)
    return evidence


def alternatives_of(bigram: Bigram) -> str:
    """Features that may be meant instead, such as "key f7 (cos 0.97)"."""
    return ", ".join(f"{a.side} {a.feature} (cos {a.cosine:.2f})" for a in bigram.alternatives)


def _head(found: HeadBigrams) -> tuple[int, int]:
    assert found.layer is not None
    assert found.head is not None
    return found.layer, found.head


def _n_heads(found: Sequence[HeadBigrams]) -> int:
    return len({_head(one) for one in found})


def _each(found: Sequence[HeadBigrams]) -> str:
    return "head" if _n_heads(found) == len(found) else "head and distance"


def _unremarkable(found: Sequence[HeadBigrams]) -> str:
    if all(one.tail == "none" for one in found):
        return "every pair of features scores 0"
    if any(one.tail == "empirical" for one in found):
        return "no score is far beyond the spread of its row and its column"
    return "the scores are what features independent of the weights give"


def _number(found: HeadBigrams) -> str:
    n = len(found.bigrams)
    said = f"{n:,} skip-bigram{'s' if n > 1 else ''}"
    if found.estimated_count is None or found.interval is None:
        return f"{said} of a capacity of about {found.capacity:,}"
    low, high = found.interval
    return (
        f"{said}, an estimated {found.estimated_count:,} [{low:,}, {high:,}] about as strong as "
        f"these, of a capacity of about {found.capacity:,}"
    )


def _head_table(ordered: Sequence[HeadBigrams]) -> Table:
    rows = [
        [
            place(one),
            len(one.bigrams),
            one.estimated_count,
            None if one.interval is None else "{:,} to {:,}".format(*one.interval),
            one.capacity,
            len(one.blocks),
            one.count_note or None,
        ]
        for one in ordered[:SHOWN]
    ]
    return Table(
        "Heads",
        ["head", "found", "estimate", "interval", "capacity", "blocks", "why no estimate"],
        rows,
        "Capacity: d_resid x d_head, the order of how many a head can check for. Blocks: complete "
        "sets keys x queries that the bigrams fall into, each of which costs one rank of the head; "
        "found greedily, so fewer may do. Estimate: of those about as strong as the found.",
        highlight=[i for i, one in enumerate(ordered[:SHOWN]) if one.bigrams],
    )


def _bigram_table(found: HeadBigrams) -> Table:
    columns, shown = ["key", "query", "score", "strength", "z"], found.bigrams[:SHOWN]
    rows = [[getattr(b, c) for c in _BIGRAM] for b in shown]
    note = (
        "Score: of the unit directions, divided by the attention scale. Strength: this pair's own "
        "part, fitted with all others. z: given all others."
    )
    if any(b.alternatives for b in shown):
        columns.append("or")
        rows = [[*row, alternatives_of(b) or None] for row, b in zip(rows, shown, strict=True)]
        note += " Or: features so much like these that they may be meant instead."
    return Table(f"Skip-bigrams of {place(found)}", columns, rows, note)


def _hub_tables(found: HeadBigrams) -> list[Table]:
    graph = found.graph
    hubs = sorted(graph.degree, key=lambda pair: (-pair[1], pair[0]))
    rows = [
        [name, {"q": "query", "k": "key"}[side], degree]
        for (side, name), degree in hubs[:SHOWN]
        if degree >= FEWEST_OF_HUB
    ]
    if not rows:
        return []
    return [Table(f"Shared features of {place(found)}", ["feature", "side", "bigrams"], rows)]
