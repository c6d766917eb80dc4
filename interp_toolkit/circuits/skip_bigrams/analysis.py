"""Skip-bigrams of a model's heads, from weights alone, as `interp analyze --probe skip-bigrams`.

The level bounds the false discovery rate within one head at one distance. If many heads are
compared, some show a bigram by chance, so the status combines all of them:

- *detected*: the heads show more bigrams than expected by chance (`beyond_chance`), even if only
  heads count whose scores exceed those of copies with permuted residual coordinates (see `head`);
- *uninformative*: the heads show more than expected by chance, but so do the copies;
- *undecided*: the heads show no more than expected by chance, or there were too few copies;
- *not detected*: no head has a bigram, and each would have shown one of PAIR standard deviations.

The figures of a head are a histogram of its scores against chance, a graph of its bigrams, and a
heatmap. A head without bigrams has only the histogram.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from pydantic import BeforeValidator, Field
from scipy import stats

from interp_toolkit import plots
from interp_toolkit.circuits.skip_bigrams.directions import ALIKE
from interp_toolkit.circuits.skip_bigrams.find import (
    HeadView,
    feature_sides,
    head_views,
    search_view,
)
from interp_toolkit.circuits.skip_bigrams.head import (
    COPIES,
    PAIR,
    Bigram,
    HeadBigrams,
    Heat,
    Histogram,
    alternatives_text,
)
from interp_toolkit.circuits.skip_bigrams.pursuit import CompleteBlock
from interp_toolkit.data import FeatureData
from interp_toolkit.evidence import Control, Verdict, comparisons_status, control_of_p, left_open
from interp_toolkit.finding import Finding, Run, analysis, column, table_of
from interp_toolkit.formatting import capital, listed, percent
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.features.feature_sets import FeatureOptions
from interp_toolkit.models.running.stages import structured
from interp_toolkit.models.weights.view import weights
from interp_toolkit.options import Flag, Options
from interp_toolkit.plots import CLASS_COLORS, CLASS_SYMBOLS, NEUTRAL
from interp_toolkit.results import Evidence, Figure, Status, Table, head_name
from interp_toolkit.stats import LEVEL, holm, simes

if TYPE_CHECKING:
    import pandas as pd

MOST_EDGES = 60  # bigrams drawn in a graph
WIDEST, NARROWEST = 5.0, 1.0
LEAST = 0.5  # smallest expected count drawn on a logarithmic axis
ROW = 18  # height of a feature's name in pixels


def bigram_figures(head: HeadBigrams) -> list[Figure]:
    """Figures of one head; only the histogram if it has no bigrams."""
    name, figures = head.name, [_histogram(head, head.name)]
    if head.bigrams:
        figures += [_graph(head.bigrams, name), _heat(head, name)]
    return figures


def _histogram(head: HeadBigrams, name: str) -> Figure:
    edges = np.array(head.histogram.edges)
    middles = (edges[:-1] + edges[1:]) / 2
    deviates = np.clip([b.z for b in head.bigrams], edges[0], edges[-1])
    marked = np.histogram(deviates, edges)[0]
    pairs = [n or None for n in head.histogram.pairs]
    chance = [float(n) if n >= LEAST else None for n in head.histogram.null]
    data = [
        plots.bars(middles, pairs, CLASS_COLORS[0], "all pairs") | {"opacity": 0.6},
        plots.line(middles, chance, NEUTRAL, "random features"),
    ]
    if head.bigrams:
        marks = plots.markers(
            middles[marked > 0],
            marked[marked > 0],
            CLASS_COLORS[1],
            "bigrams, others subtracted",
            symbol=CLASS_SYMBOLS[1],
            size=8,
        )
        data.append(marks)
    caption = (
        "z of every pair of features relative to its own row and column, and that of random "
        "features. Detected bigrams are marked at their z after all other bigrams are subtracted; "
        f"values beyond {edges[-1]:g} are marked at the edge."
    )
    layout = plots.layout(plots.axis("z"), plots.axis("pairs", "log"))
    layout |= {"bargap": 0, "legend": {"orientation": "h"}}
    return Figure(f"Scores of {name}", caption, data, layout)


def _graph(bigrams: Sequence[Bigram], name: str) -> Figure:
    shown = sorted(bigrams, key=lambda b: -abs(b.z))[:MOST_EDGES]
    keys, queries = _ordered(shown)
    rows = max(len(keys), len(queries))
    height = {
        side: {feature: (i + 0.5) * rows / len(names) for i, feature in enumerate(names)}
        for side, names in (("k", keys), ("q", queries))
    }
    widest = max(abs(b.strength) for b in shown) or 1.0
    data = [
        plots.line(
            [0, 1],
            [height["k"][b.key_feature], height["q"][b.query_feature]],
            CLASS_COLORS[int(b.z < 0)],
            width=max(NARROWEST, WIDEST * abs(b.strength) / widest),
        )
        | plots.NO_HOVER
        | {"opacity": 0.7}
        for b in shown
    ]
    for x, side, names in ((0, "k", keys), (1, "q", queries)):
        heights = [height[side][feature] for feature in names]
        marks = plots.markers([x] * len(names), heights, NEUTRAL, symbol=CLASS_SYMBOLS[x], size=9)
        words = plots.labels(names, "middle left" if side == "k" else "middle right")
        data.append(marks | words | plots.hover("%{text}"))
    left_out = len(bigrams) - len(shown)
    caption = (
        "Keys at the left, queries at the right; each line is a bigram, its width its strength."
        + (" Orange: attends less." if any(b.z < 0 for b in shown) else "")
        + (f" The {left_out} with the smallest z are left out." if left_out else "")
    )
    layout = plots.layout(
        {"visible": False, "range": [-0.5, 1.5]}, {"visible": False} | plots.DOWNWARD
    )
    layout |= plots.NO_LEGEND | {"hovermode": "closest", "height": 120 + ROW * rows}
    return Figure(f"Skip-bigrams of {name}", caption, data, layout)


def _ordered(bigrams: Sequence[Bigram]) -> tuple[list[str], list[str]]:
    """Order the features of both sides by the mean position of their partners.

    This keeps crossings in the graph few.
    """
    keys = list(dict.fromkeys(b.key_feature for b in bigrams))
    queries = list(dict.fromkeys(b.query_feature for b in bigrams))
    for _ in range(8):
        keys = _by_partners(keys, queries, [(b.key_feature, b.query_feature) for b in bigrams])
        queries = _by_partners(queries, keys, [(b.query_feature, b.key_feature) for b in bigrams])
    return keys, queries


def _by_partners(
    own: Sequence[str], others: Sequence[str], joined: Sequence[tuple[str, str]]
) -> list[str]:
    at = {feature: i for i, feature in enumerate(others)}
    rows_of: dict[str, list[int]] = {feature: [] for feature in own}
    for feature, other in joined:
        rows_of[feature].append(at[other])
    return sorted(own, key=lambda feature: sum(rows_of[feature]) / len(rows_of[feature]))


def _heat(head: HeadBigrams, name: str) -> Figure:
    heat = head.heat
    size = float(np.abs(heat.scores).max()) or 1.0
    trace = plots.heatmap(
        heat.keys, heat.queries, plots.rounded(heat.scores), "score", low=-size, high=size
    )
    trace |= plots.hover("key %{x}, query %{y}<br>score %{z}")
    layout = plots.layout(
        plots.axis("key feature", "category") | plots.NO_GRID,
        plots.axis("query feature", "category") | plots.NO_GRID | plots.DOWNWARD,
    )
    caption = "Scores between the unit directions of the features of the strongest bigrams."
    return Figure(f"Scores of the strongest bigrams of {name}", caption, [trace], layout)


SOURCE = "Computation in superposition, section 3"
SHOWN = 20  # rows of a table
FEWEST_OF_HUB = 3  # bigrams of a feature in the table of shared features
NAMED = 3  # bigrams and heads named in a sentence
NULL = (
    "features drawn independently of the head's weights, for the row and for the column of a pair: "
    "the larger p-value counts"
)
CONTROL = "copies of the head that read randomly permuted residual coordinates"
ADJUSTED = "Benjamini and Hochberg, over all pairs of a head"
CAPACITY = "d_model x d_head: order of magnitude of the number that a head can check for"
EMPIRICAL = (
    "p-values are approximate: features have larger cosines with each other than random directions "
    "have, so scores of each query and of each key are taken to be normally distributed, with "
    "estimated standard deviations"
)


def _as_several(value: Any) -> Any:
    several = isinstance(value, Iterable) and not isinstance(value, str)
    return value if value is None or several else (value,)


class SkipBigramOptions(FeatureOptions, Options):
    """Options of `--probe skip-bigrams`."""

    layer: int | None = Field(
        None, ge=0, description="Layer of the heads to analyze; default: all."
    )
    head: int | None = Field(None, ge=0, description="Head to analyze; default: all.")
    query_features: Annotated[Any, Flag(metavar="FILE")] = Field(
        None, description="Features of the query alone; default: --features."
    )
    key_features: Annotated[Any, Flag(metavar="FILE")] = Field(
        None, description="Features of the key alone; default: --features."
    )
    distance: Annotated[tuple[int, ...] | None, BeforeValidator(_as_several), Flag(metavar="N")] = (
        Field(None, description="Query less key position, for rotary heads; default: 1.")
    )
    level: float = Field(LEVEL, gt=0, lt=1, description="False discovery rate among pairs.")


@dataclass(frozen=True)
class HeadRecord:
    """Record of a head at one distance; see `HeadBigrams`.

    Attributes:
        blocks: complete blocks of more than one bigram; `n_blocks` counts all blocks.
    """

    name: str = column("head")
    n_bigrams: int = column("bigrams")
    estimated_count: int | None = column("estimate")
    interval: tuple[int, int] | None = column(
        "interval", format=lambda ends: None if ends is None else "{:,} to {:,}".format(*ends)
    )
    capacity: int = column("capacity")
    n_blocks: int = column("blocks")
    count_note: str = column("why no estimate", format=lambda note: note or None)
    layer: int | None = column()
    head: int | None = column()
    distance: int | None = column()
    n_pairs: int = column()
    tail: str = column()
    shared: tuple[float | None, float | None] = column()
    control_p: float = column()
    stopped: bool = column()
    bigrams: Sequence[Bigram] = column()
    blocks: Sequence[CompleteBlock] = column()

    @classmethod
    def of(cls, head: HeadBigrams) -> HeadRecord:
        """The record of a head."""
        same = {f.name for f in dataclasses.fields(cls)} & vars(head).keys()
        values = {name: getattr(head, name) for name in same}
        values["blocks"] = [block for block in head.blocks if block.size > 1]
        n_bigrams, n_blocks = len(head.bigrams), len(head.blocks)
        return cls(name=head.name, n_bigrams=n_bigrams, n_blocks=n_blocks, **values)


@dataclass(frozen=True)
class SkipBigramEvidence(Evidence):
    """Evidence for skip-bigrams over all heads, with their null and control.

    Attributes:
        level: false discovery rate for each head and distance.
        comparisons: number of heads and distances.
        expected_by_chance: upper bound of the expected number that show a bigram by chance.
        tail: source of the p-values, "exact" or "empirical" (see `HeadBigrams.tail`); None if all
            scores are 0.
        shared_cosine: mean cosine of features whose common direction is projected out; None if it
            is not.
        alike: number of bigrams with a feature that cannot be distinguished from a similar one.
        copies: number of permuted copies that each head is compared with.
        heads_with_bigrams: number of heads and distances with a bigram.
        beyond_control: how many of these exceed the control.
    """

    null: str = column("null")
    adjusted: str = column("adjusted by")
    level: float = column("level")
    pairs: int = column("pairs of features")
    capacity: str = column("capacity")
    comparisons: int = column("heads and distances")
    expected_by_chance: float = column("expected with a bigram by chance, at most")
    tail: str | None = column("tail of p-values")
    shared_cosine: float | None = column("mean cosine of features")
    alike: int = column("bigrams of features that are alike")
    control: str = column("control")
    copies: int = column("copies")
    heads_with_bigrams: int = column("with bigrams")
    beyond_control: int = column("with scores above the control")


def clearest(heads: Sequence[Any]) -> list[Any]:
    """Heads, or their records, sorted by their number of bigrams, largest first."""
    return sorted(heads, key=lambda head: -len(head.bigrams))


@dataclass(frozen=True, kw_only=True)
class SkipBigramFinding(Finding):
    """Skip-bigrams of a model's heads.

    Attributes:
        heads: one record per head and distance.
        head_bigrams: full results of the same heads, with graphs and histograms.
    """

    evidence: SkipBigramEvidence
    heads: Sequence[HeadRecord]
    head_bigrams: Sequence[HeadBigrams] = field(repr=False)

    omit_from_json: ClassVar[frozenset[str]] = frozenset({"head_bigrams"})

    def to_frame(self) -> pd.DataFrame:
        """Table with one row per bigram, sorted by head."""
        import pandas as pd

        columns = ["key_feature", "query_feature", "score", "strength", "z"]
        rows = [
            [
                *(head.layer, head.head, head.distance),
                *(getattr(b, name) for name in columns),
                alternatives_text(b.alternatives),
            ]
            for head in self.head_bigrams
            for b in head.bigrams
        ]
        names = ["layer", "head", "distance", *columns, "alternatives"]
        return pd.DataFrame(rows, columns=names)

    def tables(self) -> list[Table]:
        """Tables of the heads, and of the bigrams of the head that has the most."""
        heads = table_of(
            HeadRecord,
            "Heads",
            clearest(self.heads)[:SHOWN],
            "Capacity: d_model x d_head, order of magnitude of the number of bigrams that a head "
            "can check for. Blocks: complete bicliques of keys and queries that cover the bigrams, "
            "each costing one rank of the head; a greedy upper bound. Estimate: number of pairs "
            "about as strong as the detected ones.",
            lambda head: head.bigrams,
        )
        first = clearest(self.head_bigrams)[0]
        return [heads, *(bigram_tables(first) if first.bigrams else [])]


def bigram_tables(head: HeadBigrams) -> list[Table]:
    """Tables of a head's strongest bigrams, and of features that several bigrams share."""
    shown = head.bigrams[:SHOWN]
    caption = (
        "Score: attention score of the unit directions, divided by the attention scale. Strength: "
        "coefficient of the pair in a joint fit of all bigrams. z: z-score after all other bigrams "
        "are subtracted."
    )
    if any(bigram.alternatives for bigram in shown):
        caption += " Or: features so similar that they cannot be distinguished."
    table = table_of(Bigram, f"Skip-bigrams of {head.name}", shown, caption, sparse=True)
    hubs = sorted(head.graph.degree, key=lambda pair: (-pair[1], pair[0]))
    rows = [
        [name, {"q": "query", "k": "key"}[side], degree]
        for (side, name), degree in hubs[:SHOWN]
        if degree >= FEWEST_OF_HUB
    ]
    shared = Table(f"Shared features of {head.name}", ["feature", "side", "bigrams"], rows)
    return [table, shared] if rows else [table]


