"""The ANDs of two features that a model computes, by layer: `interp analyze MODEL --probe uand`.

Steps: label the data's positions with features (columns, token sets, thresholded SAE latents); read
each layer's activations and its input; fit and measure the readouts of all pairs there and in the
controls (`site`); classify the pairs; look for the source's own construction in the weights
(`intersections`).

Three claims are kept apart: an AND is readable here and was not before; the layer's ANDs are better
readable than those of random layers with the same weights; the layer is built by intersections.

Source: "Computation in superposition", sections 1 and 2.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float
from pydantic import Field, model_validator

from interp_toolkit import plots
from interp_toolkit.boolean_functions import AFFINE
from interp_toolkit.data import FeatureData
from interp_toolkit.data.composites import task_data
from interp_toolkit.errors import InputError
from interp_toolkit.finding import MOST_FINDINGS, Run, analysis
from interp_toolkit.models.about.record import digest_of_arrays, provenance, record_of
from interp_toolkit.models.features.feature_sets import FeatureOptions
from interp_toolkit.models.features.samples import Samples, labelled_samples
from interp_toolkit.models.running.hooks import expand_hooks, hook_points
from interp_toolkit.models.running.stages import structured
from interp_toolkit.options import Effort, Flag, Names, Options, Position
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL
from interp_toolkit.probes.estimators.truth_tables import check_table
from interp_toolkit.probes.uand.errors import PairErrors, main_claim
from interp_toolkit.probes.uand.gates import Composer, check_gates, measure_gates
from interp_toolkit.probes.uand.intersections import HigherFanIn, Intersections
from interp_toolkit.probes.uand.result import (
    ComposedSummary,
    SiteSummary,
    UANDFinding,
    evidence_of,
    findings,
    headline,
)
from interp_toolkit.probes.uand.site import (
    FOLDS,
    MOST_DESCRIBED,
    MOST_LISTED,
    MOST_WHOLE,
    LayerReader,
    ListedPairs,
    SiteErrors,
    against_more,
    measure_site,
    split,
)
from interp_toolkit.results import Figure

MOST_SHOWN = 96  # features of the heat map
N_BINS = 60


def errors_by_control(site: SiteErrors) -> Figure:
    """The pairs' errors at the layer and in its controls."""
    shown = [
        ("the layer", site.here, CLASS_COLORS[1], "solid"),
        ("its input", site.before, CLASS_COLORS[0], "solid"),
        ("a random layer", site.random, CLASS_COLORS[1], "dot"),
        ("shuffled labels", site.shuffled, NEUTRAL, "dot"),
    ]
    data = [_histogram(name, errors, color, dash) for name, errors, color, dash in shown if errors]
    error = plots.axis("worst error after the best gain and bias") | {"range": [0, 0.52]}
    layout = plots.layout(error, plots.axis("fraction of the pairs") | plots.FROM_ZERO)
    layout |= {"shapes": [plots.at_x(AFFINE)]}
    caption = (
        "Each pair's worst error on held-out rows, at the layer and in controls. Right of the "
        "dashed line at 1/4, an affine function of the two features does as well."
    )
    return Figure("Errors of all pairs", caption, data, layout)


def pair_map(site: SiteErrors, names: Sequence[str]) -> Figure:
    """Heat map of worst errors after offset: below the diagonal the layer's, above its input's."""
    m = len(names)
    square = np.full((m, m), np.nan)
    first, second = site.here.pairs.T
    square[second, first] = site.here.worst_after_offset
    if site.before is not None:
        square[first, second] = site.before.worst_after_offset
    shown = list(range(min(m, MOST_SHOWN)))
    labels = [names[k] for k in shown]
    values = square[np.ix_(shown, shown)]
    trace = plots.heatmap(
        labels,
        labels,
        [[None if np.isnan(v) else round(float(v), 4) for v in row] for row in values],
        "ε",
        low=0,
        high=0.5,
    )
    trace |= plots.hover("%{y} ∧ %{x}<br>worst error %{z:.3f}") | plots.SILENT_HOLES
    trace |= {"colorscale": "Viridis"}
    axis = {"type": "category", "nticks": 12} | plots.NO_GRID
    layout = plots.layout(axis, axis | plots.DOWNWARD | {"scaleanchor": "x"}) | {"height": 560}
    above = "above it at the layer's input" if site.before is not None else "above it nothing"
    only = f" The first {MOST_SHOWN} of {m} features." if m > MOST_SHOWN else ""
    caption = (
        f"Worst error on held-out rows after the best gain and bias: below the diagonal at the "
        f"layer, {above}. Empty: never on together.{only}"
    )
    return Figure("Pairs of features", caption, [trace], layout)


