"""Direct logit attribution: direct effects of heads and MLPs on the answer's logit.

The residual stream at the answer position is a sum over embeddings, heads, attention biases and
MLPs (a layer without attention heads is one summand). With the scale of the final norm, and of
norms behind the sum over heads, fixed to that of the forward pass, the logit before a soft cap is a
sum over these and the biases of norm and unembedding. The metric is the logit difference, answer −
wrong, or the answer's logit if there are no wrong answers: an output w reads d · w on the direction
d of its prompt's answer. Only the part of this effect that varies with the answer is
specific to it, the covariance over prompts

    mean(w_i · d_i) − mean(w) · mean(d) = mean((w_i − mean w) · (d_i − mean d)),

with the norm's scale the same in all prompts, and means taken separately for each of a prompt's
answers. It is 0 for an output that is the same in all prompts, however frequent one answer is. The
null deals the prompts' answers out again: w_i reads d_j for a random permutation of all prompts
(two-sided, largest statistic of all heads and MLPs). The logit lens applies the final norm
and the unembedding to the residual stream at each depth, with the norm's scale at that depth.

Sources: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"; Wang et al. 2023,
"Interpretability in the Wild", 3.1; nostalgebraist 2020, "interpreting GPT: the logit lens".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from interp_toolkit import plots
from interp_toolkit.circuits.metrics.prompts import (
    on_prompts,
    prompts_from_data,
    repeated_answers,
    unseen_note,
)
from interp_toolkit.circuits.roles import analysis as roles
from interp_toolkit.circuits.roles.permuted import orders, permutation_p_values, smallest_p
from interp_toolkit.circuits.roles.reading import Queries, queries_of, readout
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.evidence import (
    Control,
    any_of,
    control_of_excess,
    control_of_p,
    effect_status,
    untested,
)
from interp_toolkit.finding import Finding, Run, analysis, column, records
from interp_toolkit.formatting import counted, fixed, listed, p_cell, with_ci
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.streaming import activations
from interp_toolkit.models.weights import contributions
from interp_toolkit.models.weights.contributions import ResidualPart
from interp_toolkit.models.weights.view import weights
from interp_toolkit.options import Options
from interp_toolkit.results import Evidence, Figure, Status
from interp_toolkit.stats import LEVEL, UNSEEN, Estimate, estimate


class LogitAttributionOptions(Options):
    """Options of `--probe logit-attribution`."""

    least: float = Field(0.05, gt=0, le=1, description="Fraction of the metric that counts.")


@dataclass(frozen=True)
class Component:
    """Direct effect of one component, with its 95 % CI; only heads and MLPs are tested.

    `specific` is the part that varies with the answer (see the module). `q_value` is the p-value
    against permuted answers, adjusted for all heads and MLPs; it is NaN, and `status` None, for
    other components.
    """

    name: str = column("component")
    kind: str = column()
    layer: int | None = column()
    head: int | None = column()
    effect: float = column("effect", unit="logits")
    low: float = column("low")
    high: float = column("high")
    fraction: float = column("fraction of total")
    null_mean: float = column("on permuted answers")
    specific: float = column("specific to the answer", unit="logits")
    specific_low: float = column("specific, low")
    specific_high: float = column("specific, high")
    q_value: float = column("p, adjusted", format=p_cell)
    status: Status | None = column("status")


EMBEDDING = "embedding"  # name of the residual stream before the first layer


@dataclass(frozen=True)
class LensStep:
    """Logit lens at one site: the metric read from the residual stream."""

    site: str = column("site")
    value: float = column("metric", unit="logits")
    low: float = column("low")
    high: float = column("high")
    half: str = column("half")


@dataclass(frozen=True)
class PromptAttribution:
    """Direct effects on one prompt's metric, in logits; `heads`, `mlps` and `others` sum to it."""

    prompt: int = column("prompt")
    metric: float = column("metric", unit="logits")
    heads: float = column("all heads")
    mlps: float = column("all MLPs and mixers")
    others: float = column("embedding and biases")
    largest: str = column("largest component")
    largest_effect: float = column("its effect")


