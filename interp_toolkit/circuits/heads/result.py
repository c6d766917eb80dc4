"""What the analysis of attention heads returns: every head, what feeds them, tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interp_toolkit.circuits.heads.ablation import HeadAblation, Verdict
from interp_toolkit.circuits.heads.partner import Partner
from interp_toolkit.results import Evidence, Result, Table, head_name, jsonable

if TYPE_CHECKING:
    import pandas as pd

Interval = tuple[float, float, float]  # mean, lower and upper end at 95 %

SHOWN = 12  # heads in the table of the best, where none is detected
PARTNERS_SHOWN = 3  # earlier heads in the table, of each induction head


@dataclass(frozen=True)
class HeadVerdict:
    """One head under one detector.

    Attributes:
        detector, layer, head: which.
        score: mean share of a query's attention on its targets; None where there are none.
        uniform: what uniform attention would give.
        null_mean: mean of the matched controls.
        excess: (score - uniform) / (1 - uniform).
        p_value: largest over the families of controls.
        p_adjusted: Holm's, over all heads and detectors of the model.
        q_value: Benjamini and Hochberg's, over the same.
        detected: by the rule of `significance`.
        reason: why it is not detected; None where it is.
        ablation: what the behaviour loses without it; None where it was not ablated.
    """

    detector: str
    layer: int
    head: int
    score: float | None
    uniform: float | None
    null_mean: float | None
    excess: float | None
    p_value: float | None
    p_adjusted: float | None
    q_value: float | None
    detected: bool
    reason: str | None = None
    ablation: HeadAblation | None = None

    @property
    def name(self) -> str:
        """As papers write it, such as L1H0."""
        return head_name(self.layer, self.head)

    @property
    def causal(self) -> Verdict | None:
        """What the ablation says of it; None where it was not ablated."""
        return None if self.ablation is None else self.ablation.verdict

    def to_dict(self) -> dict[str, Any]:
        """As JSON data, with what the ablation found on the same level."""
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        found: HeadAblation | None = own.pop("ablation")
        names = {
            "ablation_effect": "effect",
            "ablation_low": "low",
            "ablation_high": "high",
            "restored": "restored",
            "others_max": "others_max",
        }
        flat = {name: getattr(found, key, None) for name, key in names.items()}
        data: dict[str, Any] = jsonable(own | flat | {"causal": self.causal})
        return data


@dataclass(frozen=True)
class Reader:
    """An induction head and the earlier heads that could feed its keys, the strongest first."""

    layer: int
    head: int
    partners: Sequence[Partner]

    @property
    def partner(self) -> Partner | None:
        """The one named, if any is."""
        return next((p for p in self.partners if p.named), None)


@dataclass(frozen=True)
class HeadsEvidence(Evidence):
    """What the verdict on a model's heads rests on.

    Attributes:
        looks: heads and detectors looked at together.
        detected: how many of them are detected.
        null: what a score is held against.
        error: what the level bounds, and where that was checked.
        level: of the adjusted p-values.
        replaced_by: what an ablated head was replaced with; None where none was ablated.
        other_heads: how many other heads were ablated to compare with.
        others_largest_effect: nats, the largest of theirs.
    """

    looks: int
    detected: int
    null: str
    error: str
    level: float
    replaced_by: str | None = None
    other_heads: int | None = None
    others_largest_effect: float | None = None


@dataclass(frozen=True)
class HeadsResult(Result):
    """The analysis of a model's attention heads.

    Attributes:
        heads: one entry for every detector and head.
        readers: the induction heads and what feeds them.
        from_weights: scores from weights alone, a row a head; empty where they cannot be given.
        joint: nats lost when all detected heads of a kind are ablated together, by detector, with
            the confidence interval.
        advantage: the model's in-context advantage (nats) with its confidence interval, or None.
    """

    heads: Sequence[HeadVerdict]
    readers: Sequence[Reader]
    from_weights: Sequence[Mapping[str, Any]]
    joint: Mapping[str, Interval]
    advantage: Interval | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON data; each head on one level (see `HeadVerdict.to_dict`)."""
        return super().to_dict() | {"heads": [head.to_dict() for head in self.heads]}

    def to_frame(self) -> pd.DataFrame:
        """One row a detector and head."""
        import pandas as pd

        return pd.DataFrame([head.to_dict() for head in self.heads])

    def tables(self) -> list[Table]:
        """The detected heads (or the best), what feeds the induction heads, scores from weights."""
        tables = [_head_table(self.heads)]
        if any(reader.partners for reader in self.readers):
            tables.append(_partner_table(self.readers))
        if self.from_weights:
            tables.append(_weights_table(self.from_weights))
        return tables


def _head_table(heads: Sequence[HeadVerdict]) -> Table:
    found = [head for head in heads if head.detected]
    shown = found or sorted(
        (head for head in heads if head.excess is not None),
        key=lambda head: -(head.excess or 0.0),
    )
    shown = shown[: max(SHOWN, len(found))]
    ablated = any(head.causal for head in shown)
    columns = ["head", "detector", "score", "null", "adjusted p"]
    columns += [] if found else ["why not"]
    columns += ["effect", "low", "high", "causal"] if ablated else []
    rows: list[list[Any]] = []
    for h in shown:
        row: list[Any] = [h.name, h.detector, h.score, h.null_mean, h.p_adjusted]
        row += [] if h.detected else [h.reason]
        if ablated:
            a = h.ablation
            row += [a.effect, a.low, a.high] if a else [None, None, None]
            row.append(h.causal)
        rows.append(row)
    caption = (
        "Score: mean share of a query's attention on its targets; null: the same for matched "
        "controls; adjusted p: over all heads and detectors of the model."
    )
    if ablated:
        caption += (
            " Effect: nats of in-context advantage lost by ablation, with its 95% interval; "
            "causal: whether the head is responsible for in-context prediction."
        )
    title = "Detected heads" if found else "No head is detected; the nearest"
    return Table(title, columns, rows, caption, highlight=range(len(found)))


def _partner_table(readers: Sequence[Reader]) -> Table:
    rows: list[list[Any]] = []
    named = []
    for reader in readers:
        for p in reader.partners[:PARTNERS_SHOWN]:
            if p.named:
                named.append(len(rows))
            names = [head_name(reader.layer, reader.head), head_name(p.layer, p.head)]
            figures = [p.k_composition, p.attention_drop, p.p_adjusted, p.advantage_drop]
            rows.append([*names, *figures])
    return Table(
        "What feeds the keys of induction heads",
        ["head", "fed by", "K-composition", "attention lost", "adjusted p", "advantage lost"],
        rows,
        "K-composition: from weights alone. Lost: induction attention, and nats of in-context "
        f"advantage, when that path is cut. The first {PARTNERS_SHOWN} earlier heads for each.",
        highlight=named,
    )


def _weights_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = ["ov_copying", "ov_p_adjusted", "qk_matching", "qk_p_adjusted"]
    cells = [[head_name(row["layer"], row["head"]), *(row[c] for c in columns)] for row in rows]
    return Table(
        "From weights alone",
        ["head", *columns],
        cells,
        "The direct path from a token's embedding: does the head copy what it attends to (OV), "
        "does it look for its own token (QK)? Eigenvalue scores, -1 to 1; p: against random "
        "rotations.",
    )