STORED = HeadBigrams, Bigram, CompleteBlock, Histogram, Heat  # what a stage of --resume holds


def analyze(run: Run[SkipBigramOptions]) -> SkipBigramFinding:
    """Skip-bigrams of a model's heads; errors as in `find_skip_bigrams`."""
    options, distance = run.options, run.options.distance
    names = ("features", "query_features", "key_features")
    chosen = {name: options.read(getattr(options, name), run.model) for name in names}
    run.progress("features")
    query, key = feature_sides(run.model, *chosen.values())
    view = weights(run.model)
    at = distance[0] if distance is not None and len(distance) == 1 else distance
    views, notes = head_views(run.model, view, options.layer, options.head, at)
    copies = COPIES[options.effort]
    described = {"query features": query.described(), "key features": key.described()}

    def searched(one: HeadView) -> HeadBigrams:
        return search_view(
            view, one, query, key, options.level, copies, run.memory, run.seed, run.progress
        )

    def stage(one: HeadView) -> str:
        return f"head {one.layer} {one.head}, distance {one.distance}, {json.dumps(described)}"

    heads: list[HeadBigrams] = [
        structured(run.store, partial(stage, one), partial(searched, one), *STORED) for one in views
    ]
    evidence = evidence_of(heads, copies)
    first = clearest(heads)[0]
    sources = {name: None if one is None else one.source for name, one in chosen.items()}
    settings = options.settings(**sources, effort=options.effort)
    about = run.provenance(**(query.described() if query is key else described))
    return SkipBigramFinding(
        headline=headline(heads, evidence.status),
        findings=sentences(heads, evidence),
        evidence=evidence,
        provenance=dataclasses.replace(about, settings=settings),
        heads=[HeadRecord.of(head) for head in heads],
        head_bigrams=heads,
        notes=[*_tokens_only(chosen), *notes_of(heads, evidence), *notes],
        plots=bigram_figures(first),
    )


