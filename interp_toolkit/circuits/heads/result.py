"""Result of the head analysis: every head under every detector, groups, partners, tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interp_toolkit.circuits.heads.described import Described
from interp_toolkit.circuits.heads.partner import Partner
from interp_toolkit.circuits.heads.rule import Group, MemberEffect, Screen, in_unit, least
from interp_toolkit.circuits.metrics.causal_words import NOT_TESTED, CausalWord, in_words
from interp_toolkit.circuits.metrics.task import TaskCheck
from interp_toolkit.evidence import untested
from interp_toolkit.finding import Finding, column
from interp_toolkit.formatting import p_cell, percent
from interp_toolkit.results import Evidence, Status, Table, head_name, jsonable
from interp_toolkit.stats import LEVEL, Estimate, Share

if TYPE_CHECKING:
    import pandas as pd

MOST_DESCRIBED = 24  # heads in the table of what heads attend to
SHOWN = 12  # heads in the table of heads, unless more are detected
PARTNERS_SHOWN = 3  # earlier heads in the table, per induction head, unless more are named


@dataclass(frozen=True)
class HeadVerdict:
    """Verdict of one head under one detector.

    Attributes:
        detector, layer, head: name of the detector, layer and index of the head.
        score: mean fraction of a query's attention on the pattern's keys, over queries that matched
            controls have too; None without keys.
        uniform: score of uniform attention.
        null_mean: score of the closest controls, or of uniform attention if that is larger.
        excess: (score - uniform) / (1 - uniform).
        p_value: largest p-value over the families of controls.
        p_adjusted: Holm-adjusted p-value, over all heads and detectors of the model.
        q_value: Benjamini-Hochberg q-value, over the same.
        detected: whether the head is of that kind (see `analysis`).
        attends: whether its attention has the pattern, by the rule of `significance`.
        status: by the head rule; without a knockout, "described" by attention alone, "not_detected"
            by a joint knockout of all heads (`Screen`), or "not_tested".
        reason: why it is not detected; None if it is.
        knockout: effect of knocking out its attention to the pattern's keys; None if not tested.
        control_effect: effect of knocking out as much attention elsewhere, in all heads with the
            pattern, as a fraction of the metric; None if not measured.
        ablation: drop of the metric when the whole head is ablated; None if not ablated.
        attention: the score over all queries that have such a key.
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
    attends: bool = False
    status: Status = untested("no knockout")[0]
    reason: str | None = None
    knockout: MemberEffect | None = None
    control_effect: float | None = None
    ablation: Estimate | None = None
    attention: float | None = None

    @property
    def name(self) -> str:
        """Name of the head, such as L1H0."""
        return head_name(self.layer, self.head)

    @property
    def deciding_p(self) -> float | None:
        """The p-value on which the status rests; None if there is none.

        By the head rule that is the largest over the matched controls; of attention alone, without
        a knockout, the one adjusted for all heads and detectors.
        """
        return self.p_adjusted if self.knockout is None else self.p_value

    @property
    def causal(self) -> CausalWord:
        """Causal word for the head's attention to the pattern's keys."""
        return NOT_TESTED if self.knockout is None else self.knockout.word

    def to_dict(self) -> dict[str, Any]:
        """JSON data as a flat mapping.

        `deciding_p` is the p-value on which the status rests: `p_value` after a knockout, otherwise
        `p_adjusted`. `effect`, `effect_low` and `effect_high` are the effect on which the causal
        word rests, as a fraction of the metric, and its 95 % interval, with the pattern in the
        `others` "intact" or "knocked out". `amount` is the same effect
        in the metric's unit, [mean, low, high], where an ablation can remove more than all of the
        metric. `own` (this head alone) and `restored` (with the other heads' attention knocked out)
        map each way of knockout to [mean, low, high], with intervals that are simultaneous within a
        pattern.
        """
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        ablated: Estimate | None = own.pop("ablation")
        knockout: MemberEffect | None = own.pop("knockout")
        flat: dict[str, Any] = {"causal": self.causal, "deciding_p": self.deciding_p}
        effect = None if knockout is None else knockout.effect
        flat["effect"] = None if effect is None else effect.mean
        flat["effect_low"] = None if effect is None else effect.low
        flat["effect_high"] = None if effect is None else effect.high
        amount = None if effect is None else in_unit(effect)
        flat["amount"] = None if amount is None else [amount[0].mean, amount[0].low, amount[0].high]
        flat["others"] = None if knockout is None else knockout.others
        flat["own"] = None if knockout is None else by_way(knockout.own)
        flat["restored"] = None if knockout is None else by_way(knockout.restored)
        flat["rows_needed"] = None if knockout is None else knockout.rows_needed
        names = {
            "ablation_effect": "mean",
            "ablation_low": "low",
            "ablation_high": "high",
        }
        flat |= {name: getattr(ablated, key, None) for name, key in names.items()}
        data: dict[str, Any] = jsonable(own | flat)
        return data


