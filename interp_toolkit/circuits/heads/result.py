"""What the analysis of attention heads returns, and how it words its verdict.

Labels come from attention and its null (`significance`), roles from ablation (`causal`). An
induction head is defined by what it does: one that attends like one and makes no difference is
refuted. For other kinds of head the ablation says whether they serve in-context prediction, not
what they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from interp_toolkit.circuits.behaviour.advantage import LEAST_ADVANTAGE
from interp_toolkit.circuits.heads.ablation import Verdict
from interp_toolkit.circuits.heads.partner import Partner
from interp_toolkit.results import Figure, Result, Table, head_name

if TYPE_CHECKING:
    import pandas as pd

Interval = tuple[float, float, float]  # mean, lower and upper end at 95 %

SHOWN = 12  # heads in the table of the best, where none is detected
NAMED = 8  # heads of one detector that the verdict names
PARTNERS_SHOWN = 3  # earlier heads in the table, of each induction head
#: the detector whose label says what the head does, not only where it attends
DEFINED_BY_EFFECT = "induction"


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
        ablation_effect: nats of in-context advantage lost without it; None where not ablated.
        ablation_low, ablation_high: its 95 % confidence interval.
        restored: nats it brings back alone, all other detected heads of its kind taken out.
        others_max: the largest effect among other heads, drawn at random.
        causal: "confirmed", "refuted" or "undecided" (see `causal`); None where not ablated.
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
    ablation_effect: float | None = None
    ablation_low: float | None = None
    ablation_high: float | None = None
    restored: float | None = None
    others_max: float | None = None
    causal: Verdict | None = None

    @property
    def name(self) -> str:
        """As papers write it, such as L1H0."""
        return head_name(self.layer, self.head)


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
class HeadsResult(Result):
    """The analysis of a model's attention heads.

    Attributes:
        heads: one entry for every detector and head.
        readers: the induction heads and what feeds them.
        from_weights: scores from weights alone, a row a head; empty where they cannot be given.
        joint: nats lost when all detected heads of a kind are ablated together, by detector, with
            the confidence interval.
        advantage: the model's in-context advantage (nats) with its confidence interval, or None.
        notes: what was left out, and why.
    """

    heads: Sequence[HeadVerdict]
    readers: Sequence[Reader]
    from_weights: Sequence[Mapping[str, Any]]
    joint: Mapping[str, Interval]
    advantage: Interval | None
    notes: Sequence[str]
    plots: Sequence[Figure] = field(repr=False, default=())

    omit_from_json: ClassVar[frozenset[str]] = frozenset({"plots"})

    def to_frame(self) -> pd.DataFrame:
        """One row a detector and head."""
        import dataclasses

        import pandas as pd

        return pd.DataFrame([dataclasses.asdict(head) for head in self.heads])

    def tables(self) -> list[Table]:
        """The detected heads (or the best), what feeds the induction heads, scores from weights."""
        tables = [_head_table(self.heads)]
        if any(reader.partners for reader in self.readers):
            tables.append(_partner_table(self.readers))
        if self.from_weights:
            tables.append(_weights_table(self.from_weights))
        return tables

    def figures(self) -> list[Figure]:
        """The head map first, then the patterns of detected heads."""
        return list(self.plots)


def status(heads: Sequence[HeadVerdict]) -> str:
    """The verdict in one machine word."""
    found = [head for head in heads if head.detected]
    if any(not is_refuted(head) for head in found):
        return "detected"
    if found:
        return "refuted"
    return "undecided" if all(head.p_value is None for head in heads) else "not_detected"


def is_refuted(head: HeadVerdict) -> bool:
    """Whether the ablation refutes the label itself."""
    return head.detector == DEFINED_BY_EFFECT and head.causal == "refuted"


def verdict(
    heads: Sequence[HeadVerdict],
    readers: Sequence[Reader],
    joint: Mapping[str, Interval],
    advantage: Interval | None,
) -> str:
    """The heads of every kind, what ablation says of them, and what feeds the induction heads."""
    found = [head for head in heads if head.detected]
    detectors = list(dict.fromkeys(head.detector for head in heads))
    if not found:
        if status(heads) == "undecided":
            return f"Undecided: these prompts cannot tell {_listed(detectors, 'or')} heads."
        return f"No head is detected as {_listed(detectors, 'or')} ({_best(heads)})."
    sentences = []
    for detector in detectors:
        kept = [h for h in found if h.detector == detector and not is_refuted(h)]
        denied = [h for h in found if h.detector == detector and is_refuted(h)]
        if kept:
            together = ""
            if len(kept) > 1 and not denied and detector in joint:
                together = f"; ablating all of them costs {joint[detector][0]:.3g} nats"
            sentences.append(f"{detector.capitalize()}: {_named(kept)}{together}.")
        if denied:
            sentences += _refutations(denied)
    sentences += _all_feeding(readers)
    checked = [h for h in found if h.causal is not None]
    if checked and advantage is not None:
        sentences.append(
            f"The in-context advantage is {advantage[0]:.3g} nats "
            f"(95% interval {advantage[1]:.3g} to {advantage[2]:.3g})."
        )
    return " ".join(sentences)


def _named(heads: Sequence[HeadVerdict]) -> str:
    named = [_with_effect(head) for head in heads[:NAMED]]
    rest = len(heads) - len(named)
    return ", ".join(named) + (f" and {rest} more" if rest else "")


def _with_effect(head: HeadVerdict) -> str:
    text = f"{head.name} ({_share(head)} of its attention"
    if head.causal == "confirmed" and head.ablation_effect is not None:
        text += f"; ablation costs {head.ablation_effect:.3g} nats"
        if head.ablation_effect <= 0 or (head.ablation_low or 0) <= 0:
            text = f"{head.name} ({_share(head)} of its attention; redundant: alone it restores "
            text += f"{head.restored:.3g} nats"
    elif head.causal == "refuted":
        text += "; " + (
            f"ablation gains {-(head.ablation_effect or 0.0):.3g} nats in context"
            if _works_against(head)
            else "ablation changes nothing in context"
        )
    elif head.causal == "undecided":
        text += "; ablation undecided"
    return text + ")"


def _share(head: HeadVerdict) -> str:
    return "–" if head.score is None else f"{head.score:.0%}"


def _works_against(head: HeadVerdict) -> bool:
    """Whether the model does materially better without it."""
    return head.ablation_high is not None and head.ablation_high <= -LEAST_ADVANTAGE


def _refutations(heads: Sequence[HeadVerdict]) -> list[str]:
    against = [head for head in heads if _works_against(head)]
    idle = [head for head in heads if not _works_against(head)]
    sentences = []
    if idle:
        high = max(head.ablation_high or 0.0 for head in idle)
        them = "them" if len(idle) > 1 else "it"
        sentences.append(
            f"{_alike(idle)} but ablating {them} changes nothing "
            f"(at most {high:.2g} nats): refuted."
        )
    if against:
        gained = _range([-(head.ablation_effect or 0.0) for head in against])
        them, work = ("them", "work") if len(against) > 1 else ("it", "works")
        sentences.append(
            f"{_alike(against)} but {work} against in-context prediction (ablating {them} gains "
            f"{gained} nats): refuted."
        )
    return sentences


def _alike(heads: Sequence[HeadVerdict]) -> str:
    names = _listed([head.name for head in heads], "and")
    if len(heads) > 1:
        return f"{names} attend like induction heads"
    return f"{names} attends like an induction head"


def _all_feeding(readers: Sequence[Reader]) -> list[str]:
    by_feeder: dict[tuple[int, int], list[tuple[Reader, Partner]]] = {}
    for reader in readers:
        if reader.partner is not None:
            feeder = reader.partner.layer, reader.partner.head
            by_feeder.setdefault(feeder, []).append((reader, reader.partner))
    return [_feeding(*zip(*fed, strict=True)) for fed in by_feeder.values()]


def _feeding(readers: Sequence[Reader], partners: Sequence[Partner]) -> str:
    """One earlier head, and the induction heads whose keys it feeds."""
    names = _listed([head_name(reader.layer, reader.head) for reader in readers], "and")
    lost = [p.advantage_drop for p in partners if p.advantage_drop is not None]
    effect = f" and {_range(lost)} nats" if lost and min(lost) > 0 else ""
    feeder = head_name(partners[0].layer, partners[0].head)
    return (
        f"{feeder} feeds the keys of {names}: cutting {'that path' if len(readers) == 1 else 'one'}"
        f"{'' if len(readers) == 1 else ' of these paths'} costs "
        f"{_range([p.attention_drop for p in partners])} of "
        f"{_range([p.attention for p in partners])} induction attention{effect}."
    )


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2g}", f"{max(values):.2g}"
    return low if low == high else f"{low} to {high}"


def _best(heads: Sequence[HeadVerdict]) -> str:
    best = max(heads, key=lambda head: head.excess if head.excess is not None else -1.0)
    p = "–" if best.p_adjusted is None else f"{best.p_adjusted:.2g}"
    return (
        f"the nearest is {best.name} as {best.detector}, {_share(best)} of its attention, "
        f"adjusted p = {p}"
    )


def _listed(names: Sequence[str], word: str) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} {word} {names[-1]}"


def _head_table(heads: Sequence[HeadVerdict]) -> Table:
    found = [head for head in heads if head.detected]
    shown = found or sorted(
        (head for head in heads if head.excess is not None),
        key=lambda head: -(head.excess or 0.0),
    )
    shown = shown[: max(SHOWN, len(found))]
    ablated = any(head.causal for head in shown)
    columns = ["head", "detector", "score", "null", "adjusted p"]
    columns += ["effect", "low", "high", "causal"] if ablated else []
    rows: list[list[Any]] = []
    for h in shown:
        row: list[Any] = [h.name, h.detector, h.score, h.null_mean, h.p_adjusted]
        if ablated:
            row += [h.ablation_effect, h.ablation_low, h.ablation_high, h.causal]
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
