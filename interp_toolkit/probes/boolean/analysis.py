"""The analysis of a boolean function on a model: `interp analyze MODEL --probe xor`.

Steps: build the prompts or take the data; read the activations at every requested site; measure
each site (`measure`); apply the theorem on heads if its hypotheses hold (`theorem`); correct the
held-out p-values for the number of sites; at the most informative site, split the score by head and
ablate heads (`attribution`); repeat the measurement on weight-shuffled copies of the model.

The figure shows the classes in a plane. If they are separable, the horizontal axis is the
hyperplane's normal, so that the margin is shown to scale. Otherwise the plane spans the directions
of largest variance, and the point where the two hulls meet is marked. Other directions are
projected away, as the caption says.

Source: "How many attention heads do you need to do XOR?".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import numpy as np
from jaxtyping import Bool, Float
from pydantic import AfterValidator, BeforeValidator, Field
from scipy.spatial import ConvexHull, QhullError

from interp_toolkit import plots
from interp_toolkit.data import FeatureData, parse_tokens, truth_table
from interp_toolkit.errors import InputError
from interp_toolkit.evidence import LEAST_COPIES
from interp_toolkit.finding import MOST_FINDINGS, Run, analysis
from interp_toolkit.formatting import Stages
from interp_toolkit.models.about.record import provenance, record_of
from interp_toolkit.models.running.hooks import expand_hooks
from interp_toolkit.models.running.stages import structured
from interp_toolkit.options import Flag, Names, Options, Position, Words
from interp_toolkit.plots import CLASS_COLORS, CLASS_SYMBOLS, NEUTRAL, translucent
from interp_toolkit.probes.boolean.attribution import head_effects
from interp_toolkit.probes.boolean.inputs import (
    default_hooks,
    equal_inputs_at,
    groups_of,
    groups_with,
    labels_of,
    positions_of,
    prompts_for,
    readable_hooks,
)
from interp_toolkit.probes.boolean.result import (
    MARGIN_COPIES,
    BooleanFinding,
    HeadEffect,
    HeldOutFigures,
    LabelingNull,
    SiteVerdict,
    evidence_of,
    findings,
    focus_of,
    headline,
)
from interp_toolkit.probes.boolean.sites import (
    SiteMeasurement,
    SiteReader,
    Targets,
    Where,
    corrected,
    in_reinitialised,
    make_targets,
    measure,
    site_verdict,
    with_reinitialised,
)
from interp_toolkit.probes.estimators.separability import Certificate, Separability
from interp_toolkit.probes.estimators.truth_tables import TABLES, check_table
from interp_toolkit.registry import Analysis
from interp_toolkit.results import Figure, head_name
from interp_toolkit.stats import LEVEL

MOST_POINTS = 2_000  # drawn per class; more make the page slow and show nothing new
LABELLED_POINTS = 16  # largest number of points that are labeled with their input


def plane(
    site: SiteVerdict,
    X: Float[np.ndarray, "n d"],
    positive: Bool[np.ndarray, " n"],
    labels: Sequence[str],
    seed: int,
) -> Figure:
    """The two classes, their hulls, and the witness, in one plane."""
    centre = X.mean(axis=0)
    axes = _axes(site, X - centre)
    at = (X - centre) @ axes.T
    data: list[plots.Part] = []
    for side in (0, 1):
        members = positive == bool(side)
        data += _hull(at[members], side)
    data += _witness(site, X, positive, centre, axes, at)
    rng = np.random.default_rng(seed)
    for side in (0, 1):
        rows = np.flatnonzero(positive == bool(side))
        if len(rows) > MOST_POINTS:
            rows = np.sort(rng.choice(rows, MOST_POINTS, replace=False))
        points, names = at[rows], [labels[i] for i in rows.tolist()]
        if len(X) <= LABELLED_POINTS:
            points, names = _merged(points, names)
        data.append(_points(points, names, side, site.function, len(X)))
    along = "normal to the hyperplane" if site.status == "separable" else "first direction"
    layout = plots.layout(
        plots.axis(f"{along} (activation units)") | plots.NO_ZERO_LINE,
        plots.axis("largest other direction") | plots.NO_ZERO_LINE,
    )
    if _comparable(at):
        layout["yaxis"] |= {"scaleanchor": "x", "scaleratio": 1}
    return Figure(f"{site.function} at {site.name}", _plane_caption(site), data, layout)


def _plane_caption(site: SiteVerdict) -> str:
    points = "Each point is an activation; the other directions are projected away."
    if site.status == "separable":
        return (
            "The dashed line is the separating hyperplane, seen edge-on; the band is the margin "
            f"of {site.margin:.4g} around it. {points}"
        )
    if site.certificate is not None:
        return (
            "The cross marks a point that is a convex combination of either class"
            + (", weighted by the softmax denominators" if site.denominators else "")
            + ": the hulls meet there, so no hyperplane can have the classes on its two sides. "
            + points
        )
    return f"Neither a hyperplane nor a certificate at this precision. {points}"


def _axes(site: SiteVerdict, centred: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "2 d"]:
    """Two orthonormal directions: the hyperplane's normal first, if there is one."""
    if site.hyperplane is None:
        _, _, vt = np.linalg.svd(centred, full_matrices=False)
        axes = np.zeros((2, centred.shape[1]))
        axes[: min(2, len(vt))] = vt[:2]
        return axes
    normal = site.hyperplane.unit
    rest = centred - np.outer(centred @ normal, normal)
    _, s, vt = np.linalg.svd(rest, full_matrices=False)
    other = vt[0] if s[0] > 0 else np.zeros_like(normal)
    return np.stack([normal, other])


