import dataclasses

import pytest

from interp_toolkit.auditing.claims.kinds import as_claim
from interp_toolkit.auditing.claims.sentence import sentence_part, strength_of
from interp_toolkit.auditing.parts import Part

HEAD = {"heads": ["L1H0"], "relation": "induction"}
ATTENDS = Part("there", "confirmed", "it attends; more", "observed")
MATTERS = Part("matters", "confirmed", "cutting costs 40%. More", "intervened", True)


@pytest.mark.parametrize(
    ("claim", "strength"),
    [
        ("L1H0 attends to the previous token", 0),
        ("L1H0 is an induction head", 1),
        ("L1H0 implements induction", 2),
        (HEAD | {"says": "attends"}, 0),
        (HEAD, 1),
        ({"circuit": ["m0->logits"], "says": "both"}, 2),
        ({"algorithm": "argmax_piecewise_linear"}, 2),
        ({"direction": [1.0], "hook": "h"}, 0),
        ({"pair": {"head": "L0H0", "key": 1, "query": 2}}, 0),
    ],
)
def test_how_strong_the_words_are(claim, strength):
    assert strength_of(as_claim(claim))[0] == strength


def test_words_may_be_as_strong_as_what_was_done(texts):
    mild, strong = as_claim(HEAD | {"says": "attends"}), as_claim("L1H0 implements induction")
    assert sentence_part(mild, [ATTENDS]).answer == "confirmed"
    assert sentence_part(as_claim(HEAD), [ATTENDS]).answer == "refuted"
    assert sentence_part(as_claim(HEAD), [ATTENDS, MATTERS]).answer == "confirmed"
    said = sentence_part(strong, [ATTENDS, MATTERS])
    assert said.answer == "refuted"
    texts(said.summary)


def test_an_undecided_intervention_leaves_the_wording_undecided():
    undecided = dataclasses.replace(MATTERS, answer="undecided")
    refuted = dataclasses.replace(MATTERS, answer="refuted")
    assert sentence_part(as_claim(HEAD), [ATTENDS, undecided]).answer == "undecided"
    assert sentence_part(as_claim(HEAD), [ATTENDS, refuted]).answer == "refuted"


def test_a_test_that_cannot_be_made_leaves_the_wording_untestable():
    """Unless what was tested earns the word already."""
    untestable = dataclasses.replace(MATTERS, answer="not_testable")
    assert sentence_part(as_claim(HEAD), [ATTENDS, untestable]).answer == "not_testable"
    mild = as_claim(HEAD | {"says": "attends"})
    assert sentence_part(mild, [ATTENDS, untestable]).answer == "confirmed"


def test_what_other_heads_lack_is_no_effect_of_this_one():
    """That no other head contributes is found by a knockout, of the others."""
    complete = Part("all", "confirmed", "no more. More", "intervened")
    refuted = dataclasses.replace(MATTERS, answer="refuted")
    assert sentence_part(as_claim(HEAD), [ATTENDS, refuted, complete]).answer == "refuted"


def test_nothing_confirmed_earns_no_word():
    found = sentence_part(as_claim(HEAD), [Part("there", "undecided", "?", "observed")])
    assert found.answer == "refuted"
    assert "nothing was confirmed" in found.summary


def test_a_circuit_that_is_enough_and_needed_may_be_called_a_mechanism():
    both = as_claim({"circuit": ["m0->logits"], "says": "both"})
    alone = Part("all", "confirmed", "alone", "intervened", True)
    assert sentence_part(both, [alone, MATTERS]).answer == "confirmed"
    assert sentence_part(both, [alone]).answer == "refuted"
