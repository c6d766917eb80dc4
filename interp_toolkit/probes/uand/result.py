"""Results of the universal-AND analysis: each layer and its controls, as tables and sentences."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from interp_toolkit.boolean_functions import Epsilon
from interp_toolkit.evidence import Control, control_of_copies, control_of_p, effect_status
from interp_toolkit.finding import Finding, column, records
from interp_toolkit.formatting import counted
from interp_toolkit.probes.uand.errors import Claim
from interp_toolkit.results import Evidence, Status, Table
from interp_toolkit.stats import LEVEL

if TYPE_CHECKING:
    import pandas as pd

Record = Mapping[str, Any]


@dataclass(frozen=True)
class SiteSummary:
    """Readability of pairs at one layer.

    Attributes:
        hook: the hook point.
        input: name of its input, or None.
        counts: pairs by class (see `probes.uand.errors`).
        epsilon: errors of the readouts over all observed pairs, on held-out rows: of the "layer",
            its "input", a "reinitialised" (random) layer and "shuffled" labels; None: not measured.
        by_class: errors of the layer: "worst", "q99" and "rms" by features on ("both", "one",
            "none").
        mean_worst: the layer's mean over pairs of the worst error after offset.
        random_mean_worst: the same for each random (weight-shuffled) layer.
        p_better, p_worse: p-values that a random layer reads the pairs as well, or as badly; not
            corrected for the number of layers.
        behind_attention: whether attention may have brought information that the input, at a
            single position, lacks.
        shuffled_read: number of pairs that count as readable with shuffled labels.
        certain: number of pairs computed at the level for all pairs together (Holm).
        rows_needed: number of rows from which it can be shown that the input lacks an AND, about;
            None if there are so many, or no number would do.
        intersections: the 0/1 construction, if the weights have it.
        higher_fan_in: the same for ANDs of three features or more.
    """

    hook: str
    input: str | None
    counts: Mapping[str, int]
    epsilon: Mapping[str, Epsilon | None]
    by_class: Mapping[str, Mapping[str, float]]
    mean_worst: float
    random_mean_worst: Sequence[float]
    p_better: float
    p_worse: float
    behind_attention: bool
    shuffled_read: int
    certain: int
    rows_needed: int | None
    intersections: Record | None
    higher_fan_in: Record | None = None


@dataclass(frozen=True)
class ComposedSummary:
    """Readability at one layer of ANDs of the ANDs that earlier layers compute.

    Attributes:
        depth: 2 for ANDs of ANDs of features, 3 for ANDs of those, and so on.
        features: names of the ANDs that were taken as features.
        left_out: number of other ANDs, beyond the limit.
        computed: names of the ANDs of these that are computed at the layer.
        site: the layer's numbers for these features.
    """

    depth: int
    features: Sequence[str]
    left_out: int
    computed: Sequence[str]
    site: SiteSummary


@dataclass(frozen=True)
class UANDEvidence(Evidence):
    """The evidence for the status, at the layer of the headline.

    Attributes:
        site: the layer.
        input: name of its input, or None.
        counts: pairs by class.
        shuffled_read: number of pairs that count as readable with shuffled labels.
        random_layers: number of random layers compared.
        p_better: p-value that one of them reads the pairs as well; None without any.
        behind_attention: whether attention may have brought ANDs from other positions.
        positions: number of positions analyzed.
        held_out: one position in this many is held out, whole rows together.
    """

    site: str = column("layer")
    input: str | None = column("its input")
    counts: Mapping[str, int] = column("pairs")
    shuffled_read: int = column("readable pairs with shuffled labels")
    random_layers: int = column("weight-shuffled layers")
    p_better: float | None = column("p, against weight-shuffled layers")
    behind_attention: bool = column("attention may have moved ANDs here")
    positions: int = column("positions in rows")
    held_out: int = column("one position is held out of every")


CLAIM_COLUMNS = ("computed", "before", "absent", "undecided", "unseen")


def _count(claim: str) -> Callable[[SiteSummary], int]:
    return lambda site: site.counts[claim]


def _composed_count(claim: str) -> Callable[[ComposedSummary], int]:
    return lambda composed: composed.site.counts[claim]


def _three_digits(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.3g}")


def _random_mean(site: SiteSummary) -> float | None:
    values = site.random_mean_worst
    return _three_digits(sum(values) / len(values)) if values else None


@dataclass(frozen=True, kw_only=True)
class UANDFinding(Finding):
    """Readability of the ANDs of all pairs of features, by layer.

    Attributes:
        layers: every layer.
        composed: later layers, measured for ANDs of the ANDs that earlier layers compute.
        epsilon: the errors at the layer of the headline, as in `SiteSummary`.
        pairs: results of that layer by pair: "counts" by class, the "best" and "worst" pairs, and
            the construction's "named" pairs, if it is present.
        gates: requested readouts: ANDs of several features, or a truth table.
        features: their number and source, and what was left out.
        rows: fitted and held out.
        focus: index of the layer that the headline is about.
        every_pair: all pairs of that layer, for `to_frame`.
    """

    evidence: UANDEvidence
    layers: Sequence[SiteSummary] = records(
        SiteSummary,
        "Pairs of features",
        "Pairs by outcome; computed: readable here and not before, regardless of random layers. "
        "ε: mean over pairs of the worst error on held-out inputs after the best gain and bias; "
        "an affine function of two bits has 1/4. Random: mean of the same over random layers; "
        "p: probability that a random layer does as well, for each layer alone.",
        cells={
            "layer": lambda site: site.hook,
            **{claim: _count(claim) for claim in CLAIM_COLUMNS},
            "ε": lambda site: _three_digits(site.mean_worst),
            "random": _random_mean,
            "p": lambda site: _three_digits(site.p_better),
        },
    )
    composed: Sequence[ComposedSummary] = records(
        ComposedSummary,
        "ANDs of ANDs",
        "ANDs computed by earlier layers, taken as features: their pairs by outcome. Depth 2: "
        "ANDs of ANDs of features.",
        least=1,
        cells={
            "layer": lambda composed: composed.site.hook,
            "depth": lambda composed: composed.depth,
            "features": lambda composed: len(composed.features),
            **{claim: _composed_count(claim) for claim in CLAIM_COLUMNS},
        },
    )
    epsilon: Mapping[str, Epsilon | None] = records(
        Epsilon,
        "Errors at the layer and in its controls",
        "Errors |readout - AND| over all pairs seen together and all held-out inputs: the worst, "
        "the worst after each pair's best gain and bias, the 99 % quantile, the root mean square.",
        key="readout at",
        cells={
            "worst": lambda error: error.worst,
            "after offset": lambda error: error.worst_after_offset,
            "99 %": lambda error: error.q99,
            "rms": lambda error: error.rms,
        },
    )
    pairs: Record = records(
        dict,
        "Best and worst pairs",
        "The best and the worst pairs on held-out inputs; together: number of inputs with both on.",
        select=lambda pairs: [*pairs["best"], *pairs["worst"]],
        cells={
            "first": itemgetter("first"),
            "second": itemgetter("second"),
            "claim": itemgetter("claim"),
            "worst": itemgetter("worst"),
            "after offset": itemgetter("worst_after_offset"),
            "at the input": itemgetter("input"),
            "together": itemgetter("together"),
        },
    )
    gates: Sequence[Record] = records(
        dict,
        "Requested gates",
        "Readouts composed of ANDs; true: number of held-out inputs on which the function is "
        "true; fitted to itself: one readout for the whole function.",
        least=1,
        cells={
            "gate": itemgetter("gate"),
            "function": itemgetter("function"),
            "worst": itemgetter("worst"),
            "after offset": itemgetter("worst_after_offset"),
            "rms": itemgetter("rms"),
            "true": itemgetter("true"),
            "at the input": itemgetter("input"),
            "fitted to itself": lambda gate: (gate["fitted"] or {}).get("worst"),
            "after offset ": lambda gate: (gate["fitted"] or {}).get("worst_after_offset"),
        },
    )
    features: Record
    rows: Record
    focus: int
    every_pair: Mapping[str, Sequence[Any]]

    omit_from_json: ClassVar[frozenset[str]] = frozenset({"every_pair"})

    def to_frame(self) -> pd.DataFrame:
        """One row for each pair: features, outcome, q-value, errors at the layer and its input."""
        import pandas as pd

        return pd.DataFrame(dict(self.every_pair))

    def tables(self) -> list[Table]:
        """The records' tables and, after the controls, a matrix: errors by class of input."""
        layers, *more = super().tables()
        measures, by_class = ("worst", "q99", "rms"), self.layers[self.focus].by_class
        rows = [[f"{c} on", *(by_class[m][c] for m in measures)] for c in ("both", "one", "none")]
        title = "The layer's errors by input"
        more.insert(1 + bool(self.composed), Table(title, ["input", "worst", "99 %", "rms"], rows))
        return [dataclasses.replace(layers, highlight=[self.focus]), *more]