def evidence_of(heads: Sequence[HeadBigrams], copies: int) -> SkipBigramEvidence:
    """Status over all heads and distances, and its evidence."""
    tails = {head.tail for head in heads} - {"none"}
    cosines = [c for head in heads for c in head.shared if c is not None]
    status, reason = _status(heads, copies)
    return SkipBigramEvidence(
        status=status,
        reason=reason,
        null=NULL,
        adjusted=ADJUSTED,
        level=heads[0].level,
        pairs=heads[0].n_pairs,
        capacity=CAPACITY,
        comparisons=len(heads),
        expected_by_chance=heads[0].level * len(heads),
        tail="empirical" if "empirical" in tails else next(iter(tails), None),
        shared_cosine=max(cosines, default=None),
        alike=sum(bool(bigram.alternatives) for head in heads for bigram in head.bigrams),
        control=CONTROL,
        copies=copies,
        heads_with_bigrams=sum(bool(head.bigrams) for head in heads),
        beyond_control=len(beyond_control(heads)),
    )


def _status(heads: Sequence[HeadBigrams], copies: int) -> Verdict:
    n_heads, with_bigrams = len(heads), [head for head in heads if head.bigrams]
    if with_bigrams and not beyond_chance(heads):
        return left_open(
            f"no more pairs stand out than expected by chance in {n_heads} comparisons"
        )
    p_value = by_chance(beyond_control(heads), n_heads) if copies else math.nan
    control = control_of_p(CONTROL, p_value, heads[0].level, len(with_bigrams) / (copies + 1))
    why_not = control.reason
    if not copies:
        why_not = f"heads were not compared with {CONTROL} (effort: quick)"
    elif with_bigrams and all(np.isnan(head.control_p) for head in with_bigrams):
        control = Control(CONTROL, "powerless")
        why_not = f"there are too many features to compare heads with {CONTROL}"
    elif control.outcome == "failed":
        why_not = f"pairs stand out as much in {CONTROL}"
    status, reason = comparisons_status(
        np.array([by_chance(heads)]),
        heads[0].level,
        power=min(head.power for head in heads),
        least=f"a pair whose score is {PAIR:g} standard deviations of chance",
        controls=[dataclasses.replace(control, reason=why_not, required=True)],
    )
    if status == "not_detected":
        reason = "the scores are not distinguishable from those of random features"
        if any(head.tail == "empirical" for head in heads):
            reason = (
                "no pair's score is an outlier both among the scores of its query and of its key"
            )
        if all(head.tail == "none" for head in heads):
            reason = f"every pair of features scores 0{' in all analyzed heads' * (n_heads > 1)}"
    return status, reason


