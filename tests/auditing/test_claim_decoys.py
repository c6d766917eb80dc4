"""Decoys of claims about circuits, pairs, directions and amounts are not confirmed."""

import pytest

import interp_toolkit as it
from interp_toolkit.auditing.claims.kinds import as_claim
from interp_toolkit.errors import InputError


@pytest.mark.parametrize("subject", ["composition", "pair", "direction", "threshold"])
def test_no_decoy_is_confirmed_and_no_true_claim_refuted(subject, benchmarks):
    decoys = benchmarks("claim_decoys")
    for asked in decoys.SUBJECTS[subject](20):
        if asked.subject == decoys.LIMIT:
            continue
        answer, _ = decoys.answered(asked)
        assert answer != ("refuted" if asked.true else "confirmed"), asked.kind


def test_a_claim_on_synthetic_prompts_says_so_and_reads_as_itself():
    found = it.audit("toy:induction", "L1H0 is an induction head").claims[0]
    plain = as_claim({"heads": ["L1H0"], "relation": "induction"})
    assert found.about != plain.about
    assert found.about == plain.on_synthetic_prompts().about
    again = it.audit("toy:induction", found.about).claims[0]
    assert (again.about, again.answer) == (found.about, found.answer)


def test_a_claim_on_synthetic_prompts_is_not_tested_on_others(benchmarks):
    decoys = benchmarks("claim_decoys")
    model, data = decoys.inducing(decoys._Draw(0, 1))
    claim = {"heads": ["L1H0"], "relation": "induction"}
    assert it.audit(model, claim, data=data).claims[0].about.endswith("task")
    with pytest.raises(InputError, match="--data"):
        it.audit(model, claim | {"prompts": "synthetic"}, data=data)


def test_a_circuit_on_synthetic_prompts_says_so():
    claim = {"circuit": ["a0.h1->a1.h0<k>"], "says": "necessary"}
    found = it.audit("toy:induction", claim).claims[0]
    assert "synthetic" in found.about
    assert it.audit("toy:induction", claim).provenance.settings["claims"][0]["prompts"]