def _comparable(at: Float[np.ndarray, "n 2"]) -> bool:
    width, height = np.ptp(at, axis=0)
    return bool(height > 0 and 1 / 6 < width / height < 6)


def _merged(
    at: Float[np.ndarray, "n 2"], labels: list[str]
) -> tuple[Float[np.ndarray, "m 2"], list[str]]:
    """Merge coinciding points into one with all their labels, so that none hides another."""
    size = np.abs(at).max() or 1.0
    members_by_point: dict[tuple[float, ...], list[int]] = {}
    for i, point in enumerate(np.round(at / size, 9)):
        members_by_point.setdefault(tuple(point + 0.0), []).append(i)
    first_members = [members[0] for members in members_by_point.values()]
    return at[first_members], [
        ", ".join(labels[i] for i in members) for members in members_by_point.values()
    ]


def _points(
    at: Float[np.ndarray, "n 2"], labels: list[str], side: int, function: str, n_all: int
) -> plots.Part:
    few = n_all <= LABELLED_POINTS
    marks = plots.markers(
        at[:, 0],
        at[:, 1],
        CLASS_COLORS[side],
        f"{function} = {side}",
        symbol=CLASS_SYMBOLS[side],
        size=13 if few else 5,
    )
    marks["marker"]["opacity"] = 1 if few else 0.6
    named = plots.labels(labels, ("bottom center", "top center")[side])
    named["mode"] = "markers+text" if few else "markers"
    return marks | named | plots.hover("%{text}<br>(%{x:.4g}, %{y:.4g})")


def _hull(at: Float[np.ndarray, "n 2"], side: int) -> list[plots.Part]:
    """The outline of a class in the plane: a polygon, or the segment of two points."""
    corners = at
    if len(at) > 2:
        try:
            corners = at[ConvexHull(at).vertices]
        except QhullError:  # all points on one line
            order = np.argsort(at @ (at[-1] - at[0]))
            corners = at[[order[0], order[-1]]]
    if len(corners) < 2:
        return []
    closed = np.vstack([corners, corners[:1]])
    inside = plots.area(closed[:, 0], closed[:, 1], translucent(CLASS_COLORS[side]))
    return [inside | {"line": {"color": CLASS_COLORS[side], "width": 1.5}}]


def _witness(
    site: SiteVerdict,
    X: Float[np.ndarray, "n d"],
    positive: Bool[np.ndarray, " n"],
    centre: Float[np.ndarray, " d"],
    axes: Float[np.ndarray, "2 d"],
    at: Float[np.ndarray, "n 2"],
) -> list[plots.Part]:
    if site.hyperplane is not None:
        low, high = at[:, 1].min(), at[:, 1].max()
        pad = 0.25 * (high - low) or 0.5 * max(site.margin, 1e-12)
        offset = float(site.hyperplane.threshold - centre @ site.hyperplane.unit)
        ends = [float(low - pad), float(high + pad)]
        half = site.margin / 2
        corners = [offset - half, offset + half, offset + half, offset - half]
        sides = [ends[0], ends[0], ends[1], ends[1]]
        return [
            plots.area(corners, sides, translucent(NEUTRAL, 0.14)),
            plots.dashed([offset, offset], ends, "hyperplane"),
        ]
    certificate = site.denominators or site.certificate
    if certificate is not None:
        meeting = (certificate.positive_weights @ X[positive] - centre) @ axes.T
        return [plots.strokes(meeting[:1], meeting[1:], "x-thin", "the hulls meet", size=16)]
    return []