BELOW = "below 1/4 after the best gain and bias"
_REASONS: Mapping[str, str] = {
    "before": "the ANDs can be read from the layer's input too",
    "absent": "the worst errors exceed 1/4, that of an affine function",
    "undecided": "an affine function of the input or of the features may equal the AND on these "
    "rows, too few rows have both features on, or there is no earlier site",
}


def evidence_of(
    site: SiteSummary, main: Claim, n_layers: int, *, n_positions: int, held_out: int
) -> UANDEvidence:
    """The status of a layer, and the numbers behind it.

    ANDs are *computed* only if random layers of the same weights read them less well.

    Args:
        site: the layer.
        main: the class of the layer (see `errors.main_claim`).
        n_layers: number of layers from which this one was chosen.
        n_positions: number of positions analyzed.
        held_out: one position in this many is held out.
    """
    n_random = len(site.random_mean_worst)
    status: Status = main
    reason = _REASONS.get(main)
    if main == "undecided" and site.rows_needed is not None:
        reason = (
            "with so few rows the input may have the ANDs too; about "
            f"{site.rows_needed:,} rows are needed"
        )
    if main == "computed":
        most = site.counts["computed"] + site.counts["undecided"]
        controls = [_random_layers(site, n_layers)]
        status, reason = effect_status(
            site.certain, most, 1, controls,
            effect="number of pairs computed here", confirmed=main,
        )  # fmt: skip
    return UANDEvidence(
        status=status,
        reason=reason,
        site=site.hook,
        input=site.input,
        counts=site.counts,
        shuffled_read=site.shuffled_read,
        random_layers=n_random,
        p_better=site.p_better if n_random else None,
        behind_attention=site.behind_attention,
        positions=n_positions,
        held_out=held_out,
    )