def random_layers(sites: Sequence[SiteSummary]) -> Figure:
    """Each layer's mean error compared with those of random layers."""
    data = []
    for kind, color, symbol, values in (
        ("random layers", NEUTRAL, "line-ns-open", [s.random_mean_worst for s in sites]),
        ("the layer", CLASS_COLORS[1], "diamond", [[s.mean_worst] for s in sites]),
    ):
        x = [v for group in values for v in group]
        y = [s.hook for s, group in zip(sites, values, strict=True) for _ in group]
        marks = plots.markers(x, y, color, kind, symbol=symbol, size=13)
        marks["marker"]["line"] = {"width": 2}
        data.append(marks | plots.hover("%{y}<br>%{x:.4f}"))
    layout = plots.layout(
        plots.axis("mean over pairs of the worst error after offset"),
        {"type": "category", "automargin": True} | plots.DOWNWARD,
    )
    layout |= {"height": 180 + 40 * len(sites)}
    caption = (
        "Smaller is better. Random layers are weight-shuffled copies of the layer; it has learned "
        "something only if it lies left of nearly all of them."
    )
    return Figure("Against random layers", caption, data, layout)


def _histogram(name: str, errors: PairErrors, color: str, dash: str) -> plots.Part:
    values = errors.worst_after_offset
    values = values[~np.isnan(values)]
    edges = np.linspace(0, 0.5, N_BINS + 1)
    shares: Float[np.ndarray, " bin"] = np.histogram(values, edges)[0] / max(len(values), 1)
    middles = [round(float(x), 4) for x in (edges[:-1] + edges[1:]) / 2]
    curve = plots.line(middles, [round(float(y), 5) for y in shares], color, name, dash=dash)
    curve["line"] = {"color": color, "dash": dash, "shape": "hvh"}
    return curve | plots.hover(f"{name}<br>%{{x:.3f}}: %{{y:.1%}}")


NEURONS = "blocks.*.mlp.hook_post"
SOURCE = "Computation in superposition, sections 1 and 2"
SHOWN = 5  # best pairs, and as many worst ones
LEAST_ROWS = 50
MOST_ROWS = 30_000  # positions to analyze; if there are more, this many are sampled
#: effort -> number of random layers that each layer is compared with
RANDOM_LAYERS: dict[Effort, int] = {"quick": 0, "standard": 19, "thorough": 99}
MOST_ANDS = 64  # ANDs of earlier layers that are used as features at a later one


class UANDOptions(FeatureOptions, Options):
    """Options of `--probe uand`."""

    hooks: Annotated[Names | None, Flag("--hook", metavar="PATTERN")] = Field(
        None, description="Hook points to analyze; default: the neurons of every MLP."
    )
    position: Position | None = Field(
        None, description="Position to read; default: the data's own in each row, else all."
    )
    gates: Annotated[Names, Flag("--gate", metavar="NAME,NAME")] = Field(
        (), description="Features whose AND (or --table) is computed from the readouts of pairs."
    )
    table: Annotated[str | None, Flag(metavar="0110")] = Field(
        None, description="Truth table that the gates compute; default: their AND."
    )
    level: float = Field(0.05, gt=0, lt=1, description="False discovery rate among pairs.")
    reinitialisations: int | None = Field(
        None,
        ge=0,
        description="Random layers to compare each layer with; default: 19 (smallest p 0.05); none "
        "with --effort quick, 99 with thorough. With several layers, the one in the verdict is "
        "compared with as many more for each.",
    )
    most_features: int = Field(
        1_000, ge=2, description="Number of features; of more, those that are on most often."
    )

    @model_validator(mode="after")
    def _gates_fit(self) -> UANDOptions:
        if len(set(self.gates)) < len(self.gates):
            raise ValueError("--gate: one is given twice")
        if self.table is not None:
            if not self.gates:
                raise ValueError(f"the table {self.table} needs a gate: name it (--gate A,B)")
            check_table(self.table)
        return self


