"""Claims about how a model sorts, on the hand-set sorters."""

import pytest

import interp_toolkit as it
from interp_toolkit.errors import InputError
from interp_toolkit.toys.sorting import sort_argmax, sort_min_greater

MAKERS = {"argmax_piecewise_linear": sort_argmax, "min_greater_than_previous": sort_min_greater}


@pytest.mark.slow
@pytest.mark.parametrize("made", list(MAKERS))
def test_the_sorters(made):
    model = it.load("toy:sort-argmax" if made.startswith("argmax") else "toy:sort-min-greater")
    found = it.audit(model, [{"algorithm": name} for name in MAKERS])
    answers = {claim.about: claim.answer for claim in found.claims}
    for name in MAKERS:
        wanted = "confirmed" if name == made else "refuted"
        assert answers[f"the model sorts random lists by {name}"] == wanted


def test_a_model_that_does_not_sort():
    from interp_toolkit.models.running.interventions import reinitialised

    model = sort_argmax(6, 4)
    with reinitialised(model, 1):
        layout = "6 list1-4 7 pad8"
        claim = {"algorithm": "argmax_piecewise_linear", "layout": layout}
        found = it.audit(model, [claim]).claims[0]
    assert found.answer == "not_testable"


def test_without_a_layout_it_says_what_is_missing():
    with pytest.raises(InputError, match="layout"):
        it.audit("toy:xor-2head", [{"algorithm": "argmax_piecewise_linear"}])
