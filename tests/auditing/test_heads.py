"""Claims about heads, on models whose heads are known."""

import re

import numpy as np
import pytest
import torch

import interp_toolkit as it
from interp_studies.challenge.families.layouts import Layout
from interp_studies.challenge.families.shared_work import Work, shared_work
from interp_toolkit.auditing import heads
from interp_toolkit.auditing.claims.kinds import HeadsClaim
from interp_toolkit.auditing.context import audit_context
from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Head
from interp_toolkit.toys.hand_set.induction import decoy, induction


@pytest.fixture(scope="module")
def model():
    return induction(32, 24)


def asked(model, head, relation, data=None, **claim):
    given = {"heads": [head], "relation": relation, **claim}
    return it.audit(model, [given], data=data).claims[0]


def by_question(claim):
    return {part.question: part for part in claim.parts}


def test_both_heads_of_the_induction_circuit(model):
    found = it.audit(
        model,
        [
            {"heads": ["L1H0"], "relation": "induction", "says": "carries"},
            {"heads": ["L0H1"], "relation": "previous-token", "says": "carries"},
        ],
    )
    assert [claim.answer for claim in found.claims] == ["confirmed", "confirmed"]
    assert found.status == "confirmed"


def test_heads_of_another_relation_are_refuted(model):
    found = asked(model, "L0H1", "induction")
    assert found.answer == "refuted"
    assert by_question(found)["matters"].answer == "refuted"


def test_a_decoy_attends_and_does_nothing():
    """The behavior cannot be tested on a model that does not do it; attention can."""
    found = by_question(asked(decoy(), "L1H0", "induction"))
    assert found["matters"].answer == "not_testable"


def planted(**settings):
    work = Work(Layout("induction", 12, 20), decoys=2, seed=3, **settings)
    model = shared_work(work, torch.float32)
    return model, work.layout.rows(384, 5), model.ground_truth


def test_decoys_beside_the_real_head():
    model, data, truth = planted()
    ((relation, *true),) = [at for at in truth.true if at[0] == "induction"] or [None]
    decoys = [at[1:] for at in truth.attends - truth.true if at[0] == relation]
    assert asked(model, list(true), "induction", data).answer == "confirmed"
    found = asked(model, list(decoys[0]), "induction", data)
    parts = by_question(found)
    assert parts["there"].answer == "confirmed"
    assert parts["matters"].answer == "refuted"
    assert found.answer == "refuted"
    assert asked(model, list(decoys[0]), "induction", data, says="attends").answer == "confirmed"


def test_a_head_that_another_backs_up_is_confirmed_by_what_it_restores(texts):
    model, data, truth = planted(n=2, sharing="redundant")
    true = sorted(at[1:] for at in truth.true if at[0] == "induction")
    assert len(true) == 2
    for head in true:
        found = by_question(asked(model, list(head), "induction", data))
        assert found["matters"].answer == "confirmed"
        texts(found["matters"].summary)
        assert found["all"].answer == "refuted"  # the other one still carries it


def test_attention_of_heads_not_shown_to_have_the_pattern_does_not_refute_alone(monkeypatch):
    """That no other head does the work is refuted by heads that are shown to have the pattern."""
    model, data, truth = planted(n=2, sharing="redundant")
    head = min(at[1:] for at in truth.true if at[0] == "induction")
    monkeypatch.setattr(heads._HeadAudit, "same_type", [])
    found = by_question(asked(model, list(head), "induction", data))
    assert found["all"].low > 0
    assert found["all"].answer == "undecided"


def test_few_rows_decide_nothing_rather_than_the_wrong_thing():
    model, data, truth = planted()
    (true,) = [at[1:] for at in truth.true if at[0] == "induction"]
    few = data.at(torch.arange(6).numpy())
    assert asked(model, list(true), "induction", few).answer in ("undecided", "confirmed")
    decoys = [at[1:] for at in truth.attends - truth.true if at[0] == "induction"]
    assert asked(model, list(decoys[0]), "induction", few).answer in ("undecided", "not_testable")


def test_what_the_claim_is_compared_with_is_recorded_in_its_unit():
    model, data, truth = planted(n=2, noise=0.2)
    true = {at[1:] for at in truth.true if at[0] == "induction"}
    for head in (min(true), (1, 2)):
        parts = by_question(asked(model, list(head), "induction", data))
        special, effects = parts["special"], parts["special"].effects
        difference = effects["attention"][0] - effects["elsewhere"][0]
        assert special.value == pytest.approx(difference, abs=1e-6)
        assert effects["attention"][0] == pytest.approx(parts["matters"].value, abs=1e-6)


def test_the_whole_head_is_ablated_where_its_attention_is_knocked_out():
    """Of heads that back each other up one alone costs nothing, by its attention or as a whole."""
    model, data, truth = planted(n=2, sharing="redundant")
    head = min(at[1:] for at in truth.true if at[0] == "induction")
    matters = by_question(asked(model, list(head), "induction", data))["matters"]
    assert matters.answer == "confirmed"
    assert matters.effects["whole head alone, mean"][0] < 0.05
    for way in ("mean", "resample"):
        assert matters.effects[f"whole head after others, {way}"][1] > 0.05


def test_attention_is_denied_only_where_no_query_could_have_it():
    model, data, _ = planted(n=2, noise=0.2)
    uniform = by_question(asked(model, "L1H2", "induction", data))
    assert (uniform["matters"].answer, uniform["there"].answer) == ("undecided", "undecided")
    idle = by_question(asked(induction(32, 24), "L0H1", "induction"))
    assert (idle["matters"].answer, idle["there"].answer) == ("refuted", "refuted")
    context, _ = audit_context(model, None, seed=0, level=0.05, claims=1)
    claim = HeadsClaim(heads=("L1H2",), relation="induction", says="contributes")

    def most(excess):
        audit = heads._HeadAudit(claim, context, Head(1, 2))
        audit.__dict__["_by_query"] = [np.asarray(excess, dtype=float)]
        return audit._most_at_a_query()

    rng = np.random.default_rng(0)
    little = rng.normal(0.0, 0.01, (64, 12))
    assert most(little) < 0.05
    at_one_query = little.copy()
    at_one_query[:, 7] = 1.0  # the mean over queries is 8 %
    assert most(at_one_query) > 0.9
    at_one_query[8:, 7] = np.nan
    assert most(at_one_query) > 0.9
    assert np.isnan(most(np.full((64, 12), np.nan)))


def test_a_head_that_is_not_there(model, texts):
    with pytest.raises(InputError, match="L7H0", check=texts):
        asked(model, "L7H0", "induction")
    with pytest.raises(InputError, match="induktion"):
        asked(model, "L0H0", "induktion")


def test_no_more_than_all_of_an_accuracy_is_told_as_lost(benchmarks):
    """Below chance, by being certain of something wrong: that is all of it, and no more."""
    planted = benchmarks("decoys").true_previous(20)
    found = it.audit(
        planted.model,
        {"heads": [planted.claims[0].head], "relation": "previous-token"},
        data=planted.data,
    ).claims[0]
    for part in found.parts:
        assert all(float(number) <= 100 for number in re.findall(r"([\d.]+)%", part.summary))
        for number in (part.value, part.low, part.high):
            assert number is None or number <= 1