def analyze(run: Run[UANDOptions]) -> UANDFinding:
    """Find the pairs of features whose AND can be read out at each layer, and before it.

    Without data, the inputs are those of the model's own task.

    Raises:
        InputError: no data, fewer than two features or fifty positions, unknown hooks or gates.
    """
    model, options, data = run.model, run.options, run.data
    if data is None:
        if options.features is not None:
            raise InputError("--features needs prompts that contain the features: give --data FILE")
        data = task_data(record_of(model).task, seed=run.seed)
    chosen = options.read(options.features, model)
    names = expand_hooks(model, options.hooks or _default_hooks(model))
    run.progress("labeling the data")
    samples = labelled_samples(
        model,
        data,
        chosen,
        position=options.position,
        most=MOST_ROWS,
        seed=run.seed,
        memory=run.memory,
    )
    samples, left_out = _commonest(samples, options.most_features)
    if len(samples) < LEAST_ROWS or len(samples.names) < 2:
        raise InputError(
            f"{samples.source}: {len(samples)} positions and {len(samples.names)} features that "
            f"are ever on; at least {LEAST_ROWS} positions and 2 features are needed"
        )
    n_random = options.reinitialisations
    if n_random is None:
        n_random = RANDOM_LAYERS[options.effort]
    gates = check_gates(options.gates, samples.names, options.table)
    rows = split(samples, run.seed)
    sites: list[SiteErrors] = []
    summaries: list[SiteSummary] = []
    gate_readouts: list[list[dict[str, Any]]] = []
    composer, composed = Composer(samples.names, rows, MOST_ANDS), list[ComposedSummary]()
    read = LayerReader(model, samples, names, run.memory)
    for hook in names:
        layer = read(hook)
        run.progress(f"layer {len(sites) + 1} of {len(names)}: {hook}")
        site: SiteErrors = structured(
            run.store,
            partial(_stage, hook, samples),
            partial(measure_site, run, layer, rows, n_random),
            *(SiteErrors, PairErrors, ListedPairs, Intersections, HigherFanIn),
        )
        sites.append(site)
        summaries.append(_summary(site))
        gate_readouts.append(
            measure_gates(gates, samples.names, options.table, layer.activations, layer.input, rows)
        )
        composed += [
            ComposedSummary(d.depth, d.names, d.left_out, d.computed(), _summary(d.site))
            for d in composer.follow(run, layer, site, n_random)
        ]
    focus = max(
        range(len(sites)),
        key=lambda k: (summaries[k].counts["computed"], -summaries[k].mean_worst),
    )
    main = main_claim(sites[focus].counts)
    if main == "computed" and len(names) > 1 and n_random:
        most = len(names) * (n_random + 1)
        sites[focus] = against_more(run, read(names[focus]), rows, sites[focus], most)
        summaries[focus] = _summary(sites[focus])
    evidence = evidence_of(
        summaries[focus], main, len(summaries), n_positions=len(samples), held_out=FOLDS
    )
    sentences = findings(summaries, focus, main, evidence, composed, gate_readouts[focus])
    settings = options.settings(
        hooks=names,
        reinitialisations=n_random,
        features=None if chosen is None else chosen.source,
    ) | {"features_sha256": None if chosen is None else chosen.sha256}
    described = {
        "source": samples.source,
        "rows": len(data),
        "positions": len(samples),
        "sha256": data.digest(),
    }
    return UANDFinding(
        headline=headline(summaries[focus], main, evidence),
        findings=sentences[:MOST_FINDINGS],
        evidence=evidence,
        provenance=provenance(model, described, settings, run.seed),
        layers=summaries,
        composed=composed,
        epsilon=summaries[focus].epsilon,
        pairs=_pairs(sites[focus], samples.names),
        gates=gate_readouts[focus],
        features={"count": len(samples.names), "source": samples.source, "left_out": left_out},
        rows={"fitted": len(rows.fitted), "held_out": len(rows.held_out)},
        focus=focus,
        every_pair=_every_pair(sites[focus], samples.names),
        notes=[
            *([f"left out: {left_out}"] if left_out else []),
            *_many(len(samples.names)),
            *sentences[MOST_FINDINGS:],
        ],
        plots=_plots(sites[focus], summaries, samples.names),
    )


