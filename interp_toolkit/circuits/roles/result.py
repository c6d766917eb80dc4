"""The result of the analysis of roles: records of heads, evidence and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from interp_toolkit.circuits.metrics.causal_words import in_words
from interp_toolkit.circuits.metrics.task import TaskCheck
from interp_toolkit.circuits.roles.causal import RoleCheck
from interp_toolkit.circuits.roles.kinds import RoleWord
from interp_toolkit.finding import Finding, column
from interp_toolkit.results import Evidence, Table, head_name
from interp_toolkit.stats import Share

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class HeadRole:
    """One head tested for one role.

    Attributes:
        layer, head: the head.
        kind: a name of `roles.kinds`.
        word: "named", "undecided" or "no".
        attention: attention to the targets beyond attention to similar positions, with its interval
            over prompts.
        writing: direct effect in logits; for sink and delimiter heads, how much less the head
            writes from the targets than from other positions; None if ablation decides.
        p_value: the largest over the tests of the kind, adjusted for all heads and measures.
        attends, writes: whether attention and writing pass; `writes` is None if ablation decides.
        list_score: score of successor heads, from weights; see `list_circuits`.
        check: the effect of its ablation, if it was ablated.
        reason: why a candidate head is not named; else None.
    """

    layer: int
    head: int
    kind: str
    word: RoleWord
    attention: Share
    writing: Share | None
    p_value: float
    attends: bool
    writes: bool | None
    list_score: float | None = None
    check: RoleCheck | None = None
    reason: str | None = None

    @property
    def name(self) -> str:
        """The head's name, such as L1H0."""
        return head_name(self.layer, self.head)

    @property
    def named(self) -> bool:
        """Whether the head is of the kind."""
        return self.word == "named"


@dataclass(frozen=True)
class PlainWriter:
    """A head of none of the kinds with a large direct effect for or against the answer.

    Attributes:
        layer, head: the head.
        direct: its direct effect, logits, with its interval over prompts.
        check: the effect of its ablation, if it was ablated.
    """

    layer: int
    head: int
    direct: Share
    check: RoleCheck | None = None

    @property
    def name(self) -> str:
        """The head's name, such as L1H0."""
        return head_name(self.layer, self.head)


@dataclass(frozen=True)
class RolesEvidence(Evidence):
    """The evidence of the verdict on roles.

    Attributes:
        behaviour: task performance of the model, in one sentence.
        performs_task: whether the model performs the task.
        null: the controls of attention and direct effects.
        error: how errors are controlled.
        level: significance level of the adjusted p-values.
        named: number of heads of each kind.
        passes: number of passes over the prompts, for all heads together and for the causal checks.
    """

    behaviour: str = column("task performance")
    performs_task: bool = column("performs the task")
    null: str = column("controls")
    error: str = column("control of errors")
    level: float = column("level of the adjusted p-values")
    named: Mapping[str, int] = column("heads by kind")
    passes: int = column("passes over the prompts")


@dataclass(frozen=True, kw_only=True)
class RolesFinding(Finding):
    """Heads of each kind: name movers, S-inhibition, copy suppression, sinks and others.

    Attributes:
        task_check: task performance on these prompts.
        difference: the model's mean preference for the answer, logits; None: not measured.
        heads: every head under every kind that could be tested.
        writers: heads of none of the kinds with a large direct effect.
        groups: the joint effect of all heads of a kind, by kind.
        untested: kinds that cannot be tested here, and why.
    """

    evidence: RolesEvidence
    task_check: TaskCheck
    difference: float | None
    heads: Sequence[HeadRole]
    writers: Sequence[PlainWriter]
    groups: Mapping[str, RoleCheck]
    untested: Mapping[str, str]

    @property
    def candidate_heads(self) -> list[HeadRole]:
        """Named heads, then undecided ones, each sorted by role and then by size, largest first."""
        kinds = list(dict.fromkeys(head.kind for head in self.heads))
        return sorted(
            (head for head in self.heads if head.word != "no"),
            key=lambda h: (not h.named, kinds.index(h.kind), -abs((h.writing or h.attention).mean)),
        )

    def to_frame(self) -> pd.DataFrame:
        """One row for each head and role."""
        import pandas as pd

        return pd.DataFrame([_record(head) for head in self.heads])

    def tables(self) -> list[Table]:
        """Tables of the named and undecided heads, and of the joint effect of each kind."""
        tables = [_table(self.candidate_heads)]
        if self.writers:
            tables.append(_writer_table(self.writers))
        if self.groups:
            rows = [
                [kind, len(c.heads), c.loss.mean, c.loss.low, c.loss.high, in_words(c.word)]
                for kind, c in self.groups.items()
            ]
            columns = ["kind", "heads", "loss", "low", "high", "effect"]
            caption = "All heads of a role ablated together at the answer's position."
            tables.append(Table("Kinds together", columns, rows, caption))
        return tables


def _record(head: HeadRole) -> dict[str, object]:
    record: dict[str, object] = {
        name: getattr(head, name) for name in ("layer", "head", "kind", "word", "p_value")
    }
    for name, share in (("attention", head.attention), ("writing", head.writing)):
        for end in ("mean", "low", "high"):
            record[f"{name}_{end}"] = None if share is None else getattr(share, end)
    record["loss"] = None if head.check is None else head.check.loss.mean
    record["effect"] = None if head.check is None else head.check.word
    return record


def _table(heads: Sequence[HeadRole]) -> Table:
    columns = [
        *("head", "kind", "outcome", "attention", "low", "high", "writes", "low", "high", "p"),
        *("loss", "low", "high", "direct", "downstream", "effect"),
    ]
    rows = []
    for h in heads:
        writes = (
            (None,) * 3 if h.writing is None else (h.writing.mean, h.writing.low, h.writing.high)
        )
        loss = _loss(h.check)
        rows.append(
            [
                *(h.name, h.kind, h.word, h.attention.mean, h.attention.low, h.attention.high),
                *(*writes, h.p_value, *loss),
            ]
        )
    caption = (
        "Attention: from the answer's position, in excess of attention to similar positions of "
        "the prompt. Writes: direct effect in logits; for sink and delimiter heads, 1 minus the "
        "ratio of what they write from there to what they write from elsewhere. p: the largest of "
        "the role's tests, "
        "adjusted for all heads and measures. Loss: fraction of the preference for the answer lost "
        "when the head's output at the answer's position is replaced by the other prompts' mean. "
        "Intervals: 95 % over prompts; for losses, simultaneous. Direct: the part of the loss "
        "directly at the logits; downstream: the part through later layers, negative if they "
        "compensate."
    )
    marked = [number for number, head in enumerate(heads) if head.named]
    return Table("Heads", columns, rows, caption, marked)


def _loss(check: RoleCheck | None) -> tuple[float | str | None, ...]:
    """The table cells of a causal check."""
    if check is None:
        return (None,) * 6
    loss = (check.loss.mean, check.loss.low, check.loss.high)
    return (*loss, check.direct.mean, check.downstream.mean, in_words(check.word))


def _writer_table(writers: Sequence[PlainWriter]) -> Table:
    columns = ["head", "writes", "low", "high"]
    columns += ["loss", "low", "high", "direct", "downstream", "effect"]
    rows = [[w.name, w.direct.mean, w.direct.low, w.direct.high, *_loss(w.check)] for w in writers]
    caption = (
        "Heads with a large direct effect, for or against the answer, of which no role is shown."
    )
    return Table("Heads without a role", columns, rows, caption)