def beyond_control(heads: Sequence[HeadBigrams]) -> list[HeadBigrams]:
    """Heads whose scores exceed those of their permuted copies (Holm over all heads)."""
    with_bigrams = [head for head in heads if head.bigrams]
    p = holm(np.array([1.0 if np.isnan(one.control_p) else one.control_p for one in with_bigrams]))
    return [head for head, adjusted in zip(with_bigrams, p, strict=True) if adjusted <= head.level]


def beyond_chance(heads: Sequence[HeadBigrams]) -> bool:
    """Whether these heads together show more bigrams than expected by chance."""
    return by_chance(heads) <= heads[0].level


def by_chance(bigrams: Sequence[HeadBigrams], n_comparisons: int | None = None) -> float:
    """The probability of as many bigrams by chance; 1 without any.

    The test takes Simes' p-value of each head over its pairs, then Simes' p-value over the heads.

    Args:
        bigrams: the heads to count.
        n_comparisons: number of heads and distances compared; None: `len(bigrams)`.
    """
    heads = []
    for head in bigrams:
        p: np.ndarray = 2 * stats.norm.sf(np.abs([bigram.z for bigram in head.bigrams]))
        heads.append(simes(p, head.n_pairs))
    return simes(np.array(heads), n_comparisons or len(bigrams)) if bigrams else 1.0


