"""Claims about circuits, on models whose circuit is known."""

import pytest

import interp_toolkit as it
from interp_toolkit.auditing.circuit import edges_of, sufficient
from interp_toolkit.circuits.edges.wiring import Wiring
from interp_toolkit.errors import InputError
from interp_toolkit.stats import Share
from interp_toolkit.toys.hand_set.induction import induction

TRUE = ["input->a0.h1<v>", "a0.h1->a1.h0<k>", "input->a1.h0<q>", "input->a1.h0<v>", "a1.h0->logits"]


@pytest.fixture(scope="module")
def model():
    return induction(32, 24)


def asked(model, circuit, says="both"):
    return it.audit(model, [{"circuit": circuit, "says": says}]).claims[0]


def test_the_induction_circuit_is_enough_and_needed(model):
    found = asked(model, TRUE)
    assert found.answer == "confirmed"
    assert {p.question: p.answer for p in found.parts}["sentence"] == "confirmed"


def test_without_the_key_edge_it_is_not_enough(model):
    found = asked(model, [name for name in TRUE if "<k>" not in name], "sufficient")
    assert found.answer == "refuted"


def test_needed_is_not_enough(model, texts):
    edge = ["a1.h0->logits"]
    assert asked(model, edge, "necessary").answer == "confirmed"
    found = asked(model, edge, "sufficient")
    assert found.answer == "refuted"
    there = next(p for p in found.parts if p.question == "there")
    assert there.answer == "refuted"
    texts(there.summary)


def test_nodes_stand_for_the_edges_between_them():
    wiring = Wiring(2, 2, 8, (False, False), parallel=False)
    names = {edge.name for edge in edges_of(("L0H1", "L1H0"), wiring)}
    assert names == {
        "input->logits", "L0H1->logits", "L1H0->logits",
        *(f"input->{head}<{c}>" for head in ("L0H1", "L1H0") for c in "qkv"),
        *(f"L0H1->L1H0<{c}>" for c in "qkv"),
    }  # fmt: skip
    assert len(edges_of(("L0H1->L1H0",), wiring)) == 3


@pytest.mark.parametrize(
    "names",
    [
        ["a0.h9->logits"],
        ["m0"],
        ["a1.h0->a0.h0<k>"],
    ],
)
def test_edges_that_are_not_there(model, names, texts):
    with pytest.raises(InputError, check=texts):
        asked(model, names)


def test_more_than_the_model_has_is_not_the_same():
    assert sufficient(Share(1.5, 1.4, 1.6), 0.2) == "refuted"
    assert sufficient(Share(1.0, 0.9, 1.1), 0.2) == "confirmed"
    assert sufficient(Share(1.0, 0.7, 1.1), 0.2) == "undecided"
