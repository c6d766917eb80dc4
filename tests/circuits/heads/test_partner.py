import numpy as np
import pytest
import torch

import interp_toolkit as it
from interp_toolkit.circuits.edges.passes.paths import induction_keys, path_effects
from interp_toolkit.circuits.heads.attention_knockout import INTACT, Knockout, KnockoutRunner
from interp_toolkit.circuits.heads.partner import Partner, _partner, partners
from interp_toolkit.circuits.metrics.prompts import repeated_prompts
from interp_toolkit.circuits.metrics.repetition import repetition_losses
from interp_toolkit.circuits.metrics.task import task_of
from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Head
from interp_toolkit.models.running.interventions import edit
from interp_toolkit.models.weights.view import weights
from interp_toolkit.results import head_name
from interp_toolkit.stats import Estimate, holm
from interp_toolkit.toys.hand_set.induction import (
    DECOY_HEAD,
    GQA_INDUCTION_HEAD,
    INDUCTION_HEAD,
    PREVIOUS_HEAD,
    induction,
    induction_decoy,
    induction_gqa,
    induction_rotary,
)

CIRCUITS = [
    (induction, INDUCTION_HEAD),
    (induction_rotary, INDUCTION_HEAD),
    (induction_gqa, GQA_INDUCTION_HEAD),
]


def named_partner(found: list[Partner]) -> Partner | None:
    return next((partner for partner in found if partner.named), None)


def cache(model, tokens):
    with torch.no_grad():
        return model.run_with_cache(tokens)[1]


def induction_share(pattern, prompts):
    """One query at a time."""
    shares = []
    for row, tokens in enumerate(prompts.tokens.tolist()):
        queries = prompts.repeated()[row].nonzero()[:, 0].tolist()
        paid = [
            sum(
                float(pattern[row, q, k])
                for k in range(prompts.first + 1, q)
                if tokens[k - 1] == tokens[q]
            )
            for q in queries
        ]
        shares.append(np.mean(paid))
    return np.array(shares)


@pytest.mark.parametrize(("toy", "head"), CIRCUITS)
def test_the_previous_token_head_is_named(toy, head):
    model = toy()
    found = partners(model, repeated_prompts(model), head)
    best = named_partner(found)
    assert (best.layer, best.head) == PREVIOUS_HEAD
    assert best == found[0]
    assert best.attention > 0.999
    assert best.attention_drop > 0.95
    assert best.low < best.attention_drop < best.high
    assert best.value_drop > 3
    assert best.k_composition == pytest.approx(1 / 128**0.5)  # 64 + 64 axes, 64 of them shared
    for other in found[1:]:
        assert not other.named
        assert other.attention_drop == pytest.approx(0, abs=1e-9)
        assert other.value_drop == pytest.approx(0, abs=1e-9)


def test_each_head_that_the_keys_need_is_named():
    """Two copies of the previous-token head write half of what the keys read each."""
    model = induction(score=6.0)
    attn, other = model.blocks[0].attn, 1 - PREVIOUS_HEAD[1]
    for name in ("W_Q", "W_K", "W_V"):
        values = getattr(attn, name).data
        values[other] = values[PREVIOUS_HEAD[1]]
    attn.W_O.data[PREVIOUS_HEAD[1]] /= 2
    attn.W_O.data[other] = attn.W_O.data[PREVIOUS_HEAD[1]]
    found = partners(model, repeated_prompts(model), INDUCTION_HEAD)
    named = {(partner.layer, partner.head) for partner in found if partner.named}
    assert named == {(0, 0), (0, 1)}
    result = it.analyze(model, "heads", detectors=["induction", "previous-token"])
    [reader] = [r for r in result.readers if (r.layer, r.head) == INDUCTION_HEAD]
    assert {(partner.layer, partner.head) for partner in reader.named} == named
    told = " ".join(result.findings)
    assert all(f"output of {head_name(*at)}" in told for at in named)


