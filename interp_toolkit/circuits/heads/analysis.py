"""The analysis of attention heads: `interp analyze MODEL --probe heads`, or one kind of head.

Steps: score every head under every detector in one pass (`heads`); ablate the detected ones and
measure what the in-context advantage loses (`causal`); for induction heads, cut the paths from
earlier heads into their keys (`partners`); read what weights alone say (`weight_scores`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from interp_toolkit.circuits.behaviour.advantage import Estimate, why_none
from interp_toolkit.circuits.behaviour.prompts import FEWEST_TOKENS, SHORTEST
from interp_toolkit.circuits.composition.scores import CompositionScores, composition_scores
from interp_toolkit.circuits.heads import figures
from interp_toolkit.circuits.heads.ablation import Ablations, ablation_effects
from interp_toolkit.circuits.heads.detectors import OURS, as_detector
from interp_toolkit.circuits.heads.partner import partners
from interp_toolkit.circuits.heads.result import HeadsResult, HeadVerdict, Interval, Reader
from interp_toolkit.circuits.heads.scores import HeadScores, detect, is_causal
from interp_toolkit.circuits.heads.verdict import (
    DEFINED_BY_EFFECT,
    evidence_of,
    verdict,
    why_not,
)
from interp_toolkit.circuits.weights.self_scores import weight_scores
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError, InterventionError
from interp_toolkit.models.about.provenance import digest_of_tokens, provenance
from interp_toolkit.models.about.tokens import token_words
from interp_toolkit.models.heads import Head
from interp_toolkit.options import Flag, Options
from interp_toolkit.registry import Analysis, names
from interp_toolkit.results import head_name, jsonable

MOST_ABLATED = 12  # heads of one kind, those with the largest excess: each costs two passes
MOST_READERS = 4  # induction heads whose partners are looked for


def _as_bos(value: Any) -> Any:
    return None if value == "none" else value


def _as_several(value: Any) -> Any:
    return value if value is None or isinstance(value, list | tuple) else (value,)


class HeadKindOptions(Options):
    """Options of the analysis of one kind of head."""

    hops: int = Field(2, ge=2, le=16, description="Of the k-hop detector.")
    ablate: Literal["mean", "resample", "zero"] = Field(
        "mean",
        description="What an ablated head is replaced with: the mean of the other rows, another "
        "row's values, or zeros.",
    )
    bos: Annotated[
        int | Literal["auto"] | None, BeforeValidator(_as_bos), Flag(metavar="ID|auto|none")
    ] = Field("auto", description="Token that made prompts begin with.")


class HeadsOptions(HeadKindOptions):
    """Options of `--probe heads`."""

    detectors: Annotated[
        tuple[Any, ...] | None, BeforeValidator(_as_several), Flag("--detector", metavar="NAME")
    ] = Field(
        None, description="Kinds of head to look for; default: all that are registered and fit."
    )


def run(
    model: Any,
    data: FeatureData | None,
    options: HeadKindOptions,
    progress: Callable[[str], None],
    *,
    probe: str = "heads",
    detectors: Sequence[Any] | None = None,
) -> HeadsResult:
    """Which heads are of which kind, with what certainty, and to what effect.

    Args:
        model: any TransformerLens model.
        data: rows of tokens to look at instead of those made for the model; rows that repeat let
            heads be ablated too.
        options: see `HeadsOptions`; detectors are as `score_heads` takes them.
        progress: told what is being done.
        probe: the name the result goes by.
        detectors: those to look for; None: the options'.

    Raises:
        InputError: a model without visible patterns, a context too short, unfit data, another way
            to ablate.
    """
    if isinstance(options, HeadsOptions):
        detectors = options.detectors
    tokens = None if data is None else data.token_matrix()
    chosen = _fitting(model) if detectors is None else list(detectors)
    scores = detect(
        model,
        tokens,
        chosen,
        hops=options.hops,
        bos=options.bos,
        seed=options.seed,
        memory=options.memory,
        progress=progress,
    )
    ablations, ablation_notes = _ablate(model, scores, options, progress)
    heads = _verdicts(scores, ablations)
    readers, reader_notes = _readers(model, scores, heads, options.memory, progress)
    progress("scores from weights alone")
    from_weights, weight_notes = _from_weights(model)
    advantage = next((_interval(a.advantage) for a in ablations.values()), None)
    joint = {name: _interval(a.joint) for name, a in ablations.items() if a.joint is not None}
    described = {
        "source": scores.prompts.source,
        "rows": len(scores.prompts),
        "sha256": digest_of_tokens(scores.prompts.tokens),
    }
    settings = options.settings(detectors=[s.detector for s in scores.scores])
    notes = [*scores.notes, *ablation_notes, *reader_notes, *weight_notes]
    return HeadsResult(
        probe=probe,
        verdict=verdict(heads, readers, joint, advantage),
        evidence=evidence_of(heads, ablations),
        provenance=provenance(model, described, settings, options.seed),
        heads=heads,
        readers=readers,
        from_weights=from_weights,
        joint=joint,
        advantage=advantage,
        notes=list(dict.fromkeys(notes)),
        plots=[
            figures.head_map(heads),
            *figures.patterns(model, scores.prompts, heads, token_words(model)),
        ],
    )


def _interval(found: Estimate) -> Interval:
    return found.mean, found.low, found.high


def _fitting(model: Any) -> list[str]:
    """Every registered detector that this model's attention can show, ours first."""
    known = [*OURS, *(name for name in names("detectors") if name not in OURS)]
    causal = is_causal(model)
    return [name for name in known if not (causal and as_detector(name).later)]