def across_sites(sites: Sequence[SiteVerdict]) -> Figure:
    """Accuracy at every site, with the null of shuffled labels."""
    names = [site.name for site in sites]
    held_out = [site.held_out for site in sites]
    measured = [s.held_out.balanced_accuracy if s.held_out else s.accuracy for s in sites]
    status = ["separable", "not_separable", "undecided"]
    colors = {"separable": CLASS_COLORS[0], "not_separable": CLASS_COLORS[1], "undecided": NEUTRAL}
    data: list[plots.Part] = []
    for kind in status:
        rows = [i for i, site in enumerate(sites) if site.status == kind]
        if rows:
            x, y = [names[i] for i in rows], [measured[i] for i in rows]
            data.append(plots.bars(x, y, colors[kind], kind.replace("_", " ")))
    if any(held_out):
        shuffled = [h.null_balanced_accuracy if h else None for h in held_out]
        data.append(plots.strokes(names, shuffled, "line-ew", "shuffled labels", size=16))
    kind = "Held-out balanced accuracy" if any(held_out) else "Accuracy on the points"
    layout = plots.layout(
        {"categoryorder": "array", "categoryarray": names}, plots.axis(kind) | {"range": [0, 1.02]}
    )
    return Figure("Across sites", f"{kind} of the probe, colored by verdict.", data, layout)


def head_split(heads: Sequence[HeadEffect], site: SiteVerdict) -> Figure:
    """The part of the probe's contrast that each head writes."""
    names, contrasts = [head_name(h.layer, h.head) for h in heads], [h.contrast for h in heads]
    trace = plots.bars(names, contrasts, CLASS_COLORS[1], "contrast") | plots.NO_LEGEND
    layout = plots.layout(
        plots.axis("head", "category"), plots.axis("score where true − where false")
    )
    caption = (
        f"The probe's score at {site.name} is a sum over heads and other components; shown: each "
        "component's mean score where the function is true minus where it is false."
    )
    return Figure("Score by head", caption, [trace], layout)


def _numbers(values: Any) -> list[int | float]:
    """A list of numbers as it is, anything else as none."""
    if not isinstance(values, list | tuple):
        return []
    numbers = [value for value in values if isinstance(value, int | float)]
    return numbers if len(numbers) == len(values) else []


def _stage(table: str, prompts: FeatureData, hook: str, at: Any) -> str:
    """The name under which a site's measurement is stored."""
    return f"{table} {prompts.names} {prompts.digest()} at {hook}{at}"


def training_curve(training: Mapping[str, Any]) -> Figure | None:
    """The recorded loss curve, with the lower bound on the loss if one is known."""
    curve, floor = training.get("curve"), training.get("loss_floor")
    if not isinstance(curve, Mapping):
        return None
    steps, losses = _numbers(curve.get("step")), _numbers(curve.get("loss"))
    if not steps or len(steps) != len(losses):
        return None  # a malformed record from elsewhere; the analysis does not depend on it
    data = [plots.line(steps, losses, CLASS_COLORS[0], "loss")]
    caption = "Cross-entropy of the answer during training (nats), the best seed."
    if isinstance(floor, int | float):
        ends = [steps[0], steps[-1]]
        data.append(plots.dashed(ends, [floor, floor], f"floor {floor:.4f}"))
        caption += " The dashed line is the lowest loss one head can reach on XOR."
    layout = plots.layout(plots.axis("step"), plots.axis("loss (nats)") | plots.FROM_ZERO)
    return Figure("Training", caption, data, layout)


COPY_COST = 0.1  # of a site in a weight-shuffled model, in measurements of a site; at most
HEADS_COST = 0.5  # of all ablations of heads
MANY_SITES = 12  # from which on the option that limits them is named
SOURCE = "How many attention heads do you need to do XOR?"


def _as_tokens(value: Any) -> Any:
    return parse_tokens(value) if isinstance(value, str) else value


def _checked_table(table: str | None) -> str | None:
    if table is not None:
        check_table(table)
    return table