def _tokens_only(chosen: Mapping[str, Any]) -> list[str]:
    """A note on the features that are taken without a request."""
    if any(one is not None for one in chosen.values()):
        return []
    return ["no features are given, so the features are the token embeddings"]


def notes_of(heads: Sequence[HeadBigrams], evidence: SkipBigramEvidence) -> list[str]:
    """Notes on limits of the p-values, of the features, and of comparing several heads."""
    notes = []
    if evidence.status == "detected" and evidence.beyond_control < evidence.heads_with_bigrams:
        names = {head.name for head in beyond_control(heads)}
        others = [head.name for head in heads if head.bigrams and head.name not in names]
        notes.append(f"pairs stand out as much in {CONTROL}: {', '.join(others)}")
    if len(heads) > 1:
        notes.append(
            f"the false discovery rate applies to each {_each(heads)} separately: if none of the "
            f"{evidence.comparisons} had bigrams, at most {evidence.expected_by_chance:.2g} of "
            "them would be expected to show one by chance"
        )
    if evidence.tail == "empirical":
        notes.append(EMPIRICAL)
    if evidence.shared_cosine is not None:
        notes.append(
            f"features have a mean cosine of {evidence.shared_cosine:.2g}: their shared "
            "direction is projected out of features and weights"
        )
    if evidence.alike:
        notes.append(
            f"{evidence.alike:,} bigrams have a feature with others at |cos| > {ALIKE}, from "
            "which they cannot be distinguished: only the group is detected at this level"
        )
    return notes