def by_way(shares: Mapping[str, Share]) -> dict[str, list[float]]:
    """Effects as JSON data: [mean, low, high] by way of knockout."""
    return {way: [share.mean, share.low, share.high] for way, share in shares.items()}


@dataclass(frozen=True)
class Reader:
    """An induction head and the earlier heads tested for composition, largest effect first."""

    layer: int
    head: int
    partners: Sequence[Partner]

    @property
    def named(self) -> list[Partner]:
        """The earlier heads that its keys are shown to read, largest effect first."""
        return [partner for partner in self.partners if partner.named]


@dataclass(frozen=True)
class HeadsEvidence(Evidence):
    """Counts, controls, and whether the model performs the task.

    Attributes:
        comparisons: heads times detectors.
        detected: how many of them are detected.
        null: the controls that a score is compared with.
        error: the error that the level bounds, and how that was checked.
        level: significance level of the p-values that decide.
        performs_task: whether the model performs the task on these prompts; None: no task.
        behaviour: the metric, and the intact model's value of it.
        knockout_rows: prompts that attention was knocked out on, at most.
        replaced_by: ablation value of an ablated head; None where none was ablated.
        causal: how effects were measured; None where heads have attention alone.
    """

    comparisons: int = column("heads times patterns")
    detected: int = column("detected")
    null: str = column("null")
    error: str = column("error")
    level: float = column("significance level")
    performs_task: bool | None = column("performs the task", default=None)
    behaviour: str | None = column("task performance", default=None)
    knockout_rows: int | None = column("prompts with knockouts", default=None)
    replaced_by: str | None = column("ablated heads are replaced by", default=None)
    causal: str | None = column("causal test", default=None)


@dataclass(frozen=True, kw_only=True)
class HeadsFinding(Finding):
    """The attention patterns of heads, and the effect of knocking them out.

    Attributes:
        heads: one entry for every detector and head.
        readers: the induction heads and the heads that their keys compose with.
        from_weights: scores from weights alone, one row per head; empty where there are none.
        groups: for each detector whose pattern some heads have, their joint effect.
        screens: joint knockouts of a pattern in all heads, by which patterns are denied.
        task_check: task performance on these prompts; None where there is no task.
        described: each head's attention, split into described patterns.
    """

    evidence: HeadsEvidence
    heads: Sequence[HeadVerdict]
    readers: Sequence[Reader]
    from_weights: Sequence[Mapping[str, Any]]
    groups: Sequence[Group]
    task_check: TaskCheck | None
    described: Sequence[Described] = ()
    screens: Sequence[Screen] = ()

    @property
    def performs_task(self) -> bool | None:
        """Whether the model performs the task; None where there is none."""
        return None if self.task_check is None else self.task_check.yes

    def to_dict(self) -> dict[str, Any]:
        """JSON data, each head on one level (see `HeadVerdict.to_dict`)."""
        return super().to_dict() | {
            "heads": [head.to_dict() for head in self.heads],
            "groups": [_group_dict(group) for group in self.groups],
            "screens": [_screen_dict(screen) for screen in self.screens],
            "performs_task": self.performs_task,
            "metric": None if self.task_check is None else _metric_dict(self.task_check),
            "described": [_described_dict(head) for head in self.described],
        }

    def to_frame(self) -> pd.DataFrame:
        """One row per detector and head."""
        import pandas as pd

        return pd.DataFrame([head.to_dict() for head in self.heads])

    def tables(self) -> list[Table]:
        """Detected heads (or the nearest), patterns, K-composition, attention, weight scores."""
        tables = [_head_table(self.heads)]
        if self.groups:
            tables.append(_group_table(self.groups))
        if any(reader.partners for reader in self.readers):
            tables.append(_partner_table(self.readers))
        if self.described:
            tables.append(_described_table(self.described))
        if self.from_weights:
            tables.append(_weights_table(self.from_weights))
        return tables