class FunctionOptions(Options):
    """Options of `--probe xor`, `and` and `or`."""

    tokens: Annotated[
        Mapping[str, int] | None, BeforeValidator(_as_tokens), Flag(metavar="0=0,1=1,query=2")
    ] = Field(None, description="Token ids that make the truth table's prompts.")
    layout: Annotated[Words | None, Flag(metavar='"a b query"')] = Field(
        None, description="Where tokens and features go in a prompt; default: a b query."
    )
    hooks: Annotated[Names | None, Flag("--hook", metavar="PATTERN")] = Field(
        None,
        description="Hook points to read, such as 'blocks.*.hook_resid_post'; default: the "
        "residual stream after each attention and block.",
    )
    position: Position | None = Field(
        None, description="Token position to read; default: the data's own (the query)."
    )
    C: Annotated[float | None, Flag(name="--C")] = Field(
        None,
        gt=0,
        description="Inverse regularization of the probe on sampled data; default: chosen from "
        "0.01 to 1e6 by nested cross-validation.",
    )
    shuffles: int = Field(99, ge=0, description="Number of label shuffles on sampled data.")
    reinitialisations: int | None = Field(
        None,
        ge=0,
        description="Copies of the model with its weights permuted, at most; default: "
        f"{MARGIN_COPIES}, on sampled data {LEAST_COPIES}. With fewer nothing is confirmed.",
    )


class BooleanOptions(FunctionOptions):
    """Options of `--probe boolean`."""

    table: Annotated[str | None, AfterValidator(_checked_table), Flag(metavar="0110")] = Field(
        None,
        description="Truth table of 2^k bits, the first feature most significant (0110 is XOR); "
        "default: that of the model's own task.",
    )


def analyze(run: Run[BooleanOptions]) -> BooleanFinding:
    """Find the sites where the boolean function can be read linearly.

    Raises InputError as `find_function`, and where neither options nor model give a table.
    """
    table = run.options.table or (record_of(run.model).task or {}).get("function")
    if table is None:
        raise InputError("boolean needs 'table' (--table), such as 0110: this model records none")
    return find_function(run, table)


def find_function(run: Run[Any], table: str) -> BooleanFinding:
    """Find the sites at which a boolean function of the data's features is linearly readable.

    Without data, the prompts are the truth table of the model's own task.

    Raises:
        InputError: no data, a truth table that does not fit the data, or unknown hooks.
    """
    model, options = run.model, run.options
    prompts = prompts_for(model, table, run.data, options.tokens, options.layout)
    features = np.asarray(prompts.features)
    y = labels_of(table, features, prompts)
    requested = options.hooks
    hooks = readable_hooks(expand_hooks(model, requested or default_hooks(model)), requested)
    sites = [
        (hook, position) for position in positions_of(prompts, options.position) for hook in hooks
    ]
    read = SiteReader(model, prompts, sites, run.memory)
    measured, targets = list[SiteMeasurement](), list[Targets]()
    copies = options.reinitialisations
    n_copies = LEAST_COPIES if copies is None else copies
    costs = {"sites": len(sites), "copies": COPY_COST * len(sites) * n_copies, "heads": HEADS_COST}
    stages = Stages(run.progress, costs)
    stage = [stages.begin("sites")]
    run = replace(run, progress=lambda step: stage[-1](step))

    def judged() -> list[SiteVerdict]:
        verdicts = [
            site_verdict(model, prompts, table, *where, measurement, read)
            for where, measurement in zip(sites, measured, strict=False)
        ]
        return corrected(verdicts, measured)

    def finding(
        verdicts: list[SiteVerdict], heads: list[HeadEffect], notes: list[str]
    ) -> BooleanFinding:
        focus = focus_of(verdicts)
        sentences = findings(verdicts, heads, focus)
        settings = {"table": table, "hooks": hooks, "reinitialisations": copies}
        resolved = options.settings(**settings)
        data = {"source": prompts.source, "rows": len(prompts), "sha256": prompts.digest()}
        return BooleanFinding(
            headline=headline(verdicts[focus], heads),
            findings=sentences[:MOST_FINDINGS],
            evidence=evidence_of(verdicts[focus]),
            provenance=provenance(model, data, resolved, run.seed),
            sites=verdicts,
            heads=heads,
            focus=focus,
            notes=[*notes, *sentences[MOST_FINDINGS:]],
            plots=_plots(run, verdicts, focus, heads, read(*sites[focus])[0], y, prompts),
        )

    def so_far() -> BooleanFinding | None:
        note = f"stopped at site {len(measured) + 1} of {len(sites)}"
        if len(measured) == len(sites):
            note = f"stopped before all {copies} weight-shuffled models and heads were measured"
        return finding(judged(), [], [note]) if measured else None

    with run.partly(so_far):
        _measure(run, prompts, table, sites, read, measured, targets)
        if copies is None:
            copies = LEAST_COPIES if any(of.sampled for of in targets) else MARGIN_COPIES
        verdicts = judged()
        stage.append(stages.begin("copies"))
        again = in_reinitialised(run, sites, read, targets, verdicts, copies)
        verdicts = with_reinitialised(verdicts, again)
        focus = focus_of(verdicts)
        heads, notes = list[HeadEffect](), list[str]()
        stage.append(stages.begin("heads"))
        sampled, scores = targets[focus].sampled, verdicts[focus].held_out
        reads = scores is not None and scores.p_value <= LEVEL
        if verdicts[focus].status == "separable" or reads:
            heads, notes = head_effects(
                run,
                prompts,
                *sites[focus],
                *read(*sites[focus]),
                measured[focus].direction,
                measured[focus].threshold,
                y,
                ask_separability=not sampled,
            )
    return finding(verdicts, heads, notes)


