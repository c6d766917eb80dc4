"""The verdict: which heads are sharp, and what that was held against."""

from __future__ import annotations

from collections.abc import Sequence

from attention_entropy.entropy.result import LEVEL, EntropyEvidence, HeadSpread

COPIES = 19  # the fewest with which a p-value can be 0.05


# --8<-- [start:verdict]
def evidence_of(
    heads: Sequence[HeadSpread], sharpest: Sequence[float], sharp: float
) -> EntropyEvidence:
    """What the verdict rests on; "detected" where some head is."""
    found = any(head.status == "detected" for head in heads)
    least = min(heads, key=lambda head: head.spread)
    reason = None
    if not found:
        reason = (
            f"copies with shuffled weights have heads as sharp as {least.head}"
            if least.spread < sharp
            else f"no head is below {sharp:g} of uniform attention's entropy"
        )
    return EntropyEvidence(
        "detected" if found else "not_detected",
        reason=reason,
        sharp=sharp,
        level=LEVEL,
        copies=len(sharpest),
        sharpest_copy=min(sharpest),
    )


def verdict(evidence: EntropyEvidence, heads: Sequence[HeadSpread]) -> str:
    """One sentence that says what the numbers mean and no more."""
    found = [head for head in heads if head.status == "detected"]
    if not found:
        return f"No head is found to attend sharply: {evidence.reason}."
    named = ", ".join(f"{head.head} ({head.spread:.2f})" for head in found)
    return (
        f"{named} attend{'s' if len(found) == 1 else ''} with less than {evidence.sharp:g} of "
        f"uniform attention's entropy, and more sharply than any head of {evidence.copies} copies "
        f"with shuffled weights ({evidence.sharpest_copy:.2f} or more)."
    )


# --8<-- [end:verdict]
