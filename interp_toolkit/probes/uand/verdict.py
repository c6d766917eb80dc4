"""The verdict of the universal-AND analysis in words, its three claims kept apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from interp_toolkit.evidence import Control, control_of_copies, control_of_p, effect_status
from interp_toolkit.probes.uand.claims import Claim
from interp_toolkit.probes.uand.result import ComposedSummary, SiteSummary, UANDEvidence
from interp_toolkit.results import Status
from interp_toolkit.stats import LEVEL

BELOW = "below 1/4 after the best gain and bias"
_REASONS: Mapping[str, str] = {
    "before": "the ANDs can be read off the layer's input too",
    "absent": "the worst errors are above the 1/4 that an affine function has",
    "undecided": "too few rows have both features on, an affine function of the features is their "
    "AND on these rows, or nothing stands before the layer to compare with",
}


def evidence_of(
    site: SiteSummary, main: Claim, n_layers: int, *, places: int, held_out: int
) -> UANDEvidence:
    """The status, and the numbers that it follows from.

    ANDs are *computed* only where random layers of the same weights read them less well.

    Args:
        site: the layer.
        main: the claim of most pairs (see `claims.main_claim`).
        n_layers: how many were looked at, of which this one was chosen.
        places: looked at.
        held_out: one in so many of them.
    """
    drawn = len(site.random_mean_worst)
    status: Status = main
    reason = _REASONS.get(main)
    if main == "computed":
        n = site.counts["computed"]
        status, reason = effect_status(n, n, 1, [_random_layers(site, n_layers)])
        status = "computed" if status == "detected" else status
    return UANDEvidence(
        status=status,
        reason=reason,
        site=site.hook,
        input=site.input,
        counts=site.counts,
        shuffled_read=site.shuffled_read,
        random_layers=drawn,
        p_better=site.p_better if drawn else None,
        behind_attention=site.behind_attention,
        places=places,
        held_out=held_out,
    )


def _random_layers(site: SiteSummary, n_layers: int) -> Control:
    """The control of random layers, corrected for the layers looked at (Bonferroni).

    Its p is a rank, so in steps. The layer must also lie beyond the prediction limit of one more
    random layer, at half the level: better and worse are both looked at.
    """
    name = "random layers of the same weights"
    smallest = n_layers / (1 + len(site.random_mean_worst))
    p_value = float(np.minimum(1, site.p_better * n_layers))
    rank = control_of_p(name, p_value, LEVEL, smallest)
    if rank.outcome != "passed":
        return rank
    others, own = -np.array(site.random_mean_worst), -site.mean_worst
    control = control_of_copies(name, own, own, others, level=LEVEL / 2 / n_layers)
    reason = f"{name}: one more may read the pairs as well"
    return replace(control, reason=None if control.outcome == "passed" else reason)


def verdict(site: SiteSummary, main: Claim, status: Status, n_layers: int) -> str:
    """What is computed here, whether random layers do as well, and whether by intersections.

    Args:
        site: the layer.
        main: the claim of most pairs (see `claims.main_claim`).
        status: of the evidence.
        n_layers: how many were looked at, of which this one was chosen.
    """
    sentences = [f"{site.hook}: {_counts(site, main, status)}"]
    if main == "computed" or (main == "absent" and site.random_mean_worst):
        sentences.append(_random(site, n_layers))
    if site.intersections is not None:
        sentences.append(_construction(site))
    if site.higher_fan_in is not None:
        sentences.append(higher_words(site.higher_fan_in))
    return " ".join(sentences)


def _counts(site: SiteSummary, main: Claim, status: Status) -> str:
    counts = site.counts
    seen = sum(n for claim, n in counts.items() if claim != "unseen")
    unseen = counts["unseen"]
    never = f"; {unseen:,} more are never together in the rows fitted on or held out"
    tail = f"{never}." if unseen and seen else "."
    if not seen:
        return (
            f"none of the {unseen:,} pairs of features is on together both in the rows fitted on "
            "and in those held out, so nothing can be said: give more rows."
        )
    if main == "computed":
        input_word = site.input or "input"
        rest = _rest(counts, "computed")
        if site.behind_attention:
            input_word += ", at this position (attention may have brought it from another)"
        verb = "is computed" if status == "computed" else "can be read"
        return (
            f"the AND of {counts['computed']:,} of {seen:,} pairs {verb} here: the worst "
            f"error on held-out rows is {BELOW}, and not so at {input_word}{rest}{tail}"
        )
    if main == "before":
        return (
            f"the AND of {counts['before']:,} of {seen:,} pairs is present before the layer: it "
            f"reads off {site.input} with a worst error {BELOW}{_rest(counts, 'before')}{tail}"
        )
    if main == "absent":
        return (
            f"the AND of {counts['absent']:,} of {seen:,} pairs cannot be read here to better than "
            f"the 1/4 that an affine function of two bits has{_rest(counts, 'absent')}{tail}"
        )
    return (
        f"undecided for {counts['undecided']:,} of {seen:,} pairs: too few rows have both on, an "
        "affine function of the features is their AND on these rows, or nothing stands before the "
        f"layer to compare with{_rest(counts, 'undecided')}{tail}"
    )


def _rest(counts: Mapping[str, int], main: str) -> str:
    words = {
        "computed": "can be read here only",
        "before": "are present before",
        "absent": "cannot be read",
        "undecided": "are undecided",
    }
    others = [
        f"{n:,} {words[claim]}"
        for claim, n in counts.items()
        if n and claim in words and claim != main
    ]
    return f" ({', '.join(others)})" if others else ""


def _random(site: SiteSummary, n_layers: int) -> str:
    values = sorted(site.random_mean_worst)
    if not values:
        return (
            "No random layers were drawn to compare it with, so whether the layer computes them "
            "is undecided."
        )
    span = f"{values[0]:.3f} to {values[-1]:.3f} in {len(values)} of them"
    figures = f"mean worst error {site.mean_worst:.3f}, {span}; p = {site.p_better:.2g}"
    control = _random_layers(site, n_layers)
    if control.outcome == "passed":
        return f"It reads them better than random layers of the same weights ({figures})."
    if site.p_worse <= LEVEL:
        return f"Random layers of the same weights read them better ({figures})."
    if control.outcome == "powerless":
        return (
            f"Whether it reads them better than random layers of the same weights is undecided "
            f"({figures}): draw more (--reinitialisations)."
        )
    if site.p_better * n_layers <= LEVEL:
        return (
            f"It reads them hardly better than random layers of the same weights ({figures}): one "
            "more may do as well."
        )
    if site.p_better <= LEVEL:
        return (
            f"It reads them better than random layers of the same weights ({figures} for this "
            f"layer alone), but of {n_layers} layers one may do so by chance."
        )
    return f"It is no better than a random layer of the same weights ({figures})."


def _construction(site: SiteSummary) -> str:
    found = site.intersections
    assert found is not None
    kind = "construction of universal AND" if found["universal"] else "construction"
    which = "targeted pairs" if found["targeted"] else "pairs, all that share a neuron"
    levels = f"levels 0 and {found['level']:.3g}, and {found['named_count']:,} {which}"
    if found["worst"] is None:
        return (
            f"Its weights are those of the {kind} by intersections, {levels}, none of which "
            "is on together in the rows held out."
        )
    errors = f"worst error {found['worst']:.3g}, {found['worst_after_offset']:.3g} after offset"
    separated = f"{found['separated']:,} of the {found['named_seen']:,} seen ({errors})"
    if 2 * found["separated"] < found["named_seen"]:
        return (
            f"Its weights are those of the {kind} by intersections, {levels}, but the "
            f"readoffs along shared neurons separate only {separated}."
        )
    universal = ", as universal AND is" if found["universal"] else ""
    return (
        f"It is built by intersections{universal}: {levels}; the readoffs along shared neurons "
        f"separate {separated}."
    )


def higher_words(found: Mapping[str, Any]) -> str:
    """The construction for more than two features."""
    k, sampled = found["fan_in"], found["sampled"]
    sets = f"{found['gates']:,} sets of {k} that share a neuron"
    if sampled is not None:
        sets = f"about {sets}, counted on {sampled:,} drawn"
    text = (
        f"Its weights are those of the construction for ANDs of {k} features, not of two: levels 0 "
        f"and {found['level']:.3g} under a bias of {found['bias']:.3g}, and {sets}"
    )
    if not found["measured"]:
        return f"{text}, none of those looked at on together in the rows held out."
    return (
        f"{text}; the readoffs along shared neurons separate {found['separated']:,} of the "
        f"{found['measured']:,} measured (worst error {found['worst']:.3g}, "
        f"{found['worst_after_offset']:.3g} after offset)."
    )


def joined(sites: Sequence[SiteSummary], focus: int) -> str:
    """What the other layers have, in a few words."""
    others = [s.counts["computed"] for k, s in enumerate(sites) if k != focus]
    if not others:
        return ""
    return (
        f" Of the {len(others)} other layers, {sum(n > 0 for n in others)} have an AND of two "
        "features that their input has not."
    )


def composed_words(composed: Sequence[ComposedSummary]) -> str:
    """What later layers make of the ANDs of earlier ones; empty where none was asked."""
    return "".join(_composed(c, len(composed)) for c in composed)


def _composed(found: ComposedSummary, n_looks: int) -> str:
    site, main = found.site, _main(found.site)
    status = evidence_of(site, main, n_looks, places=0, held_out=0).status
    random = ""
    if main == "computed" or (main == "absent" and site.random_mean_worst):
        random = f" {_random(site, n_looks)}"
    return (
        f" With {_several(len(found.features), found.depth - 1)} that earlier layers compute as "
        f"features, {site.hook}: {_counts(site, main, status)}{random}"
    )


def _several(count: int, depth: int) -> str:
    kind = "ANDs" if depth == 1 else f"ANDs of depth {depth}"
    return f"the {count:,} {kind}"


def _main(site: SiteSummary) -> Claim:
    """The claim to begin with: as `claims.main_claim`, but computed before all."""
    order: tuple[Claim, ...] = ("computed", "before", "absent", "undecided")
    if site.counts["computed"]:
        return "computed"
    return max(order, key=lambda claim: site.counts[claim])