def _measure(
    run: Run[Any],
    prompts: FeatureData,
    table: str,
    sites: Sequence[Where],
    read: SiteReader,
    measured: list[SiteMeasurement],
    targets: list[Targets],
) -> None:
    """Measure every site and add its targets; sites with the same inputs share targets."""
    groups, shared = groups_of(prompts), dict[bytes, Targets]()
    fewer = " (--hook limits them)" if len(sites) > MANY_SITES else ""
    for i, (hook, position) in enumerate(sites):
        at = "" if position is None else f", position {position}"
        run.progress(f"site {i + 1} of {len(sites)}{fewer}: {hook}{at}")
        X, precision = read(hook, position)
        equal = equal_inputs_at(run.model, prompts, position, X)
        if (key := equal.tobytes()) not in shared:
            shared[key] = make_targets(run, table, prompts, equal, groups_with(equal, groups))
        measured.append(
            structured(
                run.store,
                partial(_stage, table, prompts, hook, at),
                partial(measure, run, X, precision, shared[key]),
                *(SiteMeasurement, Separability, Certificate, HeldOutFigures, LabelingNull),
            )
        )
        targets.append(shared[key])


def _plots(
    run: Run[Any],
    sites: Sequence[SiteVerdict],
    focus: int,
    heads: Sequence[Any],
    X: Float[np.ndarray, "n d"],
    y: Bool[np.ndarray, " n"],
    data: FeatureData,
) -> list[Figure]:
    labels = ["".join(str(int(bit)) for bit in row) for row in np.asarray(data.features)]
    plots = [plane(sites[focus], X, y, labels, run.seed)]
    if len(sites) > 1:
        plots.append(across_sites(sites))
    if heads:
        plots.append(head_split(heads, sites[focus]))
    curve = training_curve(record_of(run.model).training or {})
    return [*plots, curve] if curve else plots


def unfit(model: Any, data: FeatureData | None) -> str | None:
    """The reason why the analysis cannot run without further options; None if it can."""
    task = record_of(model).task
    if data is None and (task is None or not {"function", "tokens"} <= task.keys()):
        return "needs --tokens or --data"
    try:
        features = np.asarray((data or truth_table(task or {})).features)
    except InputError as error:
        return str(error)
    return None if features.shape[1] == 2 else "needs two features (--probe boolean --table ...)"


def unfit_for_table(model: Any, data: FeatureData | None) -> str | None:
    """Reason why `boolean` does not run by default; None for a task of three features or more."""
    task = record_of(model).task or {}
    if (
        data is None
        and {"function", "tokens"} <= task.keys()
        and len(task["function"]) > 4
        and (set(task["function"]) <= {"0", "1"})
    ):
        return None
    return "needs --table"


def _named(name: str) -> Analysis:
    def analyze_named(run: Run[FunctionOptions]) -> BooleanFinding:
        return find_function(run, TABLES[name])

    summary = (
        f"whether {name.upper()} of two features is linearly readable, where, and which heads "
        "carry it"
    )
    return analysis(
        name,
        summary,
        FunctionOptions,
        analyze_named,
        unfit,
        source=SOURCE,
        reads_stream=True,
    )


XOR = _named("xor")
AND = _named("and")
OR = _named("or")
BOOLEAN = analysis(
    "boolean",
    "whether the function of a truth table (--table 0110, first feature most significant) is "
    "linearly readable",
    BooleanOptions,
    analyze,
    unfit_for_table,
    source=SOURCE,
    reads_stream=True,
)
