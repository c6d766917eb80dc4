import gc

import numpy as np
import pytest
import torch
from scipy import stats

from interp_toolkit.circuits.heads.ablation import ablation_effects
from interp_toolkit.circuits.metrics.prompts import repeated_prompts
from interp_toolkit.circuits.metrics.repetition import repetition_losses
from interp_toolkit.circuits.metrics.task import RepeatTask
from interp_toolkit.errors import InputError
from interp_toolkit.models.running.interventions import edit, put_heads, require_heads
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.hand_set.induction import (
    DECOY_HEAD,
    GQA_INDUCTION_HEAD,
    INDUCTION_HEAD,
    PREVIOUS_HEAD,
    decoy,
    induction,
    induction_decoy,
    induction_gqa,
    induction_rotary,
)

HOWS = ("mean", "resample", "zero")
CIRCUITS = [
    (induction, INDUCTION_HEAD),
    (induction_rotary, INDUCTION_HEAD),
    (induction_gqa, GQA_INDUCTION_HEAD),
]


def z_of(model, tokens, layer):
    name = f"blocks.{layer}.attn.hook_z"
    with torch.no_grad():
        return model.run_with_cache(tokens, names_filter=name)[1][name].clone()


def loss_with(model, prompts, layer, z):
    """The loss of told tokens when a layer's heads hold z, through TransformerLens's own hooks."""
    name = f"blocks.{layer}.attn.hook_z"
    with torch.no_grad():
        logits = model.run_with_hooks(
            prompts.tokens, fwd_hooks=[(name, lambda value, hook: z.to(value))]
        )
    losses = -logits[:, :-1].double().log_softmax(-1)
    losses = losses.gather(-1, prompts.tokens[:, 1:, None])[..., 0].numpy()
    repeated = prompts.repeated()[:, :-1].numpy()
    return (losses * repeated).sum(1) / repeated.sum(1)


@pytest.mark.parametrize(("toy", "head"), CIRCUITS)
@pytest.mark.parametrize("how", HOWS)
def test_the_induction_head_carries_the_behaviour(toy, head, how):
    model = toy()
    found = ablation_effects(model, repeated_prompts(model), [head], how=how)
    (ablation,) = found.heads
    assert (ablation.layer, ablation.head) == head
    assert ablation.word == "major"
    assert ablation.loss_intact < 0.1
    assert ablation.loss_ablated > 1
    assert ablation.restored == pytest.approx(ablation.effect)
    assert all(effect < ablation.effect for effect in found.others.values())
    assert found.joint.mean == pytest.approx(ablation.effect)


@pytest.mark.parametrize(("toy", "head"), CIRCUITS)
def test_without_the_induction_head_nothing_is_left(toy, head):
    """All logits are zero then, so the loss is that of a guess among all tokens, row by row."""
    model = toy()
    found = ablation_effects(model, repeated_prompts(model), [head], how="zero")
    guess = np.log(model.cfg.d_vocab)
    assert found.heads[0].loss_ablated == pytest.approx(guess, abs=1e-5)
    assert found.heads[0].effect == pytest.approx(guess + found.intact.mean(), abs=1e-5)


@pytest.mark.parametrize("how", HOWS)
def test_a_decoy_beside_the_true_head_has_no_effect(how):
    model = induction_decoy()
    found = ablation_effects(model, repeated_prompts(model), [DECOY_HEAD, INDUCTION_HEAD], how=how)
    false, true = found.heads
    assert (false.word, true.word) == ("negligible", "major")
    assert false.effect == pytest.approx(0, abs=1e-9)
    assert false.restored == pytest.approx(0, abs=1e-9)
    assert false.loss_ablated == pytest.approx(false.loss_intact, abs=1e-9)


def test_of_a_model_that_makes_no_use_of_repetition_nothing_is_tested(texts):
    model = decoy()
    found = ablation_effects(model, repeated_prompts(model), [DECOY_HEAD])
    assert found.heads[0].word == "not_tested"
    texts(found.notes[0])


def twins(gain):
    """The induction circuit with its induction head twice, both writing half of `gain`."""
    model = induction(gain=gain)
    attn = model.blocks[1].attn
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        getattr(attn, name).data[1] = getattr(attn, name).data[0]
    attn.W_O.data /= 2
    return model


def test_effects_of_twins_are_those_of_half_the_gain():
    model = twins(20.0)
    prompts = repeated_prompts(model)
    found = ablation_effects(model, prompts, [(1, 0), (1, 1)], how="zero")
    one = repetition_losses(induction(gain=10.0), prompts).loss_repeated.mean()
    guess = np.log(model.cfg.d_vocab)
    for twin in found.heads:
        assert twin.effect == pytest.approx(found.intact.mean() + one, abs=1e-5)
        assert twin.restored == pytest.approx(guess - one, abs=1e-5)
        assert twin.word == "major"
    assert found.joint.mean == pytest.approx(found.intact.mean() + guess, abs=1e-5)