@dataclass(frozen=True)
class LogitAttributionEvidence(Evidence):
    """Evidence: the metric, the error of the components' sum, and the effect-size threshold."""

    metric: str = column("metric")
    total: float = column("mean of the metric", unit="logits")
    total_low: float = column("mean, 95 % CI from")
    total_high: float = column("mean, 95 % CI to")
    rows: int = column("prompts")
    sum_error: float = column("components' sum differs by at most")
    least_effect: float = column("effect-size threshold", unit="logits")
    task: str = column("task")


@dataclass(frozen=True, kw_only=True)
class LogitAttributionFinding(Finding):
    """Direct effects of every component, by absolute size, largest first, and the logit lens."""

    evidence: LogitAttributionEvidence
    components: Sequence[Component] = records(
        Component,
        "Direct effects",
        "Mean effect over prompts, with its 95 % CI.",
        lambda c: c.status == "detected",
    )
    lens: Sequence[LensStep] = records(
        LensStep,
        "Logit lens",
        "Mean metric read at each depth, with its 95 % CI. Half: whether it is shown to be at "
        "least, or less than, half of the final metric on the same prompts.",
    )
    prompts: Sequence[PromptAttribution] = records(
        PromptAttribution,
        "Direct effects by prompt",
        "Sums over components, and the one with the largest effect; prompts without duplicates.",
        least=1,
        select=lambda prompts: [],  # only in JSON, and as a frame: one row for each prompt
    )


class Attribution(NamedTuple):
    """Direct effects of each component, in logits.

    Attributes:
        effects: by component, its effects on the metric of each query, and the same less what is
            specific to the query's answer (see the module).
        lens: the metric read at each site of the residual stream.
        permuted: by head and MLP, the mean effect on permuted answers; the first order is the own.
        smallest_p: the smallest p-value that permuted answers can give.
    """

    effects: dict[ResidualPart, Float[np.ndarray, "2 query"]]
    lens: Float[np.ndarray, "site query"]
    permuted: dict[ResidualPart, Float[np.ndarray, " order"]]
    smallest_p: float