def _n_heads(heads: Sequence[HeadBigrams]) -> int:
    return len({(head.layer, head.head) for head in heads})


def _each(heads: Sequence[HeadBigrams]) -> str:
    return "head" if _n_heads(heads) == len(heads) else "head and distance"


def headline(bigrams: Sequence[HeadBigrams], status: Status) -> str:
    """Headline: the heads that check for skip-bigrams and their number, or that there are none."""
    n_heads, first = _n_heads(bigrams), bigrams[0]
    where = first.name
    if n_heads == 1 and len(bigrams) > 1 and first.layer is not None and first.head is not None:
        where = f"{head_name(first.layer, first.head)} at {len(bigrams)} distances"
    heads = f"any of {n_heads} heads" if n_heads > 1 else where
    if status == "not_detected":
        return f"No skip-bigram stands out in {heads}."
    if status == "undecided":
        return f"Whether {heads} checks for skip-bigrams is undecided."
    if status == "uninformative":
        names = listed([head.name for head in clearest(bigrams) if head.bigrams], NAMED)
        return f"Pairs of features stand out in {names} with permuted residual coordinates too."
    beyond = clearest(beyond_control(bigrams))
    name, n_bigrams, n_beyond = beyond[0].name, len(beyond[0].bigrams), _n_heads(beyond)
    if n_beyond > 1:
        return (
            f"From weights alone, {n_beyond} of {n_heads} heads check for skip-bigrams, up to "
            f"{n_bigrams:,} for each {_each(bigrams)}."
        )
    plural = "s" if n_bigrams > 1 else ""
    return f"From weights alone, {name} checks for {n_bigrams:,} skip-bigram{plural}."


