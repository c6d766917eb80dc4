"""Rank collapse: whether the hidden states of different tokens become more similar with depth.

At initialization, deep transformers tend to map all tokens to one direction ("rank collapse", Dong
et al. 2021, "Attention is not all you need"; Noci et al. 2022). Table 6 of "Is random attention
sufficient for sequence modeling?" compares a random transformer with one of shaped mixing in this
way. `circuits.similarity` measures mean cosines between the hidden states of different tokens of a
prompt, and the dimensions in use, from the embedding to the final norm.

The mean cosine after the last block is compared with that at the embedding, paired over prompts.
The rise is compared with that of weight-shuffled copies of the model: only a larger rise is
*detected* (`evidence`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from pydantic import Field

from interp_toolkit import plots
from interp_toolkit.circuits.metrics.prompts import SHORTEST
from interp_toolkit.circuits.similarity import (
    Similarity,
    random_rows,
    similarity_by_depth,
    sites_of,
)
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError, InterventionError
from interp_toolkit.evidence import LEAST_COPIES, control_of_copies, effect_status
from interp_toolkit.finding import Finding, Run, analysis, column, records
from interp_toolkit.formatting import fixed, with_ci
from interp_toolkit.models.features.samples import equal_inputs
from interp_toolkit.models.running.interventions import reinitialised
from interp_toolkit.options import Options
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL, translucent
from interp_toolkit.results import Evidence, Figure
from interp_toolkit.stats import UNSEEN, Estimate, estimate

RISE = 0.1  # smallest rise of the mean cosine that counts as collapse
RANDOM_PROMPTS = 128  # prompts of random tokens
COMPARED = 32  # most prompts on which copies with shuffled weights are run


class CollapseOptions(Options):
    """Options of `--probe collapse`."""

    reinitialisations: int = Field(
        LEAST_COPIES, ge=0, description="Copies with shuffled weights to compare with."
    )


def nanmean(values: Sequence[float | None] | np.ndarray) -> float | None:
    """Mean without NaN and None; None if nothing is left."""
    numbers = without_missing(np.array(values, dtype=float))
    return float(numbers.mean()) if len(numbers) else None


def without_missing(values: Float[np.ndarray, " value"]) -> Float[np.ndarray, " number"]:
    """Values that are not NaN."""
    numbers: np.ndarray = values[~np.isnan(values)]
    return numbers


@dataclass(frozen=True)
class LayerSimilarity:
    """One site of the residual stream, compared with the same site in the shuffled copies.

    Attributes:
        site_name: "embedding", "block 0", ..., "final norm".
        low, high: 95 % CI of `cosine` over prompts.
        reinitialised_cosine: mean cosine of each copy; the other `reinitialised_*` are means over
            copies.
    """

    site_name: str = column("site")
    hook: str = column()
    cosine: float | None = column("cosine")
    low: float | None = column("low")
    high: float | None = column("high")
    reinitialised_cosine: Sequence[float | None] = column("cosine, shuffled", format=nanmean)
    dimensions: float | None = column("dimensions")
    reinitialised_dimensions: float | None = column("dimensions, shuffled")
    centred_dimensions: float | None = column("centered dimensions")
    reinitialised_centred_dimensions: float | None = column("centered dimensions, shuffled")


@dataclass(frozen=True)
class CollapseEvidence(Evidence):
    """Rise of the mean cosine from the embedding to the last block, paired over prompts."""

    rise: float = column("rise in mean cosine")
    rise_low: float = column("rise, 95 % CI from")
    rise_high: float = column("rise, 95 % CI to")
    rows: int = column("prompts")
    least_rise: float = column("effect-size threshold")
    copies: str = column("null")
    rises_of_copies: Sequence[float] = column("rise in copies")


CAPTION = (
    "Cosine: mean over the pairs of positions of a prompt that hold different tokens, then over "
    "prompts, with its 95 % CI. Dimensions: participation ratio of the directions' second moments "
    "or, centered, of their covariance. Shuffled: mean over copies with every weight tensor's "
    "entries in random order."
)


@dataclass(frozen=True, kw_only=True)
class CollapseFinding(Finding):
    """Similarity of different tokens' hidden states, by depth.

    Attributes:
        layers: similarity at every site, from the embedding on.
        rise: rise of the mean cosine from the embedding to the last block, with its 95 % CI:
            "mean", "low" and "high".
        independent_spread: standard deviation 1/√d_model of a cosine between independent
            directions.
    """

    evidence: CollapseEvidence
    layers: Sequence[LayerSimilarity] = records(LayerSimilarity, "By depth", CAPTION)
    rise: dict[str, float]
    independent_spread: float


def rise_of(first: Float[np.ndarray, " row"], last: Float[np.ndarray, " row"]) -> Estimate:
    """The mean rise of a cosine over prompts with its interval.

    Args:
        first: the cosine of each prompt at the embedding; prompts that were not drawn are assumed
            to lie within the range of those that were.
        last: the same after the last block.
    """
    bounds = -1 - float(first.max()), 1 - float(first.min())
    return estimate(last - first, unseen=UNSEEN, bounds=bounds)


def analyze(run: Run[CollapseOptions]) -> CollapseFinding:
    """Compare the last block with the embedding, and the rise with that of shuffled copies.

    Raises:
        InputError: the model has no blocks, fewer than two prompts have two different tokens, or
            hidden states are not finite.
    """
    model, notes = run.model, []
    data = random_rows(model, rows=RANDOM_PROMPTS, seed=run.seed) if run.data is None else run.data
    first = np.unique(equal_inputs(data.tokens), return_index=True)[1]
    if len(first) < len(data):
        notes.append(f"{len(data) - len(first)} prompts repeat others and are not counted again")
    prompts = data.at(first) if len(first) < len(data) else data
    own = similarity_by_depth(model, prompts, memory=run.memory, progress=run.progress)
    defined = ~np.isnan(own.rises)
    rise = rise_of(own.cosines[0][defined], own.cosines[own.last][defined])
    compared = prompts
    if len(prompts) > COMPARED:  # their mean is enough
        sampled = np.random.default_rng([run.seed, 1]).permutation(len(prompts))[:COMPARED]
        compared = prompts.at(np.sort(sampled))
    copies, n_copies = [], run.options.reinitialisations
    for copy in range(n_copies):
        run.progress(f"shuffled copy {copy + 1} of {n_copies}")
        try:
            with reinitialised(model, seed=run.seed + copy):
                similarity = similarity_by_depth(model, compared, memory=run.memory)
        except (InputError, InterventionError):
            continue
        if len(without_missing(similarity.rises)):
            copies.append(similarity)
    if len(copies) < n_copies:
        notes.append(f"{n_copies - len(copies)} copies gave no usable hidden states")
    rises = [float(without_missing(copy.rises).mean()) for copy in copies]
    largest = 1 - float(without_missing(own.cosines[0]).mean())
    control = control_of_copies(
        "models with shuffled weights", rise.mean, rise.low, np.array(rises), largest
    )
    status, reason = effect_status(rise.low, rise.high, RISE, [control], effect="rise")
    shuffled = "every weight tensor's entries in random order"
    of_rise = (rise.mean, rise.low, rise.high, rise.n, RISE, shuffled, rises)
    evidence = CollapseEvidence(status, *of_rise, reason=reason)
    layers = [layer_similarity(own, copies, site) for site in range(len(own.sites))]
    spread = 1 / math.sqrt(int(model.cfg.d_model))
    return CollapseFinding(
        headline=HEADLINES.get(status, HEADLINES["undecided"]),
        findings=sentences(evidence, rise, layers[0], layers[own.last], spread),
        evidence=evidence,
        provenance=run.provenance(data, positions=own.positions, pairs=own.pairs),
        layers=layers,
        rise={"mean": rise.mean, "low": rise.low, "high": rise.high},
        independent_spread=spread,
        notes=notes,
        plots=[cosine_figure(layers, spread), dimension_figure(layers)],
    )


STATES = "Hidden states of different tokens"
HEADLINES = {
    "detected": f"{STATES} become more alike with depth, more than with shuffled weights.",
    "uninformative": f"{STATES} become more alike with depth, but not significantly more than with "
    "shuffled weights.",
    "not_detected": f"{STATES} hardly become more alike with depth: the mean cosine rises by less "
    f"than {RISE:g}.",
    "undecided": f"{STATES} may or may not become more alike with depth.",
}


def sentences(
    evidence: CollapseEvidence,
    rise: Estimate,
    first: LayerSimilarity,
    last: LayerSimilarity,
    spread: float,
) -> list[str]:
    """Findings: the rise, the rise in copies, the values at both ends, and dimensions."""
    rises = evidence.rises_of_copies
    beside = "No copies with shuffled weights were compared."
    if rises:
        low, high = fixed(min(rises)), fixed(max(rises))
        spanned = low if low == high else f"{low} to {high}"
        copies = f"{len(rises)} copies" if len(rises) > 1 else "1 copy"
        beside = f"With shuffled weights the rise is {spanned} ({copies})."
    verb = "changes" if rise.mean < 0 else "rises"
    parts = [
        f"The mean cosine {verb} by {with_ci(rise.mean, rise.low, rise.high)} from the "
        f"embedding to the last block, n = {rise.n} prompts (threshold: {RISE:g}).",
        beside,
        f"The mean cosine is {_interval(last)} after the last block and {_interval(first)} at the "
        f"embedding; for independent random directions its expectation is 0, and single cosines "
        f"have a standard deviation of {spread:.2f}.",
    ]
    if first.dimensions is not None and last.dimensions is not None:
        parts.append(
            f"The directions of the hidden states occupy {first.dimensions:.1f} dimensions at the "
            f"embedding and {last.dimensions:.1f} after the last block (participation ratio of "
            "their second moments)."
        )
    if evidence.status == "undecided":
        parts.insert(0, f"Undecided: {evidence.reason}.")
    return parts


def _interval(layer: LayerSimilarity) -> str:
    # a rise needs two prompts with both ends
    assert layer.cosine is not None
    assert layer.low is not None
    assert layer.high is not None
    return with_ci(layer.cosine, layer.low, layer.high)


def layer_similarity(own: Similarity, copies: Sequence[Similarity], site: int) -> LayerSimilarity:
    """Similarity at one site of the model, with that of the same site in each copy."""
    values = without_missing(own.cosines[site])
    cosine = estimate(values, unseen=UNSEEN, bounds=(-1.0, 1.0)) if len(values) > 1 else None
    return LayerSimilarity(
        site_name=own.sites[site].name,
        hook=own.sites[site].hook,
        cosine=None if cosine is None else cosine.mean,
        low=None if cosine is None else cosine.low,
        high=None if cosine is None else cosine.high,
        reinitialised_cosine=[nanmean(copy.cosines[site]) for copy in copies],
        dimensions=nanmean([own.dimensions[site]]),
        centred_dimensions=nanmean([own.centred_dimensions[site]]),
        reinitialised_dimensions=nanmean([c.dimensions[site] for c in copies]),
        reinitialised_centred_dimensions=nanmean([c.centred_dimensions[site] for c in copies]),
    )


def cosine_figure(layers: Sequence[LayerSimilarity], spread: float) -> Figure:
    """Plot the mean cosine by depth for the model and the copies, with a band for independence."""
    names, measured = [x.site_name for x in layers], [x for x in layers if x.low is not None]
    ends = [x.low for x in measured], [x.high for x in measured]
    band = plots.band([x.site_name for x in measured], *ends, translucent(CLASS_COLORS[0], 0.25))
    data = [band | {"name": "95 % CI"}]
    data.append(_line("the model", names, [x.cosine for x in layers], CLASS_COLORS[0], "solid"))
    for copy, values in enumerate(zip(*(x.reinitialised_cosine for x in layers), strict=True)):
        line = _line("weights shuffled", names, values, CLASS_COLORS[1], "dash")
        data.append(line | plots.grouped("shuffled", listed=copy == 0))
    for end in (-spread, spread):
        line = _line("independent: one cosine", names, [end] * len(names), NEUTRAL, "dot")
        line |= {"mode": "lines"} | plots.NO_HOVER
        data.append(line | plots.grouped("independent", listed=end > 0))
    axes = plots.axis("site", "category"), plots.axis("mean cosine of different tokens")
    caption = (
        "Mean cosine between the hidden states of different tokens of a prompt; 1: all have the "
        "same direction. Dotted: one standard deviation of a single cosine of independent "
        "directions; a mean over many pairs is far closer to 0."
    )
    return Figure("Similarity of hidden states", caption, data, plots.layout(*axes))


def dimension_figure(layers: Sequence[LayerSimilarity]) -> Figure:
    """Plot participation ratios by depth."""
    lines = [
        ("second moments", "dimensions", 0, "solid"),
        ("covariance", "centred_dimensions", 1, "solid"),
        ("second moments, weights shuffled", "reinitialised_dimensions", 0, "dash"),
        ("covariance, weights shuffled", "reinitialised_centred_dimensions", 1, "dash"),
    ]
    names = [layer.site_name for layer in layers]
    data = [
        _line(name, names, [getattr(layer, field) for layer in layers], CLASS_COLORS[color], dash)
        for name, field, color, dash in lines
        if any(getattr(layer, field) is not None for layer in layers)
    ]
    axes = plots.axis("site", "category"), plots.axis("dimensions in use", "log")
    caption = (
        "Participation ratio of the hidden states' directions: the number of equally used "
        "dimensions with the same ratio. The covariance leaves out the mean direction."
    )
    return Figure("Dimensions in use", caption, data, plots.layout(*axes))


def _line(
    name: str, x: Sequence[str], y: Sequence[float | None], color: str, dash: str
) -> plots.Part:
    return plots.line(x, y, color, name, dash=dash) | plots.marked(size=6)


def unfit(model: Any, data: FeatureData | None) -> str | None:
    """Reason why the analysis cannot run on this model and data; None if it can."""
    try:
        sites_of(model)
        if data is None:
            random_rows(model, rows=1)
    except InputError as error:
        return str(error)
    longest = int(model.cfg.n_ctx) if data is None else int(np.median(data.lengths))
    if longest < SHORTEST:
        return f"needs prompts of {SHORTEST} tokens or more"
    if data is not None and sum(len(np.unique(row)) > 1 for row in data.tokens) < 2:
        return "needs two prompts that each have different tokens"
    return None


COLLAPSE = analysis(
    "collapse",
    "whether residual streams of different tokens become similar with depth, and how many "
    "dimensions they use",
    CollapseOptions,
    analyze,
    unfit,
    reads_stream=True,
)
