"""The doctor finds each of the faults of issue 16 planted into live models, and mutants beyond."""

from __future__ import annotations

import planted_faults as plant
import pytest

import interp_toolkit as it

FIRES, REACHES = "hook_resid_post fires", "hook_resid_post reaches"
EMBEDDED = "the first residual stream is the embedding"
PATTERN, Z = "patterns from queries and keys", "mixed values from patterns and values"
LOGITS = "logits from the last residual stream"
FOLDED = "norms are folded as cfg says"
SET, OWN_SET = "loading the state dict sets every tensor", "this object's load_state_dict sets"
BOS = "BOS at most once"
MASK, CAUSAL = "patterns respect the mask", "padding on the right changes nothing"
BATCH = "a row has the same logits alone and in a batch"
SAME = "a fresh copy with this state dict gives the same logits"

EVERYWHERE = ("own", "hooked", "gpt2", "llama", "native")
#: the fault, the models, and checks of which each has to fail
PLANTED = [
    (plant.never_fires, EVERYWHERE, [FIRES]),
    (plant.thrown_away, EVERYWHERE, [REACHES]),
    (plant.unscaled_embedding, ("own", "hooked", "gemma2", "native"), [EMBEDDED]),
    (plant.wrong_groups, ("own-rotary", "hooked-rotary", "llama", "mistral"), [Z]),
    (plant.no_score_cap, ("own-capped", "hooked-capped", "gemma2"), [PATTERN]),
    (plant.no_logit_cap, ("own-capped", "hooked-capped", "gemma2"), [LOGITS]),
    (plant.double_bos, ("gpt2-tokens", "llama-tokens", "hooked-tokens"), [BOS]),
    (plant.folded_told_unfolded, ("own", "hooked", "hooked-rotary", "gpt2", "neox"), [FOLDED]),
    (plant.reload_forgets, EVERYWHERE, [OWN_SET]),
    (plant.state_forgets, EVERYWHERE, [SET]),
    (plant.wrong_rotary_base, ("own-rotary", "hooked-rotary", "llama"), ["rotary tables"]),
    (plant.leaky_mask, ("own", "hooked"), [MASK, CAUSAL]),
    (plant.batch_mixes, ("own", "hooked", "gpt2"), [BATCH]),
    (plant.wrong_eps, EVERYWHERE, [SAME]),
    (plant.wrong_scale, ("own", "hooked", "llama", "gemma2"), [SAME]),
    (plant.half_thrown_away, EVERYWHERE, ["edits of every position and head reach the logits"]),
    (plant.half_attention, ("own", "hooked"), ["the residual stream adds up"]),
]
CASES = [
    pytest.param(fault, kind, checks, id=f"{fault.__name__}-{kind}")
    for fault, kinds, checks in PLANTED
    for kind in kinds
]


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "kind", "checks"), CASES)
def test_a_planted_fault_is_found(made, fault, kind, checks) -> None:
    model = made(kind)
    fault(model)
    result = it.doctor(model)
    assert result.status == "faults_found"
    for name in checks:
        assert any(check.name.startswith(name) for check in result.faults), result.faults
    assert result.evidence.bare_passes < 20


@pytest.mark.parametrize("kind", ["own", "gpt2"])
def test_a_wrong_weight_shows_beside_the_original_alone(made, kind) -> None:
    model, original = made(kind), made(kind)
    plant.transposed_head(model)
    alone, beside = it.doctor(model), it.doctor(model, original=original)
    assert alone.status == "sound"
    assert [check.section for check in beside.faults] == ["original"]
