"""The result of looking for skip-bigrams in a model's heads: records, tables, frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from interp_toolkit.circuits.skip_bigrams.head import Bigram, HeadBigrams
from interp_toolkit.circuits.skip_bigrams.head_views import HeadView
from interp_toolkit.results import Evidence, Result, Table, jsonable

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 20  # rows of a table
FEWEST_OF_HUB = 3  # bigrams that share a feature, for it to be listed
_HEAD = (
    *("layer", "head", "distance", "estimated_count", "interval", "count_note", "capacity"),
    *("n_pairs", "tail", "shared", "control_p", "stopped"),
)
_BIGRAM = ("key_feature", "query_feature", "score", "strength", "z")


@dataclass(frozen=True)
class SkipBigramEvidence(Evidence):
    """What the verdict on skip-bigrams rests on.

    Attributes:
        null: what a pair's score is held against.
        adjusted: how p-values are corrected.
        level: of false discoveries, in each head and distance.
        pairs: of features that each head was looked at for.
        capacity: what is meant by it.
        looks: heads and distances looked at.
        expected_by_chance: of them, how many at most would show a bigram where there is none.
        tail: "beta" or "empirical": where p-values come from (see `null`); None: all scores are 0.
        shared_cosine: the mean cosine of the features, whose shared direction is left out.
        alike: bigrams of features with others so alike that they may be meant.
        control: what heads with bigrams are compared with.
        heads_with_bigrams: heads and distances with a bigram.
        beyond_control: of them, how many stand out farther than the control.
    """

    null: str
    adjusted: str
    level: float
    pairs: int
    capacity: str
    looks: int
    expected_by_chance: float
    tail: str | None
    shared_cosine: float | None
    alike: int
    control: str
    heads_with_bigrams: int
    beyond_control: int


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


def clearest(found: Sequence[HeadBigrams]) -> list[HeadBigrams]:
    """Those with the most bigrams first."""
    return sorted(found, key=lambda one: -len(one.bigrams))


def place(found: HeadBigrams) -> str:
    """Such as L1H0, or L1H0 at distance 2."""
    return HeadView(*head_of(found), found.distance).name


def head_record(found: HeadBigrams) -> dict[str, Any]:
    """A head as JSON has it."""
    record = {name: jsonable(getattr(found, name)) for name in _HEAD}
    record["bigrams"] = jsonable(list(found.bigrams))
    record["blocks"] = jsonable([block for block in found.blocks if block.size > 1])
    record["n_blocks"] = len(found.blocks)
    return record


def alternatives_of(bigram: Bigram) -> str:
    """Features that may be meant instead, such as "key f7 (cos 0.97)"."""
    return ", ".join(f"{a.side} {a.feature} (cos {a.cosine:.2f})" for a in bigram.alternatives)


def head_of(found: HeadBigrams) -> tuple[int, int]:
    """Layer and head."""
    assert found.layer is not None
    assert found.head is not None
    return found.layer, found.head


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