def _metric_dict(check: TaskCheck) -> dict[str, Any]:
    """The metric above chance, of which effects are fractions."""
    size = [check.whole, check.value.low - check.chance, check.value.high - check.chance]
    data: dict[str, Any] = jsonable(
        {"name": check.metric, "size": size, "unit": check.unit, "prompts": check.value.n}
    )
    return data


def _described_dict(described: Described) -> dict[str, Any]:
    shares = [dataclasses.asdict(share) for share in described.shares]
    layer, head = described.head
    data: dict[str, Any] = jsonable(
        {"layer": layer, "head": head, "shares": shares, "rest": described.rest}
    )
    return data


def _described_table(described: Sequence[Described]) -> Table:
    clearest = sorted(described, key=lambda d: d.rest)[:MOST_DESCRIBED]
    rows: list[list[Any]] = [
        [head_name(*d.head), d.phrase()] for d in sorted(clearest, key=_head_of)
    ]
    left = len(described) - len(rows)
    return Table(
        "Attention of each head",
        ["head", "attends to"],
        rows,
        "Fractions of the head's attention on named patterns, mean over all queries. A key that "
        "belongs to two patterns counts for the first one listed. Descriptive, not tested."
        + (f" The {left} heads with the largest rest are left out." if left else ""),
    )


def _head_of(described: Described) -> tuple[int, int]:
    return described.head


def _group_dict(group: Group) -> dict[str, Any]:
    effect = least(group.joint)
    data: dict[str, Any] = jsonable(
        {
            "detector": group.detector,
            "heads": [head_name(*head) for head in group.heads],
            "causal": group.word,
            "effect": effect.mean,
            "effect_low": effect.low,
            "effect_high": effect.high,
            "joint": by_way(group.joint),
            "control": by_way(group.control),
            "structure": group.structure,
            "smallest": [head_name(*head) for head in group.smallest],
            "rows": group.rows,
            "coverage": group.coverage,
        }
    )
    return data


def _screen_dict(screen: Screen) -> dict[str, Any]:
    data: dict[str, Any] = jsonable(vars(screen) | {"effect": by_way(screen.effect)})
    return data


def _head_table(heads: Sequence[HeadVerdict]) -> Table:
    detected = [head for head in heads if head.detected]
    looked_at = [head for head in heads if not head.detected and (head.knockout or head.attends)]
    nearest = sorted(
        (h for h in heads if h.excess is not None and not h.detected and h not in looked_at),
        key=lambda head: -(head.excess or 0.0),
    )
    shown = [*detected, *looked_at[: max(SHOWN - len(detected), 0)]]
    shown += nearest[: max(SHOWN - len(shown), 0)] if not shown else []
    has_effects = any(head.knockout for head in shown)
    ablated = any(head.ablation for head in shown) and len(shown) == len(detected)
    by_attention = any(head.knockout is None for head in shown)
    p_columns = {"p": has_effects, "adjusted p": by_attention}
    apart = any(_cell(head.attention) != _cell(head.score) for head in shown)
    columns = ["head", "detector", *(["attention"] if apart else []), "score", "control"]
    columns += [name for name, has in p_columns.items() if has]
    unit = _unit(h.knockout.effect for h in shown if h.knockout)
    columns += [_heading("effect", unit), "low", "high", "others", "causal"] if has_effects else []
    columns += ["ablation"] if ablated else []
    columns += ["why not detected"] if len(shown) > len(detected) else []
    rows: list[list[Any]] = []
    for h in shown:
        row: list[Any] = [h.name, h.detector, *([h.attention] if apart else [])]
        row += [h.score, h.null_mean]
        if has_effects:
            row.append(p_cell(h.deciding_p) if h.knockout else None)
        if by_attention:
            row.append(None if h.knockout else p_cell(h.deciding_p))
        if has_effects:
            row += _ends(h.knockout.effect) if h.knockout else [None, None, None]
            row += [h.knockout.others if h.knockout else None, in_words(h.causal)]
        if ablated:
            row.append(h.ablation.mean if h.ablation else None)
        if len(shown) > len(detected):
            row.append(h.reason)
        rows.append(row)
    score = (
        "mean fraction of a query's attention on the pattern's keys, over queries that have such"
    )
    caption = f"Score: {score} a key; control: the same for matched controls."
    if apart:
        caption = (
            f"Attention: {score} a key; score: over those that matched controls have too; control: "
            "of the matched controls."
        )
    if has_effects:
        caption += (
            f" p: the largest over the matched controls; a detected head has at most {LEVEL:g}."
        )
    if by_attention:
        caption += (
            " Adjusted p, of heads without a knockout: over all heads and detectors of the model."
        )
    if has_effects:
        caption += (
            f" Effect: {_lost(unit)} when that attention is knocked out (the smaller "
            "of two ways), with the same attention of the others intact or knocked out too, and "
            "its 95 % interval; effects of the two kinds are not comparable. Causal words rest on "
            "wider ones, simultaneous within a pattern."
        )
    if ablated:
        caption += " Ablation: loss of the metric without the whole head."
    tested = any(head.knockout for head in detected)
    title = "Detected heads" if tested else "Heads by attention alone"
    title += ", and others that have a pattern" if tested and len(shown) > len(detected) else ""
    title = title if detected else "Nearest heads; none is detected"
    return Table(title, columns, rows, caption, highlight=range(len(detected)))