@torch.no_grad()
def attribute(
    model: Model, queries: Queries, memory: int | str | None = None, seed: int = 0
) -> Attribution:
    """Direct effects of each component on the metric, what is specific in them, the logit lens."""
    view, slots = weights(model), queries.slots
    metric = (queries.at_hand == queries.answer[:, None]).astype(float)
    metric -= 0 if queries.wrong is None else queries.at_hand == queries.wrong[:, None]
    kinds, asked = np.unique(metric, axis=0, return_inverse=True)
    U, b = (part.double() for part in readout(view, queries.at_hand))
    directions, biases = torch.from_numpy(kinds) @ U.mT, metric @ b.numpy()
    of_slot = directions[asked].reshape(-1, slots, directions.shape[1])
    apart = of_slot - of_slot.mean(0)
    asked_rows = asked.reshape(-1, slots)
    others = orders(asked_rows, seed)
    parts_of = contributions.ResidualParts(model, view)
    streams = parts_of.streams
    data = FeatureData(
        queries.tokens, np.zeros((len(queries), 0), bool), (), positions=queries.position
    )
    effects, lens = dict[ResidualPart, np.ndarray](), np.empty((len(streams), len(queries)))
    sums, permuted = dict[ResidualPart, Tensor](), dict[ResidualPart, np.ndarray]()
    scale = np.empty(len(queries))
    for batch in activations(model, data, parts_of.hooks, memory=memory):
        rows = batch.index.numpy()
        tokens = queries.tokens[rows, queries.position[rows]]
        towards = directions[asked[rows]]
        scales = [view.final_norm.scale(batch[hook].double()).cpu() for hook in streams]
        scale[rows] = scales[-1].numpy()
        for part, output in parts_of.of(batch, torch.from_numpy(tokens)):
            written = output.cpu().double()
            held = effects.setdefault(part, np.empty((2, len(queries))))
            held[0, rows] = ((written * towards).sum(-1) / scales[-1]).numpy()
            held[1, rows] = (written * apart.flatten(0, 1)[rows]).sum(-1).numpy()
            held_sums = sums.setdefault(part, torch.zeros(slots, written.shape[-1]).double())
            held_sums.index_add_(0, torch.from_numpy(rows % slots), written)
            if part.kind in ("head", "mixer", "mlp"):
                reads = (written @ directions.mT).numpy()
                by_order = reads[np.arange(len(rows))[:, None], others[rows]].sum(0)
                permuted[part] = permuted.get(part, 0) + by_order / len(queries)
        for site, hook in enumerate(streams):
            read = (batch[hook].cpu().double() * towards).sum(-1) / scales[site]
            lens[site, rows] = read.numpy() + biases[rows]
    for part, (own, alone) in effects.items():
        mean = sums[part] / (len(queries) // slots)
        alone -= (apart * mean).sum(-1).flatten().numpy()
        alone[:] = own - alone * (1 / scale).mean()
    bias = np.stack([biases, biases])
    effects |= {ResidualPart("final biases", "bias"): bias}
    return Attribution(effects, lens, permuted, smallest_p(asked_rows))


def _controls(
    specific: Estimate, raises: bool, p_value: float, smallest: float, least: float
) -> list[Control]:
    """Whether an effect is specific to the answer: against permuted answers, and by its size."""
    low = specific.low if raises else -specific.high
    name, same_sign = "permuted answers", (specific.mean > 0) == raises
    permuted = control_of_p(name, p_value if same_sign else 1.0, LEVEL, smallest)
    reason = f"the part specific to the answer is not shown to reach {least:.2g}"
    size = control_of_excess(name, low, math.inf, reason, least=least)
    return [permuted, *([size] if permuted.outcome == "passed" else [])]


def analyze(run: Run[LogitAttributionOptions]) -> LogitAttributionFinding:
    """Attribute the metric to components; test heads and MLPs against permuted answers."""
    data = run.data or repeated_answers(run.model, seed=run.seed)
    run.progress("direct effects of heads and MLPs")
    _, prompts, performed = roles.task_prompts(run, data)
    queries = queries_of(prompts)
    effects, lens, permuted, smallest = attribute(run.model, queries, run.memory, run.seed)
    own, null = np.stack([queries.by_row(effect) for effect in effects.values()], axis=1)
    total, alone = estimate(own.sum(0), unseen=UNSEEN), float((own - null).sum(0).mean())
    least = run.options.least * abs(float(total.mean) if queries.wrong is not None else alone)
    p_values = permutation_p_values(np.stack(list(permuted.values())))
    q_values = dict(zip(permuted, p_values.tolist(), strict=True))
    components = []
    for part, values, other in zip(effects, own, null, strict=True):
        e, specific = (estimate(each, unseen=UNSEEN) for each in (values, values - other))
        q, outcome = q_values.get(part, float("nan")), None
        if part in permuted:  # negative effects are tested with reversed sign
            low, high = (e.low, e.high) if e.mean >= 0 else (-e.high, -e.low)
            controls = _controls(specific, e.mean >= 0, q, smallest, run.options.least * abs(alone))
            outcome, _ = (
                effect_status(low, high, least, controls)
                if performed.yes
                else untested(performed.summary)
            )
        numbers = e.mean, e.low, e.high, e.mean / (total.mean or np.nan), float(other.mean())
        ends = specific.mean, specific.low, specific.high
        components.append(Component(*part, *numbers, *ends, q, outcome))
    components.sort(key=lambda component: -abs(component.effect))
    status = any_of([c.status for c in components if c.status is not None])
    metric = "answer logit" if queries.wrong is None else "logit difference"
    error = float(np.abs(sum(effect[0] for effect in effects.values()) - lens[-1]).max())
    ground = (metric, total.mean, total.low, total.high, total.n, error, least, performed.summary)
    evidence = LogitAttributionEvidence(status, *ground, reason=REASONS[status])
    names = [EMBEDDING, *(f"layer {n}" for n in range(len(lens) - 1))]
    steps = []
    for name, values in zip(names, queries.by_row(lens), strict=True):
        read = estimate(values, unseen=UNSEEN)
        above = estimate(values - own.sum(0) / 2, unseen=UNSEEN)  # half of the final metric
        half = HALF[int(above.low > 0) - int(above.high < 0)]
        steps.append(LensStep(name, read.mean, read.low, read.high, half))
    return LogitAttributionFinding(
        headline=headline(components, evidence),
        findings=on_prompts(
            sentences(components, steps, evidence),
            data.source,
            total.n,
            synthetic=run.data is None,
        ),
        evidence=evidence,
        provenance=run.provenance(data, distinct=len(prompts)),
        components=components,
        lens=steps,
        prompts=by_prompt(list(effects), own),
        notes=[
            "Direct effects only: nothing is ablated, and effects through later layers are not "
            "included.",
            unseen_note(total.n),
        ],
        plots=[effects_figure(components), lens_figure(steps)],
    )


def by_prompt(
    parts: Sequence[ResidualPart], effects: Float[np.ndarray, "part row"]
) -> list[PromptAttribution]:
    """The effects of each prompt, summed by kind."""
    kinds = np.array([part.kind for part in parts])
    heads, mlps = kinds == "head", np.isin(kinds, ("mlp", "mixer"))
    tested = np.flatnonzero(heads | mlps)
    rows = []
    for number, values in enumerate(effects.T):
        first = tested[np.abs(values[tested]).argmax()] if len(tested) else None
        rows.append(
            PromptAttribution(
                number,
                float(values.sum()),
                float(values[heads].sum()),
                float(values[mlps].sum()),
                float(values[~(heads | mlps)].sum()),
                "" if first is None else parts[first].name,
                math.nan if first is None else float(values[first]),
            )
        )
    return rows


REASONS: dict[Status, str | None] = {  # the status is the first that a head or MLP has
    "detected": None,
    "undecided": "whether any head or MLP writes it is undecided",
    "uninformative": "heads and MLPs write as much for permuted answers",
    "not_tested": "the model has not been shown to perform the task",
    "not_detected": "no single head or MLP writes enough to count",
}


def headline(components: Sequence[Component], e: LogitAttributionEvidence) -> str:
    """Headline: heads and MLPs that raise the metric, and those that lower it."""
    detected = [component for component in components if component.status == "detected"]
    names = [c.name if c.effect > 0 else f"{c.name} (against it)" for c in detected]
    if e.status == "not_tested":
        return f"Direct effects on the {e.metric} are measured, not judged: {e.reason}."
    if not names:
        return f"No direct effect on the {e.metric} is shown: {e.reason}."
    return f"Direct effects on the {e.metric}: {listed(names, 4)}."


def sentences(
    components: Sequence[Component], lens: Sequence[LensStep], e: LogitAttributionEvidence
) -> list[str]:
    """Findings: the metric, the two largest heads or MLPs, the logit lens, and the task."""
    tested = [component for component in components if component.status]
    words = {"head": "head", "mixer": "mixer", "mlp": "MLP"}
    numbers = [(sum(c.kind == kind for c in tested), word) for kind, word in words.items()]
    parts = listed([counted(n, word) for n, word in numbers if n or word == "head"], 3)
    first = sorted(tested, key=lambda c: c.status != "detected")[:2]
    order = f"The {len(first)} largest contributions of {parts}"
    if any(component.status == "detected" for component in tested):
        order = f"Largest contributions of {parts}, detected ones first"
    if len(tested) == 1:
        order = f"Contribution of the only {words[tested[0].kind]}"
    return [
        f"The mean {e.metric} is {with_ci(e.total, e.total_low, e.total_high)}, n = {e.rows}.",
        f"{order}: "
        + "; ".join(
            f"{c.name} {with_ci(c.effect, c.low, c.high)}, {fixed(c.null_mean)} on permuted answers"
            for c in first
        )
        + f" (n = {e.rows}).",
        *_half(lens, e),
        f"Task: {e.task.rstrip('.')}.",
    ]


HALF = {1: "at least", 0: "not shown", -1: "less"}


def _half(lens: Sequence[LensStep], e: LogitAttributionEvidence) -> list[str]:
    """Between which depths the lens comes to read half of a metric above 0."""
    if e.total_low <= 0:
        return []
    reached = max([n for n, step in enumerate(lens) if step.half != HALF[1]], default=-1) + 1
    short = next((n for n, step in enumerate(lens) if step.half != HALF[-1]), len(lens)) - 1
    last = f"at least half {_where(lens[reached])}" if reached < len(lens) else ""
    first = f"less than half of it {_where(lens[short])}" if short >= 0 else ""
    parts = [part for part in (first, last) if part]
    return [f"The logit lens of the {e.metric} reads {' and '.join(parts)}."] if parts else []


def _where(step: LensStep) -> str:
    return "at the embedding" if step.site == EMBEDDING else f"after {step.site}"


def effects_figure(components: Sequence[Component]) -> Figure:
    """Plot direct effects of heads and MLPs by layer as a heatmap."""
    names = {"mlp": "MLP", "mixer": "mixer"}
    of = {(c.layer, names.get(c.kind, str(c.head))): c for c in components if c.status}
    xs = sorted({name for _, name in of}, key=lambda name: (not name.isdigit(), len(name), name))
    ys = list(range(1 + max(component.layer or 0 for component in components)))
    cells = [[of[y, x].effect if (y, x) in of else np.nan for x in xs] for y in ys]
    z = plots.rounded(cells)
    axes = plots.axis("head", "category") | plots.BARE, plots.axis("layer") | plots.whole(len(ys))
    caption = "Mean direct effect on the metric: blue writes for the answer, orange against it."
    tiles = plots.signed_heatmap(xs, ys, z, "logits")
    shown = [component.name for component in of.values()]
    return Figure("Direct effects", caption, [tiles], plots.layout(*axes), shown)


def lens_figure(lens: Sequence[LensStep]) -> Figure:
    """Plot the logit lens by depth with its CI."""
    sites, values = [step.site for step in lens], [step.value for step in lens]
    ends = [step.low for step in lens], [step.high for step in lens]
    axes = plots.axis("residual stream after", "category"), plots.axis("metric (logits)")
    caption = (
        "Logit lens: the final norm and unembedding applied to the residual stream at each depth."
    )
    traces = plots.with_band(sites, values, *ends, plots.CLASS_COLORS[0], "metric")
    return Figure("Logit lens", caption, traces, plots.layout(*axes))


def unfit(model: Model, data: FeatureData | None) -> str | None:
    """Reason why the analysis cannot run on this model and data; None if it can."""
    try:
        data = data or repeated_answers(model)
        if data.answers is None:
            return "needs rows with answers (--data)"
        queries_of(prompts_from_data(data, model))
        view = weights(model)
        readout(view, np.zeros(1, dtype=int))
        contributions.ResidualParts(model, view)
    except InputError as error:
        return str(error)
    return None


LOGIT_ATTRIBUTION = analysis(
    "logit-attribution",
    "which heads and MLPs raise the answer's logit directly, with the logit lens",
    LogitAttributionOptions,
    analyze,
    unfit,
    reads_stream=True,
    reads_answers=True,
)
