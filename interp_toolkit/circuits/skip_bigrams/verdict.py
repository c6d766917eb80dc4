"""The verdict on skip-bigrams: how many each head checks for, how many there are, in words.

Each head's discoveries hold at the level for that head. Where many heads are looked at, some show
one by chance: it is *detected* where all together show more than chance would (`beyond_chance`),
else *undecided*. Only heads count whose bigrams stand out farther than those of copies with
permuted residual coordinates (`control`); if none is left, the verdict is *uninformative*.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy import stats

from interp_toolkit.circuits.skip_bigrams.control import SMALLEST_P
from interp_toolkit.circuits.skip_bigrams.directions import ALIKE
from interp_toolkit.circuits.skip_bigrams.head import HeadBigrams
from interp_toolkit.circuits.skip_bigrams.head_views import HeadView
from interp_toolkit.circuits.skip_bigrams.result import (
    SkipBigramEvidence,
    clearest,
    head_of,
    place,
)
from interp_toolkit.results import Status

NAMED = 3  # bigrams, and heads, that the verdict names
NULL = (
    "features drawn independently of the head's weights, row by row and column by column: the "
    "larger of the two p-values counts"
)
CONTROL = "copies of the head that read residual coordinates in random order"
ADJUSTED = "Benjamini and Hochberg, over all pairs of a head"
CAPACITY = "d_resid x d_head: the order of how many a head can check for"
EMPIRICAL = (
    "features are not spread over all directions as random ones are: p-values are from each row's "
    "and column's own spread and a normal tail, and hold less strictly"
)


def evidence_of(found: Sequence[HeadBigrams]) -> SkipBigramEvidence:
    """What the verdict rests on."""
    tails = {one.tail for one in found} - {"none"}
    cosines = [c for one in found for c in one.shared if c is not None]
    status, reason = _status(found)
    return SkipBigramEvidence(
        status=status,
        reason=reason,
        null=NULL,
        adjusted=ADJUSTED,
        level=found[0].level,
        pairs=found[0].n_pairs,
        capacity=CAPACITY,
        looks=len(found),
        expected_by_chance=found[0].level * len(found),
        tail="empirical" if "empirical" in tails else next(iter(tails), None),
        shared_cosine=max(cosines, default=None),
        alike=sum(bool(b.alternatives) for one in found for b in one.bigrams),
        control=CONTROL,
        heads_with_bigrams=sum(bool(one.bigrams) for one in found),
        beyond_control=len(beyond_control(found)),
    )


def beyond_control(found: Sequence[HeadBigrams]) -> list[HeadBigrams]:
    """Heads whose bigrams stand out farther than those of copies, at the level over all (Holm)."""
    some = [one for one in found if one.bigrams]
    compared = sorted(
        (one for one in some if not np.isnan(one.control_p)), key=lambda one: one.control_p
    )
    for i, one in enumerate(compared):
        if not one.control_p <= one.level / (len(some) - i):
            return compared[:i]
    return compared


def _status(found: Sequence[HeadBigrams]) -> tuple[Status, str | None]:
    some = [one for one in found if one.bigrams]
    if not some:
        return "not_detected", _unremarkable(found)
    if not beyond_chance(found):
        return "undecided", _within_chance(found)
    if beyond_chance(beyond_control(found), len(found)):
        return "detected", None
    if all(np.isnan(one.control_p) for one in some):
        return "undecided", f"with so many features no {CONTROL} were looked at"
    if some[0].level / len(some) < SMALLEST_P:
        return "undecided", f"too few {CONTROL} for so many heads"
    return "uninformative", f"{CONTROL} stand out as far"


def notes_of(found: Sequence[HeadBigrams], evidence: SkipBigramEvidence) -> list[str]:
    """What a reader must know of the p-values, the features and several heads."""
    notes = []
    if evidence.status == "detected" and evidence.beyond_control < evidence.heads_with_bigrams:
        names = {place(one) for one in beyond_control(found)}
        others = [place(one) for one in found if one.bigrams and place(one) not in names]
        notes.append(f"{CONTROL} stand out as far in {', '.join(others)}")
    if len(found) > 1:
        notes.append(
            f"the level holds for each {_each(found)}: without any bigram, up to "
            f"{evidence.expected_by_chance:.2g} of {evidence.looks} would show one by chance"
        )
    if evidence.tail == "empirical":
        notes.append(EMPIRICAL)
    if evidence.shared_cosine is not None:
        notes.append(
            f"features have a mean cosine of {evidence.shared_cosine:.2g}: the direction that they "
            "share is left out, on their side and in the weights"
        )
    if evidence.alike:
        notes.append(
            f"{evidence.alike:,} bigrams have a feature with others at |cos| > {ALIKE}, any of "
            "which may be meant: the level is of false discoveries up to such features"
        )
    return notes


def verdict(found: Sequence[HeadBigrams]) -> str:
    """How many bigrams the heads check for, and which are the strongest."""
    some = [one for one in clearest(found) if one.bigrams]
    n_heads, several = _n_heads(found), len(found) > 1
    at = f" for each {_each(found)}" if several else ""
    level = f"level {found[0].level:.0%}{at}"
    if not some:
        where = f"{n_heads} heads" if n_heads > 1 else place(found[0])
        if n_heads == 1 and several:
            where = f"{HeadView(*head_of(found[0]), None).name} at {len(found)} distances"
        return f"No skip-bigram stands out in {where}: {_unremarkable(found)} ({level})."
    first = some[0]
    of_all = f"{_n_heads(some)} of {n_heads} heads check for skip-bigrams ({level}): "
    alone = f"{place(first)} checks for {_number(first)} ({level})"
    named = ", ".join(f"{place(one)} {len(one.bigrams):,}" for one in some[1:NAMED])
    others = (f"; {named}" if named else "") + (" and others" if len(some) > NAMED else "")
    start = (
        f"{of_all}{place(first)} for {_number(first)}{others}" if n_heads > 1 else alone + others
    )
    strongest = ", ".join(
        f"key {b.key_feature} for query {b.query_feature}{' (attends less)' if b.z < 0 else ''}"
        for b in first.bigrams[:NAMED]
    )
    status, reason = _status(found)
    if status == "undecided":
        start = f"Undecided, {reason}. {start}"
    elif status == "uninformative":
        start = f"Uninformative: {reason}. {start}"
    alike = sum(bool(b.alternatives) for b in first.bigrams)
    up_to = f"; {alike:,} of them up to features that are alike (|cos| > {ALIKE})" if alike else ""
    return f"{start}; the clearest of {place(first)}: {strongest}{up_to}."


def beyond_chance(found: Sequence[HeadBigrams], looks: int | None = None) -> bool:
    """Whether these heads together show more than chance would, of as many as were looked at.

    Of each head Simes' p-value over its pairs; of the heads Simes' again.
    """
    heads = [_simes(_p_values(one), one.n_pairs) for one in found]
    return bool(found) and _simes(np.array(heads), looks or len(found)) <= found[0].level


def _p_values(found: HeadBigrams) -> Float[np.ndarray, " bigram"]:
    p: np.ndarray = 2 * stats.norm.sf(np.abs([bigram.z for bigram in found.bigrams]))
    return p


def _simes(p: Float[np.ndarray, " test"], n: int) -> float:
    """Of n p-values of which these are the smallest; 1 at most."""
    return float(min(1.0, *(n * np.sort(p) / np.arange(1, len(p) + 1)))) if len(p) else 1.0


def _within_chance(found: Sequence[HeadBigrams]) -> str:
    """Why bigrams of some heads are no more than many looks give."""
    return (
        f"as no more stands out than chance lets stand out in {len(found)} looks without any "
        "skip-bigram"
    )


def _n_heads(found: Sequence[HeadBigrams]) -> int:
    return len({head_of(one) for one in found})


def _each(found: Sequence[HeadBigrams]) -> str:
    return "head" if _n_heads(found) == len(found) else "head and distance"


def _unremarkable(found: Sequence[HeadBigrams]) -> str:
    if all(one.tail == "none" for one in found):
        return "every pair of features scores 0"
    if any(one.tail == "empirical" for one in found):
        return "no score is far beyond the spread of its row and its column"
    return "the scores are what features independent of the weights give"


def _number(found: HeadBigrams) -> str:
    n = len(found.bigrams)
    said = f"{n:,} skip-bigram{'s' if n > 1 else ''}"
    if found.estimated_count is None or found.interval is None:
        return f"{said} of a capacity of about {found.capacity:,}"
    low, high = found.interval
    return (
        f"{said}, an estimated {found.estimated_count:,} [{low:,}, {high:,}] about as strong as "
        f"these, of a capacity of about {found.capacity:,}"
    )