def sentences(heads: Sequence[HeadBigrams], evidence: SkipBigramEvidence) -> list[str]:
    """Findings: number of bigrams, the strongest ones, and the control; or the reason for none."""
    n_heads = _n_heads(heads)
    each = f" for each {_each(heads)}" if len(heads) > 1 else ""
    level = f"false discovery rate {percent(heads[0].level)}{each}"
    reason = evidence.reason or ""
    with_bigrams = [head for head in clearest(heads) if head.bigrams]
    if not with_bigrams:
        exact = all(head.tail == "none" for head in heads)  # scores of 0 need no test
        return [f"{capital(reason)} ({heads[0].n_pairs:,} pairs{'' if exact else f', {level}'})."]
    first = with_bigrams[0]
    names = listed([f"{head.name} ({len(head.bigrams):,})" for head in with_bigrams], NAMED)
    estimate = f"Their number in {first.name} cannot be estimated: {first.count_note}"
    if first.interval is not None:
        low, high = first.interval
        estimate = (
            f"An estimated {first.estimated_count:,} [{low:,}, {high:,}] pairs of {first.name} are "
            "about as strong as the significant ones"
        )
    strongest = ", ".join(
        f"{b.key_feature} → {b.query_feature}{' (attends less)' if b.z < 0 else ''}"
        for b in first.bigrams[:NAMED]
    )
    alike = sum(bool(bigram.alternatives) for bigram in first.bigrams)
    up_to = f"; {alike:,} pairs up to features that are alike (|cos| > {ALIKE})" if alike else ""
    units = "Heads" if _each(heads) == "head" else "Heads and distances"
    facts = [
        f"Heads with bigrams: {_n_heads(with_bigrams)} of {n_heads}, {names}; {level}.",
        f"{estimate}; a head can hold on the order of d_model x d_head = {first.capacity:,} "
        "bigrams.",
        f"Strongest in {first.name}, key → query: {strongest}{up_to}.",
    ]
    if evidence.status == "detected":
        facts.append(
            f"{units} with bigrams whose scores exceed those of {evidence.copies:,} copies "
            "with randomly permuted residual coordinates: "
            f"{evidence.beyond_control} of {len(with_bigrams)} (Holm, {percent(heads[0].level)})."
        )
    elif evidence.status == "undecided":
        facts.insert(0, f"Undecided: {reason}.")
    else:
        facts.insert(0, f"Not informative: {reason}.")
    return [*facts, "Weights do not show whether the model uses a pair."]


def unfit(model: Any, data: FeatureData | None) -> str | None:
    """Reason why the analysis runs only by name; None for models trained on skip-bigrams."""
    if (record_of(model).task or {}).get("function") == "skip-bigrams":
        return None
    return "every model with heads has such scores; run it with --probe skip-bigrams"


SKIP_BIGRAMS = analysis(
    "skip-bigrams",
    "which pairs of query and key features have larger attention scores in a head than by chance",
    SkipBigramOptions,
    analyze,
    unfit,
    source=SOURCE,
    reads_stream=True,
)