@pytest.mark.parametrize("channel", ["q", "v"])
def test_other_inputs_of_the_induction_head_are_not_made_by_it(channel):
    model = induction()
    found = path_effects(model, repeated_prompts(model), [PREVIOUS_HEAD], INDUCTION_HEAD, channel)
    assert np.abs(found.attention_drop).max() < 1e-9
    assert np.abs(found.value_drop).max() < 1e-9


def test_all_of_what_ablation_does_goes_along_the_one_path():
    model = induction()
    prompts = repeated_prompts(model)
    path = path_effects(model, prompts, [PREVIOUS_HEAD], INDUCTION_HEAD)
    runner = KnockoutRunner(model, task_of(model, prompts)[0], {})
    ablated = Knockout(way="mean", output=frozenset([Head(*PREVIOUS_HEAD)]))
    readings = runner.readings([INTACT, ablated], runner.task.rows)
    lost = (readings[INTACT] - readings[ablated])[:, 0].mean()
    assert path.value_drop.mean() == pytest.approx(lost, abs=1e-9)


def test_a_decoys_attention_is_made_by_it_and_the_behaviour_does_not_care():
    model = induction_decoy()
    best = named_partner(partners(model, repeated_prompts(model), DECOY_HEAD))
    assert (best.layer, best.head) == PREVIOUS_HEAD
    assert best.value_drop == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("kind", ["own", "hooked", "alibi", "gpt2", "neox", "llama", "bloom"])
