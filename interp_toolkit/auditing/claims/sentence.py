"""Test whether the wording of a claim is stronger than its tests can support.

Words about mechanisms have three strengths (after arXiv 2602.16698): *observational* (attends,
correlates, can be read), *interventional* (contributes, is needed, steers: an intervention changed
the metric) and *mechanistic* (implements, computes, uses: the whole path from inputs to answers is
known). The strongest word of the sentence is compared with the tests that were confirmed; if it
would be supported with the undecided ones confirmed too, the answer is *undecided*.
Observation supports the first, one intervention the second, and a circuit that is both sufficient
and necessary, or the criteria of an algorithm, the third. A sentence that is itself the claim has
only the words of `grammar`. In the `text` of a file, words are looked up, not interpreted: "L1H0
computes nothing" counts as mechanistic too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from interp_toolkit.auditing.claims.kinds import AlgorithmClaim, BaseClaim, CircuitClaim
from interp_toolkit.auditing.parts import Part
from interp_toolkit.evidence import answer_by

STRENGTHS = ("observational", "interventional", "mechanistic")
_WORDS = (
    r"attend\w*|correlat\w*|read|reads|readable|decod\w*|predict\w*|activat\w*|fires?|looks?",
    r"contribut\w*|carr(?:y|ies)|caus\w*|affect\w*|matter\w*|need\w*|necessary|sufficient|steer\w*|"
    r"mediat\w*|responsible|important|is an? [\w-]+ heads?|are [\w-]+ heads?",
    r"implement\w*|comput\w*|perform\w*|use[sd]?|because|algorithm\w*|represent\w*|encod\w*|"
    r"mechanism\w*|understand\w*|know[sn]?|circuit",
)
#: strength of each kind of claim that has no sentence
_OF_WORD = {
    "has": 0,
    "attends": 0,
    "reads": 0,
    "contributes": 1,
    "carries": 1,
    "steers": 1,
    "sufficient": 1,
    "necessary": 1,
    "both": 2,
}


def sentence_part(claim: BaseClaim, parts: Sequence[Part]) -> Part:
    """The part on wording: whether the tests support the claim's words, and what they support."""
    strength, word = strength_of(claim)
    completes = isinstance(claim, CircuitClaim)  # of others, "all" is about what is left
    questions = ("there", "matters", "all") if completes else ("there", "matters")
    supporting = [part for part in parts if part.question in questions]
    confirmed = [part for part in supporting if part.answer == "confirmed"]
    earned = _earned(claim, confirmed)
    tested = [part for part in supporting if part.answer != "not_testable"]
    possible = _earned(claim, [part for part in tested if part.answer != "refuted"])
    testable = len(tested) == len(supporting) or earned >= strength
    answer = answer_by(earned >= strength, possible < strength, testable=testable)
    supported = "; ".join(map(_supported, confirmed)) or "nothing yet"
    had = f"what was confirmed is {STRENGTHS[earned]}" if confirmed else "nothing was confirmed"
    text = f"{word!r} is {STRENGTHS[strength]}, {had}"
    if answer == "undecided":
        text += ", and tests that could support it are undecided"
    text += f". Supported: {supported}"
    return Part("sentence", answer, text, "computed")


def strength_of(claim: BaseClaim) -> tuple[int, str]:
    """Index in STRENGTHS of the strongest word in the claim's text (or of `says`), and that word.

    Examples:
        >>> from interp_toolkit.auditing.claims.kinds import as_claim
        >>> strength_of(as_claim("L1H0 implements induction"))
        (2, 'implements')
    """
    if claim.text:
        for number in reversed(range(len(_WORDS))):
            if match := re.search(rf"\b(?:{_WORDS[number]})\b", claim.text.lower()):
                return number, match[0]
    if isinstance(claim, AlgorithmClaim):
        return 2, "algorithm"
    verb = getattr(claim, "says", "has")
    return _OF_WORD[verb], verb


def _earned(claim: BaseClaim, confirmed: Sequence[Part]) -> int:
    """Index in STRENGTHS of the strongest wording that confirmed parts support; -1 for none."""
    good = {(part.question, part.method) for part in confirmed}
    if not good:
        return -1
    if not any(method == "intervened" for _, method in good):
        return 0
    intervened = {question for question, method in good if method == "intervened"}
    if isinstance(claim, AlgorithmClaim) and "matters" in intervened:
        return 2
    if isinstance(claim, CircuitClaim) and {"all", "matters"} <= intervened:
        return 2
    return 1


def _supported(part: Part) -> str:
    """The first clause of a part's summary."""
    return re.split(r"; |\. ", part.summary)[0]