def _random_layers(site: SiteSummary, n_layers: int) -> Control:
    """The control by random layers, corrected for the number of layers (Bonferroni).

    Its p-value follows from a rank, and is therefore coarse. So the layer's mean worst error must
    also lie below the prediction limit for one more random layer. The limit is at half the level,
    since smaller and larger errors are both tested.
    """
    name = "weight-shuffled layers"
    smallest = n_layers / (1 + len(site.random_mean_worst))
    p_value = float(np.minimum(1, site.p_better * n_layers))
    rank = control_of_p(name, p_value, LEVEL, smallest)
    if rank.outcome != "passed":
        return rank
    others, own = -np.array(site.random_mean_worst), -site.mean_worst
    control = control_of_copies(name, own, own, others, level=LEVEL / 2 / n_layers)
    reason = f"{name}: one more may read the pairs as well"
    return dataclasses.replace(control, reason=None if control.outcome == "passed" else reason)


def headline(site: SiteSummary, main: Claim, evidence: UANDEvidence) -> str:
    """The headline: whether the layer computes the ANDs of pairs of features.

    Args:
        site: the layer.
        main: the class of the layer (see `errors.main_claim`).
        evidence: with its status.
    """
    n, observed, hook = f"{site.counts[main]:,}", f"{_observed(site):,}", site.hook
    if not _observed(site):
        return f"Undecided at {hook}: no two features are on together often enough."
    if main == "undecided":
        return (
            f"Undecided at {hook}: whether the ANDs of {n} of {observed} feature pairs "
            "are computed."
        )
    if main == "before":
        return f"The ANDs of {n} of {observed} feature pairs are readable before {hook} already."
    if main == "absent":
        are = "AND is" if observed == "1" else "ANDs are"
        return f"Feature pairs whose {are} not readable at {hook}: {n} of {observed}."
    if evidence.status == "computed":
        computed = f"The ANDs of {n} of {observed} feature pairs are computed at {hook}"
        return f"{computed}, more accurately than in random layers."
    readable = f"The ANDs of {n} of {observed} feature pairs are readable at {hook}"
    if evidence.status == "uninformative":
        return f"{readable}, but random layers may do as well."
    return f"{readable}; whether this layer computes them is undecided."


