"""The analysis of attention heads: `interp analyze MODEL --probe heads`, or one kind of head.

Steps: score every head under every detector in one pass (`heads`); ablate the detected ones and
measure what the in-context advantage loses (`causal`); for induction heads, cut the paths from
earlier heads into their keys (`partners`); read what weights alone say (`weight_scores`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from interp_toolkit.circuits.behaviour.advantage import why_none
from interp_toolkit.circuits.behaviour.prompts import FEWEST_TOKENS, SHORTEST
from interp_toolkit.circuits.composition.scores import CompositionScores, composition_scores
from interp_toolkit.circuits.heads import figures as head_pictures
from interp_toolkit.circuits.heads.ablation import Ablations, ablation_effects, require_how
from interp_toolkit.circuits.heads.detectors import OURS, as_detector
from interp_toolkit.circuits.heads.partner import partners
from interp_toolkit.circuits.heads.result import (
    DEFINED_BY_EFFECT,
    HeadsResult,
    HeadVerdict,
    Reader,
    status,
    verdict,
)
from interp_toolkit.circuits.heads.scores import HeadScores, detect, is_causal
from interp_toolkit.circuits.weights.self_scores import weight_scores
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError, InterventionError
from interp_toolkit.models.about.provenance import digest_of_tokens, provenance
from interp_toolkit.registry import Analysis, names
from interp_toolkit.results import head_name, jsonable
from interp_toolkit.stats import LEVEL

MOST_ABLATED = 12  # heads of one kind, those with the largest excess: each costs two passes
MOST_READERS = 4  # induction heads whose partners are looked for

Head = tuple[int, int]


def run(
    model: Any,
    *,
    data: FeatureData | None = None,
    detectors: Sequence[Any] | None = None,
    hops: int = 2,
    ablate: str = "mean",
    bos: int | Literal["auto"] | None = "auto",
    seed: int = 0,
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda step: None,
    probe: str = "heads",
) -> HeadsResult:
    """Which heads are of which kind, with what certainty, and to what effect.

    Args:
        model: any TransformerLens model.
        data: rows of tokens to look at instead of those made for the model; rows that repeat let
            heads be ablated too.
        detectors: as `score_heads` takes them; default: all that are registered and fit.
        hops: of the k-hop detector.
        ablate: replace an ablated head with the "mean" of the other rows, another row's values
            ("resample"), or "zero".
        bos: as `repeated_prompts` takes it.
        seed: of prompts, controls and draws.
        memory: bound on activations held at once, such as "4GiB".
        progress: told what is being done.
        probe: the name the result goes by.

    Raises:
        InputError: a model without visible patterns, a context too short, unfit data, another way
            to ablate.
    """
    require_how(ablate)
    tokens = None if data is None else data.token_matrix()
    chosen = _fitting(model) if detectors is None else list(detectors)
    scores = detect(
        model, tokens, chosen, hops=hops, bos=bos, seed=seed, memory=memory, progress=progress
    )
    notes = list(scores.notes)
    ablations, said = _ablate(model, scores, ablate, seed, memory, progress)
    notes += said
    heads = _verdicts(scores, ablations)
    readers, said = _readers(model, scores, heads, memory, progress)
    notes += said
    progress("scores from weights alone")
    from_weights, said = _from_weights(model)
    notes += said
    notes = list(dict.fromkeys(notes))
    advantage = next(
        ((a.advantage.mean, a.advantage.low, a.advantage.high) for a in ablations.values()), None
    )
    joint = {
        name: (a.joint.mean, a.joint.low, a.joint.high)
        for name, a in ablations.items()
        if a.joint is not None
    }
    return HeadsResult(
        probe=probe,
        verdict=verdict(heads, readers, joint, advantage),
        evidence=_evidence(scores, heads, ablations, notes),
        provenance=provenance(
            model,
            {
                "source": scores.prompts.source,
                "rows": len(scores.prompts),
                "sha256": digest_of_tokens(scores.prompts.tokens),
            },
            {"detectors": [s.detector for s in scores.scores], "hops": hops, "ablate": ablate},
            seed,
        ),
        heads=heads,
        readers=readers,
        from_weights=from_weights,
        joint=joint,
        advantage=advantage,
        notes=notes,
        plots=[
            head_pictures.head_map(heads),
            *head_pictures.patterns(model, scores.prompts, heads, _words(model)),
        ],
    )


def _fitting(model: Any) -> list[str]:
    """Every registered detector that this model's attention can show, ours first."""
    known = [*OURS, *(name for name in names("detectors") if name not in OURS)]
    causal = is_causal(model)
    return [name for name in known if not (causal and as_detector(name).later)]


def _ablate(
    model: Any,
    scores: HeadScores,
    how: str,
    seed: int,
    memory: int | str | None,
    progress: Callable[[str], None],
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
                how=how,
                seed=seed,
                memory=memory,
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
    verdicts = []
    for row in scores.to_frame().to_dict("records"):
        given = {str(key): jsonable(value) for key, value in row.items()}
        checked = ablations.get(given["detector"])
        for h in checked.heads if checked is not None else ():
            if (h.layer, h.head) == (given["layer"], given["head"]):
                given |= {
                    "ablation_effect": h.effect,
                    "ablation_low": h.low,
                    "ablation_high": h.high,
                    "restored": h.restored,
                    "others_max": jsonable(h.others_max),
                    "causal": h.verdict,
                }
        verdicts.append(HeadVerdict(**given))
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


def _evidence(
    scores: HeadScores,
    heads: Sequence[HeadVerdict],
    ablations: dict[str, Ablations],
    notes: Sequence[str],
) -> dict[str, Any]:
    looked = [h for h in heads if h.p_value is not None]
    evidence: dict[str, Any] = {
        "status": status(heads),
        "detected": f"{sum(h.detected for h in heads)} of {len(looked)} looks",
        "null": "matched controls: shifted keys, relabelled tokens, the same places in other rows",
        "error": (
            f"any wrong detection in a model: at most {LEVEL:.0%}, by Holm; checked "
            "on untrained models, prompts made for them, and our own detectors"
        ),
    }
    if ablations:
        first = next(iter(ablations.values()))
        kinds = "detected as nothing" if len(scores.scores) > 1 else "of whatever other kind"
        evidence["ablation"] = f"replaced by {first.how}; " + (
            f"against {len(first.others)} other heads, {kinds}, the largest of whose effects is "
            f"{max(first.others.values()):.2g} nats"
            if first.others
            else "no other heads to compare with"
        )
    if notes:
        evidence["notes"] = "; ".join(notes)
    return evidence


def _words(model: Any) -> Callable[[int], str]:
    """A token as text, by the model's tokenizer if it has one."""
    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None:
        return str
    return lambda token: repr(tokenizer.decode([token]))


def unfit(model: Any, data: FeatureData | None) -> str | None:
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
        partial(run, detectors=(name,), probe=name),
        lambda model, data: "part of heads",
    )


HEADS = Analysis("heads", "every head under every detector, ablated, with its partners", run, unfit)
INDUCTION = _one("induction", "which heads are induction heads, and what feeds them")
PREVIOUS_TOKEN = _one("previous-token", "which heads attend to the token before")
DUPLICATE_TOKEN = _one("duplicate-token", "which heads attend to the same token elsewhere")
K_HOP = _one("k-hop", "which heads attend several induction hops back")