def _stage(hook: str, samples: Samples) -> str:
    """The name of a layer's stage: its hook point, and the labels."""
    return f"uand at {hook}, {samples.source}, {digest_of_arrays(np.asarray(samples.labels))}"


def _default_hooks(model: Any) -> str:
    if any(name.endswith(".mlp.hook_post") for name in hook_points(model)):
        return NEURONS
    return "blocks.*.hook_resid_post"


def _commonest(samples: Samples, most: int) -> tuple[Samples, str]:
    """The most frequent features, and a description of those left out."""
    n = len(samples.names)
    never = f"{samples.dropped:,} features that are never on" if samples.dropped else ""
    if n <= most:
        return samples, never
    often = np.sort(np.argsort(-samples.labels.sum(axis=0), kind="stable")[:most])
    commonest = dataclasses.replace(
        samples,
        labels=samples.labels[:, often],
        names=tuple(samples.names[k] for k in often),
        feature_indices=samples.feature_indices[often],
        dropped=samples.dropped + n - most,
    )
    rarer = f"{n - most:,} features that are on less often than the {most:,} analyzed"
    return commonest, f"{never}, {rarer}" if never else rarer


def _many(n_features: int) -> list[str]:
    """A note on what is measured on a sample of the pairs, if there are many."""
    if n_features <= MOST_WHOLE:
        return []
    return [
        f"with more than {MOST_WHOLE:,} features, all pairs are classified; tables and figures of "
        f"errors are of up to {MOST_DESCRIBED:,} pairs that are on together, drawn at random, and "
        f"the frame lists up to {MOST_LISTED:,} that are readable; weights are not searched for "
        "the construction by intersections"
    ]


def _summary(site: SiteErrors) -> SiteSummary:
    controls = {
        "layer": site.here,
        "input": site.before,
        "reinitialised": site.random,
        "shuffled": site.shuffled,
    }
    here = site.here
    return SiteSummary(
        hook=site.hook,
        input=site.input_name,
        counts={str(claim): n for claim, n in site.counts.items()},
        epsilon={name: None if e is None else e.epsilon() for name, e in controls.items()},
        by_class={
            "worst": here.worst_by_class,
            "q99": here.q99_by_class,
            "rms": here.rms_by_class,
        },
        mean_worst=_mean_worst(site),
        random_mean_worst=site.random_statistics.tolist(),
        p_better=site.p_better,
        p_worse=site.p_worse,
        behind_attention=site.behind_attention,
        shuffled_read=site.shuffled_read,
        certain=site.certain,
        rows_needed=site.rows_needed,
        intersections=None if site.intersections is None else _described_sets(site.intersections),
        higher_fan_in=None if site.higher is None else dataclasses.asdict(site.higher),
    )


def _mean_worst(site: SiteErrors) -> float:
    """Mean worst error over the pairs compared with random layers, else all; 1/2 without pairs."""
    if not np.isnan(site.statistic):
        return site.statistic
    observed = site.here.worst_after_offset[site.here.observed]
    return float(observed.mean()) if len(observed) else 0.5