def _observed(site: SiteSummary) -> int:
    return sum(n for claim, n in site.counts.items() if claim != "unseen")


def findings(
    sites: Sequence[SiteSummary],
    focus: int,
    main: Claim,
    evidence: UANDEvidence,
    composed: Sequence[ComposedSummary],
    gates: Sequence[Record],
) -> list[str]:
    """The findings, the most important first.

    Args:
        sites: every layer.
        focus: index of the layer that the headline is about.
        main: the class of that layer.
        evidence: with its status.
        composed: layers measured for ANDs of ANDs.
        gates: requested readouts.
    """
    site, n_layers = sites[focus], len(sites)
    listed = []
    if evidence.status == "undecided":
        reason = (evidence.reason or "").replace(": ", ", ")
        listed.append(f"Undecided: {reason}.")
    listed.append(_readable(site, main))
    if main == "computed" or (main == "absent" and site.random_mean_worst):
        listed.append(_random(site, n_layers))
    if evidence.status == "uninformative":
        listed.reverse()
    listed += [gate["summary"] for gate in gates if gate["summary"]]
    if site.intersections is not None:
        listed.append(_construction(site.intersections))
    if site.higher_fan_in is not None:
        listed.append(higher_words(site.higher_fan_in))
    for part in composed:
        claim = _main(part.site)
        own = evidence_of(part.site, claim, len(composed), n_positions=0, held_out=0)
        kind = "ANDs" if part.depth == 2 else f"ANDs of depth {part.depth - 1}"
        text = headline(part.site, claim, own)
        text = text[0].lower() + text[1:]
        listed.append(
            f"With the {len(part.features):,} {kind} of earlier layers as features, {text}"
        )
    others = [s.counts["computed"] > 0 for k, s in enumerate(sites) if k != focus]
    if others:
        listed.append(
            "Other layers at which an AND of two features is readable that their input lacks: "
            f"{sum(others)} of {len(others)}."
        )
    return listed


def _readable(site: SiteSummary, main: Claim) -> str:
    """A sentence: the number of readable pairs, by the worst error, here and at the input."""
    counts, unseen = site.counts, site.counts["unseen"]
    if not _observed(site):
        return (
            f"No pair ({counted(unseen, 'pair')}) is on together in both fitted and held-out rows: "
            "give more rows."
        )
    kinds = {
        "computed": "are readable here only",
        "before": "are readable before",
        "absent": "are not readable",
        "undecided": "are undecided",
        "unseen": "are never on together in the fitted rows, or never in the held-out rows",
    }
    others = [
        f"{n:,} {kinds[c] if n != 1 else kinds[c].replace('are', 'is', 1)}"
        for c, n in counts.items()
        if n and c != main
    ]
    rest = f"; {', '.join(others)}" if others else ""
    n = counted(counts[main], "pair")
    if main == "computed":
        where = f"no affine function of {site.input or 'the input'}"
        if site.behind_attention:
            where += " at this position and all before it"
        error = "the worst error on held-out rows after the best gain and bias is below 1/4 here"
        text = f"For {n} {error}, but {where} comes as near on the rows read well here{rest}."
        moved = " Attention that depends on content may have moved ANDs here."
        return text + (moved if site.behind_attention else "")
    if main == "before":
        return f"At {site.input} the worst error on held-out rows is {BELOW} for {n}{rest}."
    if main == "absent":
        return (
            "The worst error on held-out rows after the best gain and bias is 1/4 or more for "
            f"{n}, no better than an affine function of two bits{rest}."
        )
    return f"Undecided: {n}{rest}."


