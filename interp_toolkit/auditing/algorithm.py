"""Audit of an algorithm: whether a one-layer model sorts by the claimed one.

The criteria of both algorithms are measured (`circuits.sorting.criteria`), on lists sampled with
two seeds:
- there: the model sorts;
- matters: confirmed if the criteria point to this algorithm; refuted if they point to the other, or
  if no criterion of this one is met; undecided if they are mixed or too few, or if the two seeds
  disagree. The criteria include interventions: swapped tokens, ablated heads;
- special: the criteria do not point to the model's algorithm for weight-shuffled models;
- stable: both seeds give the same algorithm.
"""

from __future__ import annotations

from interp_toolkit.auditing.claims.kinds import AlgorithmClaim
from interp_toolkit.auditing.context import AuditContext
from interp_toolkit.auditing.parts import Part, untestable
from interp_toolkit.circuits.sorting.analysis import NULLS, SortingFinding, sorting_fingerprint
from interp_toolkit.circuits.sorting.criteria import (
    ARGMAX,
    MIN_GREATER,
    Algorithm,
    count_there,
    shown,
    sorts,
)
from interp_toolkit.evidence import Answer, all_answers, answer_by
from interp_toolkit.formatting import percent

_OTHER: dict[Algorithm, Algorithm] = {ARGMAX: MIN_GREATER, MIN_GREATER: ARGMAX}


def audit_algorithm(claim: AlgorithmClaim, context: AuditContext) -> list[Part]:
    """The parts of a claim about how a model sorts.

    Raises:
        InputError: a model of several layers, no layout, or one that does not fit.
    """
    parts = [
        sorting_fingerprint(
            context.model,
            claim.layout,
            nulls=nulls,
            seed=seed,
            memory=context.memory,
            progress=context.progress,
        )
        for seed, nulls in ((context.seed, NULLS), (context.seed + 1, 0))
    ]
    first, second = parts
    sorting = _sorts(first)
    lists = "; ".join(
        f"{percent(a.lists_right, 1)} of {n} lists" for n, a in first.accuracy.items()
    )
    there = Part("there", answer_by(sorting, not sorting), f"right: {lists}", "observed")
    if not sorting:
        text = "the model does not sort, so no algorithm applies"
        return [there, untestable("matters", text, "intervened")]
    answers = [_answer(claim.algorithm, one) for one in parts]
    answer = all_answers(answers, alike=True)
    own, other = claim.algorithm, _OTHER[claim.algorithm]
    text = (
        f"the criteria point to {first.algorithm.replace('_', ' ')}: met are "
        f"{count_there(first.criteria, own)} of {_n_measured(first, own)} criteria of the claimed "
        f"algorithm and {count_there(first.criteria, other)} of {_n_measured(first, other)} of the "
        "other"
    )
    alike, copies = first.evidence.nulls_alike, first.evidence.nulls
    special = Part(
        "special",
        answer_by(bool(copies), bool(alike)),
        f"weight-shuffled models whose criteria point to the same algorithm: {alike} of {copies}",
        "intervened",
        True,
    )
    same = first.algorithm == second.algorithm
    stable = Part(
        "stable",
        answer_by(same, not same),
        f"newly sampled lists give {'the same' if same else second.algorithm.replace('_', ' ')}",
        "observed",
    )
    return [there, Part("matters", answer, text, "intervened", True), special, stable]


def _sorts(fingerprint: SortingFinding) -> bool:
    right, guess = (fingerprint.metrics[name] for name in ("items_right", "items_guessed"))
    return sorts(right or 0.0, guess or 0.0)


def _answer(claimed: Algorithm, fingerprint: SortingFinding) -> Answer:
    other = _OTHER[claimed]
    none = not count_there(fingerprint.criteria, claimed)
    other_only = fingerprint.algorithm == other and not shown(fingerprint.criteria, claimed)
    return answer_by(fingerprint.algorithm == claimed, other_only or none)


def _n_measured(fingerprint: SortingFinding, algorithm: Algorithm) -> int:
    return sum(m.algorithm == algorithm and m.state != "unknown" for m in fingerprint.criteria)