def _cell(attention: float | None) -> str:
    return "" if attention is None else percent(attention)


def _unit(effects: Iterable[Share]) -> str:
    """Unit of effects that are reported as amounts; empty for fractions of the metric."""
    return next((amount[1] for effect in effects if (amount := in_unit(effect))), "")


def _ends(effect: Share) -> list[float]:
    """Mean and ends of the interval, as an amount where the metric can be exceeded."""
    amount = in_unit(effect)
    shown = effect if amount is None else amount[0]
    return [shown.mean, shown.low, shown.high]


def _heading(name: str, unit: str) -> str:
    return f"{name} ({unit})" if unit else name


def _lost(unit: str) -> str:
    return f"{unit} of the metric lost" if unit else "fraction of the metric lost"


def _group_table(groups: Sequence[Group]) -> Table:
    rows: list[list[Any]] = []
    unit = _unit(least(group.joint) for group in groups)
    for group in groups:
        control = _ends(least(group.control))[0] if group.control else None
        rows.append(
            [
                group.detector,
                len(group.heads),
                *_ends(least(group.joint)),
                control,
                in_words(group.word),
                group.structure if group.smallest else None,
                " ".join(head_name(*head) for head in group.smallest[:SHOWN]) or None,
            ]
        )
    return Table(
        "Attention patterns, knocked out in all heads that have them",
        [
            "pattern",
            "heads",
            _heading("effect", unit),
            "low",
            "high",
            "control",
            "causal",
            "shared",
            "keep 90 %",
        ],
        rows,
        f"Effect: {_lost(unit)}. Control: the same for a knockout of as much "
        "attention elsewhere in the same heads, if tested. Shared: how the heads share the work. "
        "Keep 90 %: the fewest heads found in which leaving it keeps 90 % of the effect.",
    )


def _partner_table(readers: Sequence[Reader]) -> Table:
    rows: list[list[Any]] = []
    named = []
    for reader in readers:
        for p in reader.partners[: max(PARTNERS_SHOWN, len(reader.named))]:
            if p.named:
                named.append(len(rows))
            names = [head_name(reader.layer, reader.head), head_name(p.layer, p.head)]
            path = p.attention, p.attention - p.attention_drop, p_cell(p.p_adjusted)
            figures = [p.k_composition, *path, p.value_drop]
            rows.append([*names, *figures])
    return Table(
        "K-composition into induction heads",
        [
            "head",
            "composes with",
            "K-composition",
            "attention",
            "without path",
            "adjusted p",
            "metric lost",
        ],
        rows,
        "K-composition: score of the weights alone. Attention: induction attention on the prompts "
        "of the knockouts, intact and without the path from the earlier head to this head's keys; "
        "metric lost: without that path. Shown: "
        f"the {PARTNERS_SHOWN} earlier heads with the largest effect for each, and all whose path "
        "the attention is shown to need.",
        highlight=named,
    )


def _weights_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    cells = [
        [
            head_name(row["layer"], row["head"]),
            row["ov_copying"],
            p_cell(row["ov_p_adjusted"]),
            row["qk_matching"],
            p_cell(row["qk_p_adjusted"]),
        ]
        for row in rows
    ]
    return Table(
        "From weights alone",
        ["head", "OV copying", "adjusted p", "QK matching", "adjusted p"],
        cells,
        "Eigenvalue scores, -1 to 1, on the direct path from the embeddings. OV copying: whether "
        "attending to a token raises its own logit. QK matching: whether tokens attend to "
        "themselves. p: against randomly permuted residual coordinates.",
    )
