"""Activation patching maps: `--probe patching`.

The clean activation of one site is put into the pass on the corrupted prompt (or the reverse), and
the effect is what this restores (or removes) of the metric. The maps are layer × position for the
residual stream, attention outputs and MLP outputs, and layer × head.

A head, attention output or MLP output is *detected* if the interval of its effect lies above 5 % of
the difference between clean and corrupted metric, the effect is significant by sign flips over
prompts (largest statistic of all these sites), and it exceeds the effect of another prompt's
activation of the *same* kind: replacing an activation may restore a metric by removing what is
there. The residual stream is described only: all that is passed on goes through it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Float
from pydantic import Field, field_validator

from interp_toolkit import plots
from interp_toolkit.circuits.metrics.metrics import AnswerMetric
from interp_toolkit.circuits.metrics.prompts import (
    Prompts,
    copies_note,
    on_prompts,
    prompts_from_data,
    repeated_prompts,
    unseen_note,
)
from interp_toolkit.circuits.metrics.task import TaskCheck, metric_for
from interp_toolkit.circuits.metrics.task_check import LARGE_ROWS, is_large
from interp_toolkit.circuits.patching.passes import (
    HOOKS,
    Kind,
    Patched,
    PatchSite,
    every_site,
    patch,
    patchable_hooks,
)
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.evidence import (
    Control,
    Verdict,
    any_of,
    control_of_excess,
    control_of_p,
    effect_status,
    untested,
)
from interp_toolkit.finding import Finding, Run, analysis, column, records
from interp_toolkit.formatting import listed, p_cell, percent, percent_ci, with_ci
from interp_toolkit.models.about.info import token_words
from interp_toolkit.models.model import Model
from interp_toolkit.options import Flag, Names, Options
from interp_toolkit.results import Evidence, Figure, Status, head_name
from interp_toolkit.stats import (
    LEVEL,
    Estimate,
    Share,
    estimate,
    ratio_estimate,
    sign_flip_p_values,
)

ROWS = 32  # synthetic prompts
LENGTH = 24  # their positions, at most
MOST_ROWS = {"quick": 16, "standard": 64, "thorough": 10**9}  # prompts that are run
SHOWN = 40  # sites in the table
DESCRIBED: Kind = "residual"  # not tested; see the module
TITLES: dict[Kind, str] = {
    "residual": "Residual stream before the layer",
    "attention": "Attention output",
    "mlp": "MLP output",
    "head": "Head output, at all positions",
}


class PatchingOptions(Options):
    """Options of `--probe patching`."""

    least: float = Field(
        0.05, gt=0, le=1, description="Fraction of the clean-corrupted difference that counts."
    )
    into: Literal["corrupted", "clean"] = Field(
        "corrupted",
        description="Prompts whose pass is patched: corrupted (what clean activations restore) or "
        "clean (what corrupted activations remove).",
    )
    kinds: Annotated[Names | None, Flag("--kind", metavar="NAME")] = Field(
        None,
        description="Kinds of sites to patch: head, attention, mlp, residual; default: all. Heads "
        "alone are quick, and tell which heads the answer depends on.",
    )

    @field_validator("kinds")
    @classmethod
    def _check_kinds(cls, kinds: tuple[str, ...] | None) -> tuple[str, ...] | None:
        unknown = [kind for kind in kinds or () if kind not in HOOKS]
        if unknown or kinds == ():
            raise ValueError(f"kinds are {', '.join(HOOKS)}; got {', '.join(unknown) or 'none'}")
        return kinds


@dataclass(frozen=True)
class PatchedSite:
    """Effect of one patched site, mean over prompts with its 95 % CI.

    `effect` is what the activation restores (or removes) of the metric, and `fraction` the same
    divided by the difference between the clean and the corrupted metric; NaN where this may be 0.
    `others` is the effect of another prompt's activation of the patched kind; NaN where it was not
    measured. `q_value` is adjusted for all tested sites.
    """

    name: str = column("site")
    kind: str = column()
    layer: int = column("layer")
    position: int | None = column("position")
    head: int | None = column()
    effect: float = column("effect")
    low: float = column("low")
    high: float = column("high")
    fraction: float = column("fraction of the difference")
    fraction_low: float = column()
    fraction_high: float = column()
    others: float = column("another prompt's activation")
    q_value: float = column("p, adjusted", format=p_cell)
    status: Status | None = column("status")


@dataclass(frozen=True)
class PatchingEvidence(Evidence):
    """Evidence: the metric on clean and corrupted prompts, and the effect-size threshold."""

    metric: str = column("metric")
    unit: str = column("unit")
    rows: int = column("prompts")
    clean: float = column("clean metric")
    clean_low: float = column("clean, 95 % CI from")
    clean_high: float = column("clean, 95 % CI to")
    corrupted: float = column("corrupted metric")
    corrupted_low: float = column("corrupted, 95 % CI from")
    corrupted_high: float = column("corrupted, 95 % CI to")
    difference: float = column("clean minus corrupted")
    difference_low: float = column("difference, 95 % CI from")
    difference_high: float = column("difference, 95 % CI to")
    least_effect: float = column("effect-size threshold")
    tested: int = column("sites tested")
    task: str = column("task")
    causal: str = column("causal test")
    null: str = column("null")
    level: float = column("significance level")
    error: str = column("error")


@dataclass(frozen=True, kw_only=True)
class PatchingFinding(Finding):
    """Effects of all patched sites: heads, attention outputs, MLP outputs, residual stream."""

    evidence: PatchingEvidence
    sites: Sequence[PatchedSite] = records(
        PatchedSite,
        "Patched sites",
        "Mean effect over prompts, with its 95 % CI: the largest of the heads, attention outputs "
        "and MLP outputs, in the metric's unit. JSON and to_frame() have all sites.",
        lambda site: site.status == "detected",
        select=lambda sites: [s for s in sites if s.status is not None and s.effect][:SHOWN],
    )


def corrupted_repeats(model: Model, *, seed: int = 0) -> FeatureData:
    """Repeated prompts without their last token, the answer; corrupted, it stood otherwise before.

    Raises InputError as `repeated_prompts`.
    """
    n_pos = min(int(model.cfg.n_ctx), LENGTH)
    prompts = repeated_prompts(model, rows=ROWS, n_pos=n_pos, seed=seed)
    tokens = prompts.tokens.numpy()
    answers, ids = tokens[:, -1], np.unique(tokens[:, prompts.first :])
    rng = np.random.default_rng([seed, 3])
    absent = [np.setdiff1d(ids, row) for row in tokens]  # of a small vocabulary, a row may have all
    wrong = np.array(
        [
            rng.choice(part if len(part) else ids[ids != answer])
            for part, answer in zip(absent, answers, strict=True)
        ]
    )
    corrupted = np.where(tokens == answers[:, None], wrong[:, None], tokens)
    return FeatureData(
        tokens[:, :-1],
        np.zeros((len(tokens), 0), bool),
        (),
        source=f"{prompts.source}, their last token",
        answers=answers,
        wrong=wrong,
        corrupted=corrupted[:, :-1],
    )


def _prompts(run: Run[PatchingOptions], data: FeatureData) -> tuple[Prompts, Prompts]:
    """All prompts, and those that are run: no duplicates, at most as many as the effort allows."""
    user_prompts = prompts_from_data(data, run.model)
    prompts = user_prompts.distinct()
    most = MOST_ROWS[run.options.effort]
    if is_large(run.model, data, run.options.effort):
        most = min(most, LARGE_ROWS)
    return user_prompts, prompts.some(min(len(prompts), most))


def analyze(run: Run[PatchingOptions]) -> PatchingFinding:
    """Patch every site, test heads, attention and MLP outputs, and draw the maps."""
    data = run.data or corrupted_repeats(run.model, seed=run.seed)
    user_prompts, prompts = _prompts(run, data)
    if prompts.corrupted is None or prompts.answers is None:
        raise InputError(f"patching {unfit(run.model, data)}")
    metric, performed = metric_for(run.model, prompts, run.memory)
    assert isinstance(metric, AnswerMetric)
    assert performed is not None
    into = run.options.into
    layers, missing = patchable_hooks(run.model, run.options.kinds)
    every = every_site(run.model, layers, prompts.n_pos)
    patched = patch(run.model, prompts, metric, every, into=into, progress=run.progress)
    measured = _Measured(patched, into, metric.unseen, run.options.least)
    tested = [site for site in every if site.kind != DESCRIBED]
    effects = np.array([measured.effects[site] for site in tested]).reshape(-1, len(prompts))
    q_values = dict(zip(tested, sign_flip_p_values(effects, seed=run.seed).tolist(), strict=True))
    candidates = [s for s in tested if measured.is_large(s) and q_values[s] <= LEVEL]
    others = (
        patch(
            run.model,
            prompts,
            metric,
            candidates,
            into=into,
            others=True,
            seed=run.seed,
            progress=run.progress,
        ).values
        if candidates
        else {}
    )
    other_effects = {site: measured.effect(values) for site, values in others.items()}
    why = _why_untested(performed, measured.gap)
    smallest = 2.0 ** (1 - len(prompts))
    sites = [
        _site(
            site,
            measured,
            q_values.get(site, math.nan),
            other_effects.get(site),
            None
            if site.kind == DESCRIBED
            else untested(why)
            if why
            else measured.verdict(site, q_values[site], other_effects.get(site), smallest),
        )
        for site in every
    ]
    sites.sort(key=lambda site: -abs(site.effect))
    status = any_of([site.status for site in sites if site.status is not None])
    clean, corrupted, gap = measured.clean, measured.corrupted, measured.gap
    evidence = PatchingEvidence(
        status,
        metric.name,
        metric.unit,
        gap.n,
        *(clean.mean, clean.low, clean.high),
        *(corrupted.mean, corrupted.low, corrupted.high),
        *(gap.mean, gap.low, gap.high),
        measured.least,
        len(tested),
        performed.summary,
        f"activations of one site at a time are patched into {into} prompts; each site's effect "
        "is the mean over prompts of the change of the metric",
        "sign flips of each prompt's effect; for sites that pass, activations of another prompt",
        LEVEL,
        "p adjusted for all tested sites by the largest of them under each sign flip",
        reason=why or REASONS[status],
    )
    notes = [note for note in (copies_note(user_prompts, user_prompts.distinct()),) if note]
    notes.append(unseen_note(len(prompts)))
    left_out = len(user_prompts.distinct()) - len(prompts)
    if left_out:
        notes.append(
            f"{left_out} of {len(prompts) + left_out} prompts were not run (--effort thorough: all)"
        )
    if missing:
        notes.append(f"edits at {listed(missing)} do not reach the logits: left out")
    about = run.provenance(data, distinct=len(prompts))
    settings = {**about.settings, "effort": run.options.effort}
    return PatchingFinding(
        headline=headline(sites, evidence, into),
        findings=on_prompts(
            sentences(sites, evidence, into),
            data.source,
            len(prompts),
            synthetic=run.data is None,
        ),
        evidence=evidence,
        provenance=dataclasses.replace(about, settings=settings),
        sites=sites,
        notes=notes,
        plots=figures(sites, prompts, run.model, evidence),
    )


class _Measured:
    """Effects of sites by prompt, in the metric's unit, and as fractions of the difference."""

    def __init__(
        self, patched: Patched, into: Literal["corrupted", "clean"], unseen: float, least: float
    ):
        self.into, self.unseen = into, unseen
        self.start = patched.corrupted if into == "corrupted" else patched.clean
        self.gaps = patched.clean - patched.corrupted
        self.clean = estimate(patched.clean, unseen=unseen)
        self.corrupted = estimate(patched.corrupted, unseen=unseen)
        self.gap = estimate(self.gaps, unseen=unseen)
        self.least = least * abs(self.gap.mean)
        self.effects = {site: self.effect(values) for site, values in patched.values.items()}

    def effect(self, values: Float[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
        """What the patch restores, or removes."""
        moved: np.ndarray = values - self.start
        return moved if self.into == "corrupted" else -moved

    def estimate(self, site: PatchSite) -> Estimate:
        """The mean effect of a site with its interval."""
        return estimate(self.effects[site], unseen=self.unseen)

    def is_large(self, site: PatchSite) -> bool:
        """Whether the interval of the effect lies beyond the threshold."""
        e = self.estimate(site)
        return max(e.low, -e.high) > self.least

    def fraction(self, site: PatchSite) -> Share:
        """The effect as a fraction of the difference; NaN where this may be 0."""
        if not self.gap.low * self.gap.high > 0:
            return Share(math.nan, math.nan, math.nan)
        return ratio_estimate(self.effects[site], self.gaps, unseen=self.unseen)

    def verdict(
        self,
        site: PatchSite,
        q_value: float,
        others: Float[np.ndarray, " row"] | None,
        smallest: float,
    ) -> Verdict:
        """The status of a site, of a negative effect by its size, and why it is not confirmed."""
        e = self.estimate(site)
        sign = 1.0 if e.mean >= 0 else -1.0
        low, high = (e.low, e.high) if e.mean >= 0 else (-e.high, -e.low)
        controls: list[Control] = [
            control_of_p("sign flips over prompts", q_value, LEVEL, smallest)
        ]
        if others is not None:
            excess = estimate(sign * (self.effects[site] - others), unseen=self.unseen)
            reason = "another prompt's activation has as large an effect"
            controls.append(
                control_of_excess(
                    "activations of other prompts",
                    excess.low,
                    excess.high,
                    reason,
                    least=0.0,
                    none=self.least,
                )
            )
        return effect_status(low, high, self.least, controls)


def _site(
    site: PatchSite,
    measured: _Measured,
    q_value: float,
    others: Float[np.ndarray, " row"] | None,
    verdict: Verdict | None,
) -> PatchedSite:
    e, share = measured.estimate(site), measured.fraction(site)
    head = site.at if site.kind == "head" else None
    position = None if site.kind == "head" else site.at
    word = {"residual": "residual stream", "attention": "attention", "mlp": "MLP"}
    name = (
        head_name(site.layer, site.at)
        if head is not None
        else f"L{site.layer} {word[site.kind]} at {site.at}"
    )
    return PatchedSite(
        *(name, site.kind, site.layer, position, head),
        *(e.mean, e.low, e.high),
        *(share.mean, share.low, share.high),
        math.nan if others is None else float(others.mean()),
        q_value,
        None if verdict is None else verdict[0],
    )


def _why_untested(performed: TaskCheck, gap: Estimate) -> str | None:
    """Why effects are not judged: no task performance, or nothing to restore."""
    if not performed.yes:
        return performed.failure
    if not gap.low > 0:
        return "the metric is not shown to be higher on clean than on corrupted prompts"
    return None


REASONS: dict[Status, str | None] = {
    "detected": None,
    "undecided": "whether any site restores enough is undecided",
    "uninformative": "other prompts' activations have as large effects",
    "not_detected": "no head, attention output or MLP output alone restores enough to count",
}


def headline(
    sites: Sequence[PatchedSite], e: PatchingEvidence, into: Literal["corrupted", "clean"]
) -> str:
    """Headline: the detected sites, the largest effect first."""
    detected = [site for site in sites if site.status == "detected"]
    names = [_in_headline(site) for site in sorted(detected, key=lambda s: -abs(s.effect))]
    if e.status == "not_tested":
        return f"Patching effects on the {e.metric} are measured, not judged: {e.reason}."
    if not names:
        return f"No single site is shown to carry the {e.metric}: {e.reason}."
    verb = "restored by clean" if into == "corrupted" else "removed by corrupted"
    return f"The {e.metric} is {verb} activations of {listed(names, 5)}."


def _in_headline(site: PatchedSite) -> str:
    if site.effect < 0:
        return f"{site.name} (against it)"
    return site.name if math.isnan(site.fraction) else f"{site.name} ({percent(site.fraction)})"


def sentences(
    sites: Sequence[PatchedSite], e: PatchingEvidence, into: Literal["corrupted", "clean"]
) -> list[str]:
    """Findings: the metric on both kinds of prompts, and the largest sites of each kind."""
    clean = with_ci(e.clean, e.clean_low, e.clean_high)
    corrupted = with_ci(e.corrupted, e.corrupted_low, e.corrupted_high)
    difference = with_ci(e.difference, e.difference_low, e.difference_high)
    facts = [
        f"Mean {e.metric} ({e.unit}): {clean} on clean and {corrupted} on corrupted prompts, "
        f"difference {difference}, n = {e.rows}."
    ]
    kinds = (("head", "heads"), ("attention", "attention outputs"), ("mlp", "MLP outputs"))
    for kind, words in kinds:
        of_kind = [site for site in sites if site.kind == kind]
        detected = [site for site in of_kind if site.status == "detected"]
        if detected:
            shown = "; ".join(map(_effect_words, detected[:4]))
            facts.append(f"{len(detected)} of {len(of_kind)} {words} detected: {shown}.")
    other = [site for site in sites if site.status == "uninformative"]
    if other:
        facts.append(
            f"Not specific to the prompt: {listed([site.name for site in other])}; another "
            f"{into} prompt's activation there has as large an effect."
        )
    return [*facts[:4], f"Task: {e.task.rstrip('.')}."]


def _effect_words(site: PatchedSite) -> str:
    effect = f"{site.name} {with_ci(site.effect, site.low, site.high)}"
    if math.isnan(site.fraction):
        return effect
    share = percent_ci(Share(site.fraction, site.fraction_low, site.fraction_high))
    others = (
        ""
        if math.isnan(site.others)
        else f" (another prompt's activation there: {site.others:.2g})"
    )
    return f"{effect}, {share} of the difference{others}"


def figures(
    sites: Sequence[PatchedSite], prompts: Prompts, model: Model, e: PatchingEvidence
) -> list[Figure]:
    """One map for each kind of site, all with the same color scale."""
    most = max((abs(site.effect) for site in sites), default=0.0)
    columns = _position_labels(prompts, model)
    maps = []
    for kind, title in TITLES.items():
        of = {
            (s.layer, s.head if s.position is None else s.position): s
            for s in sites
            if s.kind == kind
        }
        if not of:
            continue
        n_layers = 1 + max(layer for layer, _ in of)
        xs = columns if kind != "head" else [str(n) for n in range(int(model.cfg.n_heads))]
        cells = [[of.get((layer, x)) for x in range(len(xs))] for layer in range(n_layers)]
        z = plots.rounded(
            [[math.nan if site is None else site.effect for site in row] for row in cells]
        )
        words = [["" if site is None else _effect_words(site) for site in row] for row in cells]
        tiles = plots.signed_heatmap(xs, list(range(n_layers)), z, e.unit)
        tiles |= {"zmin": -most, "zmax": most, "text": words} if most else {"text": words}
        axes = (
            plots.axis("head" if kind == "head" else "position", "category") | plots.BARE,
            plots.axis("layer") | plots.whole(n_layers),
        )
        caption = (
            f"Effect on the {e.metric}, of {e.difference:.3g} between clean and corrupted prompts: "
            "blue restores or carries it, orange works against it. The 95 % CI is in the box of "
            "each cell."
        )
        shown = [site.name for row in cells for site in row if site is not None]
        maps.append(
            Figure(title, caption, [tiles | plots.hover("%{text}")], plots.layout(*axes), shown)
        )
    return maps


def _position_labels(prompts: Prompts, model: Model) -> list[str]:
    """The positions, with the token where it is the same in all clean prompts."""
    word = token_words(model)
    same = (prompts.tokens == prompts.tokens[0]).all(0).tolist()
    return [
        f"{position} {word(int(prompts.tokens[0, position]))}" if alike else str(position)
        for position, alike in enumerate(same)
    ]


def unfit(model: Model, data: FeatureData | None) -> str | None:
    """Reason why the analysis cannot run on this model and data; None if it can."""
    try:
        data = data or corrupted_repeats(model)
        if data.answers is None:
            return "needs rows with answers (--data)"
        if data.corrupted is None:
            return "needs a corrupted prompt for each row (--corrupted-column, or --task)"
        prompts_from_data(data, model)
    except InputError as error:
        return str(error)
    return None


PATCHING = analysis(
    "patching",
    "which activations restore the answer on corrupted prompts: layer by position, and by head",
    PatchingOptions,
    analyze,
    unfit,
    source="Meng et al. 2022; Heimersheim and Nanda 2024",
)