def _described_sets(intersections: Intersections) -> dict[str, Any]:
    named = intersections.named & intersections.errors.observed
    worst, least = intersections.errors.worst[named], intersections.errors.worst_after_offset[named]
    return {
        "level": intersections.level,
        "scatter": intersections.scatter,
        "bias": intersections.bias,
        "universal": intersections.universal,
        "targeted": not intersections.universal and bool(intersections.targeted.any()),
        "named_count": int(intersections.named.sum()),
        "named_seen": int(named.sum()),
        "separated": int(intersections.errors.separated[named].sum()),
        "shared_mean": float(intersections.shared[intersections.named].mean())
        if intersections.named.any()
        else 0.0,
        "worst": float(worst.max()) if len(worst) else None,
        "worst_after_offset": float(least.max()) if len(least) else None,
    }


def _pairs(site: SiteErrors, names: Sequence[str]) -> dict[str, Any]:
    least = site.listed.errors.worst_after_offset
    order = np.argsort(least, kind="stable")[: int((~np.isnan(least)).sum())]
    shown = min(SHOWN, len(order) // 2) or len(order)
    worst = [] if len(names) > MOST_WHOLE else order[shown:][::-1][:shown].tolist()
    summary: dict[str, Any] = {
        "counts": dict(site.counts),
        "best": [_pair(site, k, names) for k in order[:shown].tolist()],
        "worst": [_pair(site, k, names) for k in worst],
    }
    if site.intersections is not None:
        sets = site.intersections
        strongest = np.flatnonzero(sets.named)
        strongest = strongest[np.argsort(-sets.shared[strongest], kind="stable")]
        summary["named"] = [
            {"first": names[i], "second": names[j], "shared_neurons": int(sets.shared[k])}
            for k in strongest
            for i, j in [sets.errors.pairs[k]]
        ]
    return summary


def _pair(site: SiteErrors, k: int, names: Sequence[str]) -> dict[str, Any]:
    listed = site.listed
    i, j = listed.errors.pairs[k]
    before = None if listed.before is None else float(listed.before[k])
    return {
        "first": names[i],
        "second": names[j],
        "claim": listed.claims[k],
        "worst": float(listed.errors.worst[k]),
        "worst_after_offset": float(listed.errors.worst_after_offset[k]),
        "input": before,
        "together": int(listed.errors.count[0, k]),
        "q_value": float(listed.q[k]),
    }


def _every_pair(site: SiteErrors, names: Sequence[str]) -> dict[str, Sequence[Any]]:
    listed, errors = site.listed, site.listed.errors
    nowhere = [float("nan")] * len(listed.claims)
    return {
        "first": [names[i] for i in errors.pairs[:, 0]],
        "second": [names[j] for j in errors.pairs[:, 1]],
        "claim": listed.claims,
        "q_value": listed.q.tolist(),
        "worst": errors.worst.tolist(),
        "worst_after_offset": errors.worst_after_offset.tolist(),
        "worst_after_offset_at_input": nowhere if listed.before is None else listed.before.tolist(),
        "together_fitted": errors.fitted.tolist(),
        "together_held_out": errors.count[0].tolist(),
    }


def _plots(site: SiteErrors, summaries: Sequence[SiteSummary], names: Sequence[str]) -> list[Any]:
    plots = [errors_by_control(site)]
    if len(names) <= MOST_WHOLE:
        plots.append(pair_map(site, names))
    compared = [s for s in summaries if s.random_mean_worst]
    return [*plots, random_layers(compared)] if compared else plots


def unfit(model: Any, data: FeatureData | None) -> str | None:
    """The reason why the analysis cannot run without further options; None if it can."""
    task = record_of(model).task or {}
    if data is None and task.get("function") != "uand":
        return "needs --data, with feature columns or --features"
    if data is not None and data.features.shape[1] < 3:
        return "needs three features or more, or --features"
    return None


UAND = analysis(
    "uand",
    "for which pairs of features a layer computes AND so that a linear readout is accurate",
    UANDOptions,
    analyze,
    unfit,
    source=SOURCE,
    reads_stream=True,
)