def test_a_redundant_head_shows_in_what_it_restores():
    """Where logits are 10 or nothing, one of two twins is as good as both."""
    model = twins(20.0)

    def all_or_nothing(value, hook):
        large = (value > 7).to(value)
        large[:, :4] = 0  # attention to so few keys is large on each
        return 10.0 * large

    with edit(model, {"unembed.hook_in": all_or_nothing}):
        found = ablation_effects(model, repeated_prompts(model), [(1, 0), (1, 1)], how="zero")
    for twin in found.heads:
        assert twin.effect == pytest.approx(0, abs=1e-9)
        assert twin.restored == pytest.approx(found.joint.mean, abs=1e-9)
        assert twin.word == "major"


def test_what_a_redundant_head_restores_is_measured_with_its_kin_out():
    model = twins(20.0)

    def all_or_nothing(value, hook):
        large = (value > 7).to(value)
        large[:, :4] = 0
        return 10.0 * large

    with edit(model, {"unembed.hook_in": all_or_nothing}):
        prompts = repeated_prompts(model)
        found = ablation_effects(model, prompts, [(1, 0)], same_type=[(1, 1)], how="zero")
    (twin,) = found.heads
    assert twin.effect == pytest.approx(0, abs=1e-9)
    assert twin.restored == pytest.approx(found.joint.mean, abs=1e-9)
    assert twin.word == "major"
    assert (1, 1) not in found.others


def test_heads_of_which_two_are_needed_are_not_denied():
    """Two of three carry the behaviour: none has an effect by itself, none restores it alone."""
    model = induction_gqa(gain=10.0)
    attn = model.blocks[1].attn
    attn._W_K.data[0], attn._W_V.data[0] = attn._W_K.data[1], attn._W_V.data[1]
    three = [(1, 1), (1, 2), (1, 3)]
    for head in (1, 3):
        for name in ("W_Q", "W_O"):
            getattr(attn, name).data[head] = getattr(attn, name).data[2]

    def two_of_three(value, hook):
        large = (value > 15).to(value)
        large[:, :4] = 0
        return 10.0 * large

    with edit(model, {"unembed.hook_in": two_of_three}):
        found = ablation_effects(model, repeated_prompts(model), three, how="zero")
    assert found.joint.low > 1
    for head in found.heads:
        assert head.effect == pytest.approx(0, abs=1e-9)
        assert head.restored == pytest.approx(0, abs=1e-9)
        assert head.word == "undecided"


def test_effects_of_other_heads_stand_beside():
    model = induction()
    found = ablation_effects(model, repeated_prompts(model), [INDUCTION_HEAD])
    assert found.others[PREVIOUS_HEAD] > 0.8 * found.heads[0].effect


def test_mean_is_that_of_the_other_rows(zoo):
    model = zoo("own")
    prompts = repeated_prompts(model, rows=5)
    z = z_of(model, prompts.tokens, 1)
    for row in range(5):
        others = [other for other in range(5) if other != row]
        z[row, :, 2] = z_of(model, prompts.tokens, 1)[others, :, 2].mean(0)
    lost = loss_with(model, prompts, 1, z) - repetition_losses(model, prompts).loss_repeated
    found = ablation_effects(model, prompts, [(1, 2)])
    assert found.heads[0].effect == pytest.approx(lost.mean(), abs=1e-5)


def test_resampling_takes_another_row_for_each(zoo):
    model = zoo("own")
    prompts = repeated_prompts(model, rows=5)
    plain, intact = z_of(model, prompts.tokens, 0), repetition_losses(model, prompts).loss_repeated
    possible = []
    for shift in range(1, 5):
        z = plain.clone()
        z[:, :, 3] = plain.roll(shift, 0)[:, :, 3]
        possible.append((loss_with(model, prompts, 0, z) - intact).mean())
    drawn = {
        round(
            ablation_effects(model, prompts, [(0, 3)], how="resample", seed=seed).heads[0].effect, 4
        )
        for seed in range(6)
    }
    assert drawn <= {round(effect, 4) for effect in possible}
    assert len(drawn) > 1


@pytest.mark.parametrize("how", HOWS)
def test_memory_changes_nothing(zoo, how):
    model = zoo("llama")
    prompts = repeated_prompts(model, rows=6)
    heads = [(0, 1), (1, 2)]
    runs = [ablation_effects(model, prompts, heads, how=how, memory=m) for m in (None, 40_000)]
    for large, small in zip(*(run.heads for run in runs), strict=True):
        assert large.effect == pytest.approx(small.effect, abs=1e-5)
        assert large.restored == pytest.approx(small.restored, abs=1e-5)


def test_on_every_kind_of_model(model, request, count_hooks):
    prompts = repeated_prompts(model, rows=4)
    before = count_hooks(model)
    if request.node.callspec.params["model"] in ("own-bare", "bert"):
        with pytest.raises(InputError, match="bidirectional"):
            ablation_effects(model, prompts, [(1, 0)])
        return
    found = ablation_effects(model, prompts, [(1, 0), (0, 3)], n_others=2)
    z = z_of(model, prompts.tokens, 1)
    z[:, :, 0] = (z[:, :, 0].sum(0) - z[:, :, 0]) / 3
    lost = loss_with(model, prompts, 1, z) + found.intact
    assert found.heads[0].effect == pytest.approx(lost.mean(), abs=1e-4)
    assert len(found.others) == 2
    assert count_hooks(model) == before