def _ablate(
    model: Any, scores: HeadScores, options: HeadKindOptions, progress: Callable[[str], None]
) -> tuple[dict[str, Ablations], list[str]]:
    """The causal check of each detector's heads; and why there is none, or not for all."""
    groups = {s.detector: scores.found(s.detector) for s in scores.scores}
    groups = {name: heads for name, heads in groups.items() if heads}
    if not groups:
        return {}, []
    reason = why_none(model, scores.prompts)
    if reason is not None:
        return {}, [f"not ablated: {reason}"]
    everyone = {head for heads in groups.values() for head in heads}
    others = [head for head in np.ndindex(*scores.detected.shape[1:]) if head not in everyone]
    checked: dict[str, Ablations] = {}
    notes: list[str] = []
    for name, heads in groups.items():
        best = _best(scores, name, heads)
        if len(heads) > len(best):
            notes.append(
                f"{len(heads) - len(best)} of {len(heads)} {name} heads (those with the least "
                "attention) were not ablated one by one"
            )
        try:
            checked[name] = ablation_effects(
                model,
                scores.prompts,
                best,
                kin=heads,
                others=others,
                how=options.ablate,
                seed=options.seed,
                memory=options.memory,
                progress=lambda step, name=name: progress(f"{name}: {step}"),  # type: ignore[misc]
            )
        except InterventionError as error:
            return checked, [*notes, f"not ablated: {error}"]
        notes += checked[name].notes
    return checked, notes


def _best(scores: HeadScores, detector: str, heads: Sequence[Head]) -> list[Head]:
    excess = next(s.excess for s in scores.scores if s.detector == detector)
    return sorted(heads, key=lambda head: -excess[head])[:MOST_ABLATED]


def _verdicts(scores: HeadScores, ablations: dict[str, Ablations]) -> list[HeadVerdict]:
    ablated = {(name, h.layer, h.head): h for name, found in ablations.items() for h in found.heads}
    floors = {s.detector: s.floor for s in scores.scores}
    verdicts = []
    for row in scores.to_frame().to_dict("records"):
        known = {str(key): jsonable(value) for key, value in row.items()}
        at = known["detector"], known["layer"], known["head"]
        head = HeadVerdict(**known, ablation=ablated.get(at))
        reason = why_not(head, floors[head.detector])
        verdicts.append(dataclasses.replace(head, reason=reason))
    return verdicts


def _told(progress: Callable[[str], None], what: str) -> Callable[[str], None]:
    return lambda step: progress(f"{what}: {step}")


def _readers(
    model: Any,
    scores: HeadScores,
    heads: Sequence[HeadVerdict],
    memory: int | str | None,
    progress: Callable[[str], None],
) -> tuple[list[Reader], list[str]]:
    """What feeds the keys of the detected induction heads."""
    found = sorted(
        (h for h in heads if h.detector == DEFINED_BY_EFFECT and h.detected and h.layer > 0),
        key=lambda head: -(head.excess or 0.0),
    )
    if not found or why_none(model, scores.prompts) is not None:
        return [], []
    readers, notes = [], list[str]()
    if len(found) > MOST_READERS:
        notes.append(f"partners were looked for of the {MOST_READERS} clearest induction heads")
    composition: CompositionScores | None = None
    for head in found[:MOST_READERS]:
        at = head.layer, head.head
        try:
            composition = composition or composition_scores(model, memory)
            feeding = partners(
                model,
                scores.prompts,
                at,
                composition=composition,
                memory=memory,
                progress=_told(progress, f"what feeds {head_name(*at)}"),
            )
        except (InputError, InterventionError) as error:
            notes.append(f"no partner was looked for: {error}")
            break
        readers.append(Reader(*at, feeding))
    return readers, notes


def _from_weights(model: Any) -> tuple[list[dict[str, Any]], list[str]]:
    try:
        frame = weight_scores(model)
    except InputError as error:
        return [], [f"no scores from weights: {error}"]
    return [
        {str(key): jsonable(value) for key, value in row.items()}
        for row in frame.to_dict("records")
    ], []


def _unfit(model: Any, data: FeatureData | None) -> str | None:
    """Why heads cannot be looked at; None when they can."""
    cfg = model.cfg
    if int(cfg.n_layers) < 1:
        return "the model has no layers"
    if int(cfg.n_ctx) < SHORTEST + 1 or int(cfg.d_vocab) <= FEWEST_TOKENS:
        return "needs a longer context or a larger vocabulary, for prompts that repeat"
    if data is not None:
        return "ask for it by name: the data are prompts for other probes"
    return None


def _one(name: str, summary: str) -> Analysis:
    return Analysis(
        name,
        summary,
        HeadKindOptions,
        partial(run, detectors=(name,), probe=name),
        lambda model, data: "part of heads",
    )


HEADS = Analysis(
    "heads",
    "every head under every detector, ablated, with its partners",
    HeadsOptions,
    run,
    _unfit,
)
INDUCTION = _one("induction", "which heads are induction heads, and what feeds them")
PREVIOUS_TOKEN = _one("previous-token", "which heads attend to the token before")
DUPLICATE_TOKEN = _one("duplicate-token", "which heads attend to the same token elsewhere")
K_HOP = _one("k-hop", "which heads attend several induction hops back")
