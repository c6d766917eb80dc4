"""The result of looking for skip-bigrams in a model's heads: sentence, tables, frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from interp_toolkit.circuits.skip_bigrams.figures import bigram_figures
from interp_toolkit.circuits.skip_bigrams.find import Look
from interp_toolkit.circuits.skip_bigrams.head import HeadBigrams
from interp_toolkit.results import Figure, Result, Table, jsonable

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 20  # rows of a table
NAMED = 3  # bigrams, and heads, that the verdict names
FEWEST_OF_HUB = 3  # bigrams that share a feature, for it to be listed
_HEAD = (
    *("layer", "head", "distance", "estimated_count", "interval", "count_note", "capacity"),
    *("n_pairs", "tail", "stopped"),
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

        columns = ["layer", "head", "distance", *_BIGRAM]
        rows = [
            [found.layer, found.head, found.distance, *(getattr(b, c) for c in _BIGRAM)]
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
    assert found.layer is not None
    assert found.head is not None
    return Look(found.layer, found.head, found.distance).name


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
    level = f"level {found[0].level:.0%}" + (" for each head" if len(found) > 1 else "")
    if not some:
        where = place(found[0]) if len(found) == 1 else f"{len(found)} heads"
        return (
            f"No skip-bigram stands out in {where}: the scores are what features independent of "
            f"the weights give ({level})."
        )
    first = some[0]
    of_all = f"{len(some)} of {len(found)} heads check for skip-bigrams ({level}): "
    alone = f"{place(first)} checks for {_number(first)} ({level})"
    named = ", ".join(f"{place(one)} {len(one.bigrams):,}" for one in some[1:NAMED])
    others = (f"; {named}" if named else "") + (" and others" if len(some) > NAMED else "")
    start = alone if len(found) == 1 else f"{of_all}{place(first)} for {_number(first)}{others}"
    strongest = ", ".join(
        f"key {b.key_feature} for query {b.query_feature}{' (attends less)' if b.z < 0 else ''}"
        for b in first.bigrams[:NAMED]
    )
    return f"{start}; the clearest of {place(first)}: {strongest}."


def _number(found: HeadBigrams) -> str:
    n = len(found.bigrams)
    said = f"{n:,} skip-bigram{'s' if n > 1 else ''}"
    if found.estimated_count is None or found.interval is None:
        return f"{said} of a capacity of about {found.capacity:,}"
    low, high = found.interval
    return (
        f"{said}, an estimated {found.estimated_count:,} [{low:,}, {high:,}] of a capacity of "
        f"about {found.capacity:,}"
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
        "found greedily, so fewer may do.",
        highlight=[i for i, one in enumerate(ordered[:SHOWN]) if one.bigrams],
    )


def _bigram_table(found: HeadBigrams) -> Table:
    return Table(
        f"Skip-bigrams of {place(found)}",
        ["key", "query", "score", "strength", "z"],
        [[getattr(b, c) for c in _BIGRAM] for b in found.bigrams[:SHOWN]],
        "Score: of the unit directions, divided by the attention scale. Strength: this pair's own "
        "part, fitted with all others. z: given all others.",
    )


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