def test_other_heads_come_from_the_same_layers_first(zoo, texts):
    model = zoo("own")
    prompts = repeated_prompts(model, rows=4)
    found = ablation_effects(model, prompts, [(1, 0)], n_others=3)
    assert set(found.others) == {(1, 1), (1, 2), (1, 3)}
    assert not found.notes or "other heads" not in found.notes[-1]
    few = ablation_effects(model, prompts, [(1, 0)], others=[(0, 2), (1, 0)])
    assert set(few.others) == {(0, 2)}
    texts(few.notes[-1])
    none = ablation_effects(model, prompts, [(1, 0)], others=[])
    assert np.isnan(none.heads[0].others_mean)


def test_a_group_of_none(zoo):
    found = ablation_effects(zoo("own"), repeated_prompts(zoo("own"), rows=4), [])
    assert found.heads == []
    assert found.joint is None


@pytest.mark.parametrize("seed", range(6))
def test_no_head_of_an_untrained_model_is_responsible_for_anything(seed):
    torch.manual_seed(seed)
    sizes = {"n_layers": 2, "d_model": 32, "d_head": 8, "n_heads": 4, "n_ctx": 48, "d_vocab": 32}
    model = Transformer(TransformerConfig(**sizes, attn_only=True, normalization_type="LN"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += (0.5 if seed % 2 else 0.05) * torch.randn(parameter.shape)
    heads = [(layer, head) for layer in (0, 1) for head in range(4)]
    found = ablation_effects(model, repeated_prompts(model, seed=seed), heads)
    assert all(ablation.word == "not_tested" for ablation in found.heads)


def test_of_one_pass_at_a_time_are_logits_held(zoo, monkeypatch) -> None:
    """Those of the pass before, or of the intact one, were several times what memory allows."""
    held: list[int] = []
    read = RepeatTask.read

    def counted(task: RepeatTask, logits: torch.Tensor, rows: torch.Tensor) -> np.ndarray:
        tensors = (t for t in gc.get_objects() if type(t) is torch.Tensor)
        held.append(len({t.data_ptr() for t in tensors if t.shape == logits.shape}))
        return read(task, logits, rows)

    monkeypatch.setattr(RepeatTask, "read", counted)
    model = zoo("own")
    ablation_effects(model, repeated_prompts(model, rows=4), [(0, 1), (1, 0)])
    assert len(held) > 4
    assert set(held) == {1}


def test_hooks_are_gone_after_an_error(zoo, count_hooks):
    model = zoo("gpt2")

    def fail(step):
        if "ablation: 2 of" in step:
            raise RuntimeError(step)

    with pytest.raises(RuntimeError, match="ablation: 2 of"):
        ablation_effects(model, repeated_prompts(model, rows=4), [(0, 1)], progress=fail)
    assert count_hooks(model) == 0


def test_wrong_input(zoo):
    model = zoo("own")
    prompts = repeated_prompts(model, rows=4)
    with pytest.raises(InputError, match="no head 9 in layer 0"):
        ablation_effects(model, prompts, [(0, 9)])
    with pytest.raises(InputError, match="no head 0 in layer 7"):
        ablation_effects(model, prompts, [(0, 1)], others=[(7, 0)])
    with pytest.raises(InputError, match="how is"):
        ablation_effects(model, prompts, [(0, 1)], how="median")
    with pytest.raises(InputError, match="no head 9 in layer 0"):
        require_heads(model, [(0, 9)])


def test_values_are_put_where_they_belong(model, tokens, count_hooks):
    before, z = count_hooks(model), z_of(model, tokens, 1)
    values = {(1, 3): torch.randn(z[:, :, 0].shape), (1, 0): torch.randn(z[:, :, 0].shape)}
    z[:, :, 0], z[:, :, 3] = values[1, 0], values[1, 3]
    require_heads(model, values)
    with torch.no_grad(), put_heads(model, values):
        edited = model(tokens)
    with torch.no_grad():
        hooks = [("blocks.1.attn.hook_z", lambda value, hook: z)]
        assert torch.allclose(edited, model.run_with_hooks(tokens, fwd_hooks=hooks), atol=1e-5)
    assert count_hooks(model) == before


def test_intervals_are_simultaneous_over_effects_and_restored_values(zoo):
    prompts = repeated_prompts(zoo("own"), rows=6)
    group = [(0, 1), (1, 2), (1, 3)]
    wide = ablation_effects(zoo("own"), prompts, group).heads[0]
    narrow = ablation_effects(zoo("own"), prompts, group[:1]).heads[0]
    assert wide.effect == pytest.approx(narrow.effect, abs=1e-6)
    ratio = (wide.high - wide.low) / (narrow.high - narrow.low)
    t = [stats.t.ppf(1 - 0.025 / looks, 5) for looks in (6, 2)]
    assert ratio == pytest.approx(t[0] / t[1], rel=1e-6)