@pytest.mark.parametrize("channel", ["q", "k", "v"])
def test_ablated_paths_are_what_the_model_itself_does_with_an_edited_input(zoo, kind, channel):
    """The reader's queries, keys or values are edited at their hook and the model runs on."""
    model = zoo(kind)
    prompts = repeated_prompts(model, rows=5)
    writer, reader = (0, 2), (1, 1)
    seen = cache(model, prompts.tokens)
    z = seen["blocks.0.attn.hook_z"]
    mean = torch.stack([z[[r for r in range(5) if r != row]].mean(0) for row in range(5)])
    first, w = weights(model).layer(0), weights(model).layer(1)
    residual = seen["blocks.1.hook_resid_pre"] - (z - mean)[:, :, 2] @ first.W_O[2]
    W, b = getattr(w, f"W_{channel.upper()}")[1], getattr(w, f"b_{channel.upper()}")[1]
    name = f"blocks.1.attn.hook_{channel}"
    n_there = seen[name].shape[2]  # grouped keys and values: the reader's group

    def put(value, hook):
        value = value.clone()
        value[:, :, 1 * n_there // 4] = w.norm(residual) @ W + b
        return value

    patched = {}
    reads = [
        (
            f"blocks.1.attn.hook_{n}",
            lambda value, hook, n=n: patched.update(
                {n: value[:, :, 1] if n == "z" else value[:, 1]}
            ),
        )
        for n in ("pattern", "z")
    ]
    with torch.no_grad():
        model.run_with_hooks(prompts.tokens, fwd_hooks=[(name, put), *reads])
    new_z = seen["blocks.1.attn.hook_z"].clone()
    new_z[:, :, 1] = patched["z"]
    with torch.no_grad():
        logits = model.run_with_hooks(
            prompts.tokens,
            fwd_hooks=[("blocks.1.attn.hook_z", lambda value, hook: new_z)],
        )
    found = path_effects(model, prompts, [writer], reader, channel)
    before = induction_share(seen["blocks.1.attn.hook_pattern"][:, 1], prompts)
    assert np.allclose(found.attention, before, atol=1e-5)
    after = induction_share(patched["pattern"], prompts)
    assert np.allclose(found.attention_drop[0], before - after, atol=1e-5)
    losses = -logits[:, :-1].log_softmax(-1).gather(-1, prompts.tokens[:, 1:, None])[..., 0]
    repeated = prompts.repeated()[:, :-1]
    without = [float(losses[r, repeated[r]].mean()) for r in range(5)]
    lost = without - repetition_losses(model, prompts).loss_repeated
    assert np.abs(lost).max() > 1e-4
    assert np.allclose(found.value_drop[0], lost, atol=1e-5)


def test_memory_changes_nothing(zoo):
    model = zoo("own-rotary")
    prompts = repeated_prompts(model, rows=6)
    large, small = (
        path_effects(model, prompts, [(0, 0), (0, 3)], (1, 1), memory=m) for m in (None, 400_000)
    )
    assert np.allclose(large.attention, small.attention, atol=1e-6)
    assert np.allclose(large.attention_drop, small.attention_drop, atol=1e-6)
    assert np.allclose(large.value_drop, small.value_drop, atol=1e-5)
    for memory in (None, 400_000):
        one = path_effects(model, prompts, [(0, 0), (0, 3)], (1, 1), value=1, memory=memory)
        largest = int(large.attention_drop.mean(1).argmax())
        assert np.allclose(one.value_drop[largest], large.value_drop[largest], atol=1e-5)
        assert np.isnan(one.value_drop[1 - largest]).all()


def test_on_every_kind_of_model(model, request, count_hooks):
    prompts = repeated_prompts(model, rows=4)
    before = count_hooks(model)
    refusals = {"own-bare": "bidirectional", "bert": "bidirectional"}
    refusal = refusals.get(request.node.callspec.params["model"])
    if refusal:
        with pytest.raises(InputError, match=refusal):
            partners(model, prompts, (1, 0))
        return
    found = partners(model, prompts, (1, 0))
    assert {(p.layer, p.head) for p in found} == {(0, head) for head in range(4)}
    drops = [p.attention_drop for p in found]
    assert drops == sorted(drops, reverse=True)
    assert count_hooks(model) == before


def test_a_head_of_the_first_layer_has_no_partner(zoo):
    assert partners(zoo("own"), repeated_prompts(zoo("own"), rows=4), (0, 1)) == []


def test_induction_keys_follow_the_querys_token():
    model = induction()
    prompts = repeated_prompts(model, rows=3, n_pos=20, bos=0)
    keys = induction_keys(prompts, torch.tensor([0, 2]))
    for row, mask in zip((0, 2), keys, strict=True):
        tokens = prompts.tokens[row].tolist()
        expected = [
            [1 < k < q and tokens[k - 1] == tokens[q] for k in range(20)] for q in range(20)
        ]
        assert mask.tolist() == expected


def test_wrong_input(zoo, texts):
    model = zoo("own")
    prompts = repeated_prompts(model, rows=4)
    with pytest.raises(InputError, check=texts):
        path_effects(model, prompts, [(1, 0)], (1, 1))
    with pytest.raises(InputError, match="no head 8 in layer 0"):
        path_effects(model, prompts, [(0, 8)], (1, 1))
    with pytest.raises(InputError, check=texts):
        path_effects(model, prompts, [], (1, 1))


def test_a_stream_that_is_not_a_sum_is_refused(zoo, texts):
    model = zoo("own")
    prompts = repeated_prompts(model, rows=4)
    with (
        edit(model, {"blocks.0.hook_resid_post": lambda value, hook: 2 * value}),
        pytest.raises(InputError, check=texts),
    ):
        path_effects(model, prompts, [(0, 0)], (1, 1))


def test_p_values_are_corrected_over_candidates(zoo):
    found = partners(zoo("own"), repeated_prompts(zoo("own"), rows=6), (1, 1))
    adjusted = holm(np.array([partner.p_value for partner in found]))
    assert [partner.p_adjusted for partner in found] == pytest.approx(adjusted.tolist())
    assert any(partner.p_adjusted > partner.p_value for partner in found)


@pytest.mark.parametrize(("drop", "named"), [(0.04, False), (0.06, True), (-0.5, False)])
def test_a_partner_makes_a_material_part_of_the_attention(drop, named):
    lost = Estimate(drop, drop - 0.001, drop + 0.001, 1e-9, 16)
    partner = _partner((0, 1), 0.1, 1.0, lost, 1e-8, None)
    assert partner.named is named