def _random(site: SiteSummary, n_layers: int) -> str:
    """A sentence: whether random layers of the same weights read the pairs as well."""
    values = sorted(site.random_mean_worst)
    if not values:
        return (
            "No random layers were compared, so whether the layer computes the ANDs is undecided."
        )
    low, high = f"{values[0]:.3f}", f"{values[-1]:.3f}"
    span = low if low == high else f"{low} to {high}"
    numbers = (
        "worst error after the best gain and bias, averaged over measured pairs, readable or not, "
        f"{site.mean_worst:.3f} here and {span} in {len(values)} such layers, p = "
    )
    worse, numbers = f"{numbers}{site.p_worse:.2g}", f"{numbers}{site.p_better:.2g}"
    control = _random_layers(site, n_layers)
    if control.outcome == "passed":
        return f"The ANDs are less readable from random (weight-shuffled) layers: {numbers}."
    if site.p_worse <= LEVEL:
        return f"The ANDs are more readable from random (weight-shuffled) layers: {worse}."
    if control.outcome == "powerless":
        more = "compare with more layers (--reinitialisations)"
        return (
            "Whether the ANDs are as readable from random (weight-shuffled) layers is undecided: "
            f"{numbers}; {more}."
        )
    if site.p_better * n_layers <= LEVEL:
        return f"The ANDs may be as readable from one more weight-shuffled layer: {numbers}."
    if site.p_better <= LEVEL:
        return (
            f"The ANDs are less readable from random (weight-shuffled) layers ({numbers} for this "
            f"layer alone), but one of {n_layers} layers may be better than its random layers by "
            "chance."
        )
    return (
        "The ANDs are not significantly less readable from random (weight-shuffled) layers: "
        f"{numbers}."
    )


def _construction(record: Record) -> str:
    """A sentence: whether the weights have the 0/1 construction, and the pairs it separates."""
    kind = f"the construction of {'universal AND' if record['universal'] else 'ANDs'}"
    shared = "a neuron"
    if record["targeted"]:
        shared = "more neurons than expected by chance"
    text = (
        f"The weights have the form of {kind} by intersections, with entries near 0 or "
        f"{record['level']:.3g}; pairs that share {shared}: {record['named_count']:,}"
    )
    if record["worst"] is None:
        return f"{text}. No such pair is on together in held-out rows."
    only = "only " if 2 * record["separated"] < record["named_seen"] else ""
    number = (
        f"{only}{record['separated']:,} of {counted(record['named_seen'], 'such pair')} on "
        "together in held-out rows"
    )
    return f"{text}. {_shared_mean(record, 'pair', number)}"


def _shared_mean(record: Mapping[str, Any], what: str, number: str) -> str:
    """A sentence: the errors of the mean of shared neurons, read as the AND."""
    return (
        f"Read as the mean of a {what}'s shared neurons, the AND has a worst error below 1/2 after "
        f"the best gain and bias for {number} (largest error: "
        f"{record['worst_after_offset']:.3g}; without gain and bias: {record['worst']:.3g})."
    )


def higher_words(record: Mapping[str, Any]) -> str:
    """A sentence on the construction for more than two features."""
    k, sampled = record["fan_in"], record["sampled"]
    sets = f"{record['gates']:,} sets of {k} that share a neuron"
    if sampled is not None:
        sets = f"about {sets}, counted on {sampled:,} drawn"
    text = (
        f"The weights have the form of the construction for ANDs of {k} features, not of two, with "
        f"entries near 0 or {record['level']:.3g} and a bias of {record['bias']:.3g}; "
        f"there are {sets}"
    )
    if not record["measured"]:
        return f"{text}. None of the sets tested is on together in held-out rows."
    number = f"{record['separated']:,} of the {record['measured']:,} sets measured"
    return f"{text}. {_shared_mean(record, 'set', number)}"


def _main(site: SiteSummary) -> Claim:
    """The class of the layer: as `errors.main_claim`, but "computed" takes precedence."""
    order: tuple[Claim, ...] = ("computed", "before", "absent", "undecided")
    computed = site.counts["computed"] > 0
    return order[0] if computed else max(order, key=lambda claim: site.counts[claim])
