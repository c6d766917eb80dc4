import itertools

import numpy as np
import pytest
import torch

import interp_toolkit as it
from interp_toolkit.errors import InputError, InterventionError
from interp_toolkit.models.running import effect, interventions
from interp_toolkit.models.running.effect import everything
from interp_toolkit.models.running.interventions import (
    ablate,
    edit,
    head_means,
    put_heads,
    reinitialised,
    require_heads,
)


@pytest.fixture
def logits(tokens):
    def run(model, rows=tokens):
        with torch.no_grad():
            return model(rows)

    return run


def patched(model, rows, by_hook):
    """Logits with whole hook values put in place: what an ablation should have done."""
    hooks = [(name, lambda value, hook, new=new: new) for name, new in by_hook.items()]
    with torch.no_grad():
        return model.run_with_hooks(rows, fwd_hooks=hooks)


def z_of(model, rows, layer):
    with torch.no_grad():
        name = f"blocks.{layer}.attn.hook_z"
        return model.run_with_cache(rows)[1][name].clone()


def near(a, b):
    return torch.allclose(a, b, rtol=1e-4, atol=1e-4)


def test_zero_ablation_is_the_head_without_its_output_weights(zoo, tokens, logits):
    for kind in ("own", "own-rotary"):
        model = zoo(kind)
        with ablate(model, [(1, 2)], "zero"):
            ablated = logits(model)
        W_O = model.blocks[1].attn.W_O
        saved = W_O.detach().clone()
        with torch.no_grad():
            W_O[2] = 0
            without = model(tokens)
            W_O.copy_(saved)
        assert near(ablated, without)
        assert not near(ablated, logits(model))


def test_zero_and_mean_on_every_kind_of_model(model, tokens, logits):
    other = torch.flip(tokens, dims=[0, 1])
    for how, head in itertools.product(("zero", "mean"), (0, 3)):
        z = z_of(model, tokens, 0)
        z[:, :, head] = 0 if how == "zero" else z_of(model, other, 0)[:, :, head].mean(0)
        with ablate(model, [(0, head)], how, reference=other):
            ablated = logits(model)
        assert near(ablated, patched(model, tokens, {"blocks.0.attn.hook_z": z}))
        assert not torch.equal(ablated, logits(model))


def test_mean_over_the_running_batch(model, tokens, logits):
    z = z_of(model, tokens, 1)
    z[:, :, [1, 2]] = z[:, :, [1, 2]].mean(0)
    with ablate(model, [(1, 1), (1, 2)]):
        assert near(logits(model), patched(model, tokens, {"blocks.1.attn.hook_z": z}))


def test_resampling_from_one_reference_row_is_that_row(model, tokens, logits):
    z, donor = z_of(model, tokens, 1), z_of(model, tokens[3:4], 1)
    z[:, :, 2] = donor[:, :, 2]
    with ablate(model, [(1, 2)], "resample", reference=tokens[3:4]):
        assert near(logits(model), patched(model, tokens, {"blocks.1.attn.hook_z": z}))


def test_resampling_in_a_batch_of_two_swaps_them(model, tokens, logits):
    rows = tokens[:2]
    z = z_of(model, rows, 0)
    z[:, :, 1] = z[:, :, 1].flip(0)
    with ablate(model, [(0, 1)], "resample"):
        assert near(logits(model, rows), patched(model, rows, {"blocks.0.attn.hook_z": z}))


def test_resampling_leaves_no_row_its_own_and_gives_all_heads_the_same_donor(zoo, tokens):
    model = zoo("own")
    plain = {layer: z_of(model, tokens, layer) for layer in (0, 1)}
    seen = {}

    def keep(value, hook):
        seen[hook.name] = value

    with ablate(model, [(0, 0), (0, 3)], "resample", seed=5):
        name = "blocks.0.attn.hook_z"
        with model.hooks(fwd_hooks=[(name, keep)]):
            model(tokens)
    donors = []
    for row in range(5):
        same = [(seen[name][row, :, [0, 3]] == plain[0][d, :, [0, 3]]).all() for d in range(5)]
        donors.append(same.index(True))
    assert sorted(donors) == list(range(5))
    assert all(donor != row for row, donor in enumerate(donors))


def test_resampling_repeats_with_the_seed(zoo, tokens, logits):
    model = zoo("own")

    def run(seed):
        with ablate(model, [(0, 0), (1, 1)], "resample", reference=tokens, seed=seed):
            return logits(model)

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))


def test_everything_is_as_before(model, tokens, logits, count_hooks):
    before = logits(model)
    for how in ("zero", "mean", "resample"):
        with ablate(model, [(0, 1), (1, 0)], how):
            assert count_hooks(model) > 0
            logits(model)
        assert count_hooks(model) == 0
        torch.testing.assert_close(before, logits(model), rtol=1e-6, atol=1e-6)
    with (
        pytest.raises(RuntimeError, match="within"),
        ablate(model, [(0, 0)], "zero"),
        edit(model, {"blocks.1.hook_resid_post": lambda value, hook: 2 * value}),
        reinitialised(model),
    ):
        raise RuntimeError("within")
    assert count_hooks(model) == 0
    torch.testing.assert_close(before, logits(model), rtol=1e-6, atol=1e-6)


def test_an_edit_is_what_the_function_says(model, tokens, logits):
    name = "blocks.0.hook_resid_post"
    with torch.no_grad():
        value = model.run_with_cache(tokens)[1][name]
    with edit(model, {name: lambda value, hook: value + 1}):
        edited = logits(model)
    assert near(edited, patched(model, tokens, {name: value + 1}))
    with edit(model, {"resid_post": lambda value, hook: None}):
        assert torch.equal(logits(model), logits(model))


def is_native(model):
    return getattr(model.cfg, "architecture", None) == "TransformerLensNative"


def is_bert(model):
    return getattr(model.cfg, "architecture", None) == "BertForMaskedLM"


def test_edits_of_scores_and_patterns_work_or_are_refused(model, has_hooked_transformer, logits):
    """On native bridges scores are shown after their use, in 3.9 patterns too; on BERT's both."""
    shift = {"attn_scores": lambda x, hook: x + torch.arange(7.0), "pattern": lambda x, hook: x**2}
    for name, function in shift.items():
        hook = f"blocks.1.attn.hook_{name}"
        unused = is_native(model) and (name == "attn_scores" or has_hooked_transformer)
        if unused or is_bert(model):
            with pytest.raises(InterventionError, match=f"edits at {hook} do not reach"):
                edit(model, {hook: function}).__enter__()
        else:
            before = logits(model)
            with edit(model, {hook: function}):
                assert not torch.equal(before, logits(model))


def test_a_head_that_writes_nothing_is_edited_all_the_same(zoo, tokens, logits):
    model = zoo("own")
    W_O = model.blocks[0].attn.W_O
    saved = W_O.detach().clone()
    with torch.no_grad():
        W_O.zero_()
    try:
        before = logits(model)
        with ablate(model, [(0, 1)], "zero"):
            assert torch.equal(before, logits(model))
        # NaN scores become a pattern of zeros; that they were used shows only in the graph
        with edit(model, {"blocks.0.attn.hook_attn_scores": lambda x, hook: x}):
            assert torch.equal(before, logits(model))
    finally:
        with torch.no_grad():
            W_O.copy_(saved)


@pytest.mark.parametrize("gradients", [True, False])
def test_that_edits_take_effect_is_read_off_one_pass(model, gradients, monkeypatch):
    """Also where the caller has turned gradients off: replacing by NaN takes a pass for each."""
    marks = {f"blocks.{layer}.attn.hook_z": everything for layer in range(model.cfg.n_layers)}
    monkeypatch.setattr(effect, "_spoils", lambda *args: pytest.fail("a pass for one hook point"))
    with torch.set_grad_enabled(gradients):
        effect.require_effect(model, marks)


def test_a_hook_that_never_fires_cannot_be_edited(zoo, texts):
    with (
        pytest.raises(InterventionError, match="hook_rot_q", check=texts),
        edit(zoo("neox"), {"blocks.0.attn.hook_rot_q": lambda x, hook: x}),
    ):
        pass


def test_edits_of_token_ids(zoo, tokens, logits):
    bridge = zoo("gpt2")
    with edit(bridge, {"embed.hook_in": lambda ids, hook: ids.flip(1)}):
        flipped = logits(bridge)
    assert torch.equal(flipped, logits(bridge, tokens.flip(1)))


def test_a_model_whose_output_is_nan_cannot_be_checked(zoo, texts):
    model = zoo("own")
    b_U = model.unembed.b_U
    with torch.no_grad():
        saved = b_U.clone()
        b_U[0] = float("nan")
    try:
        with pytest.raises(InterventionError, match="NaN", check=texts), ablate(model, [(0, 0)]):
            pass
    finally:
        with torch.no_grad():
            b_U.copy_(saved)


@pytest.mark.parametrize(
    ("heads", "options"),
    [
        ([(2, 0)], {}),
        ([(0, 4)], {}),
        ([(-1, 0)], {}),
        ([], {}),
        ([(0, 0)], {"how": "median"}),
    ],
)
def test_bad_input(zoo, heads, options, texts):
    with pytest.raises(InputError, check=texts), ablate(zoo("llama"), heads, **options):
        pass


def test_a_batch_of_one_needs_a_reference(model, tokens, logits, texts):
    for how in ("mean", "resample"):
        with (
            ablate(model, [(0, 0)], how),
            pytest.raises(InputError, check=texts),
        ):
            logits(model, tokens[:1])
        with ablate(model, [(0, 0)], how, reference=tokens):
            logits(model, tokens[:1])


def test_a_reference_must_be_long_enough(zoo, tokens, logits, texts):
    for how in ("mean", "resample"):
        with (
            ablate(zoo("own"), [(0, 0)], how, reference=tokens[:, :4]),
            pytest.raises(InputError, check=texts),
        ):
            logits(zoo("own"))


def test_mean_over_reference_rows_of_different_lengths(zoo, tokens, logits):
    from types import SimpleNamespace

    model = zoo("own")
    rows = [tokens[0].numpy(), tokens[1, :3].numpy()]
    z, long, short = (z_of(model, r, 0) for r in (tokens, tokens[:1], tokens[1:2, :3]))
    z[:, :, 0] = long[0, :, 0]
    z[:, :3, 0] = (long[0, :3, 0] + short[0, :, 0]) / 2
    with ablate(model, [(0, 0)], reference=SimpleNamespace(tokens=rows)):
        assert near(logits(model), patched(model, tokens, {"blocks.0.attn.hook_z": z}))


def test_reinitialised_keeps_every_tensors_values_and_loses_their_places(model, logits):
    parameters = dict(model.named_parameters())
    before, plain = logits(model), {n: p.detach().clone() for n, p in parameters.items()}
    shuffled = []
    for seed in (0, 0, 1):
        with reinitialised(model, seed):
            shuffled.append(logits(model))
            moved = 0
            for name, value in parameters.items():
                if ".qkv." in name or "c_attn" in name:
                    continue  # fused: its parts are shuffled, each on its own
                assert torch.equal(value.flatten().sort()[0], plain[name].flatten().sort()[0])
                moved += not torch.equal(value, plain[name])
            assert moved > len(parameters) // 2
    assert torch.equal(shuffled[0], shuffled[1])
    assert not torch.equal(shuffled[0], shuffled[2])
    assert not near(shuffled[0], before)
    assert torch.equal(before, logits(model))
    assert all(torch.equal(value, plain[name]) for name, value in parameters.items())


def test_reinitialising_a_model_of_equal_weights_changes_nothing_and_says_so(zoo, logits):
    import copy

    model = copy.deepcopy(zoo("own"))
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, 0.5)
    with pytest.raises(InterventionError, match="did not change"), reinitialised(model):
        pass
    assert all(bool((parameter == 0.5).all()) for parameter in model.parameters())


@pytest.mark.parametrize("heads", [[0], [(0, 1, 2)], 3, ["L0"], [(0, "1")]])
def test_heads_that_are_no_pairs_are_one_clear_line(zoo, heads, texts):
    with pytest.raises(InputError, check=texts):
        interventions._by_layer(zoo("own"), heads)


def test_means_read_once_ablate_as_the_reference_does() -> None:
    model = it.load("toy:xor-2head")
    rows = [[0, 1, 2], [1, 1, 2], [0, 0, 2]]
    means = head_means(model, [(0, 1), (0, 0)], rows)
    for heads in ([(0, 0)], [(0, 1)], ((0, head) for head in (0, 1))):
        heads = list(heads)
        with ablate(model, iter(heads), reference=means):
            once = model(torch.tensor(rows))
        with ablate(model, iter(heads), reference=rows):
            each = model(torch.tensor(rows))
        assert torch.allclose(once, each)
        assert not torch.allclose(once, model(torch.tensor(rows)))


def test_means_that_were_not_read_and_other_ways_are_refused_in_a_line(texts) -> None:
    model = it.load("toy:xor-2head")
    rows = [[0, 1, 2], [1, 1, 2]]
    means = head_means(model, [(0, 1)], rows)
    with (
        pytest.raises(InputError, match="L0H0", check=texts),
        ablate(model, [(0, 0)], reference=means),
    ):
        pass
    with (
        pytest.raises(InputError, match='need how="mean", not "resample"'),
        ablate(model, [(0, 1)], how="resample", reference=means),
    ):
        pass


@pytest.mark.parametrize(
    "change",
    [
        lambda value, hook: value[:, 1:],
        lambda value, hook: value[:1],
        lambda value, hook: value.double(),
        lambda value, hook: value.long(),
        lambda value, hook: 0.0,
    ],
)
def test_an_edit_of_another_shape_or_kind_is_refused(zoo, tokens, change):
    model = zoo("own")
    with (
        pytest.raises(InterventionError, match=r"edit at blocks\.1\.attn\.hook_z returned"),
        edit(model, {"blocks.1.attn.hook_z": change}),
    ):
        model(tokens)


def test_an_edit_that_returns_the_value_or_nothing_changes_no_bit(zoo, tokens, logits):
    model = zoo("own")
    for change in (lambda value, hook: value.clone(), lambda value, hook: None):
        with edit(model, {"blocks.1.attn.hook_z": change}):
            assert torch.equal(logits(model), logits(zoo("own")))


def test_values_are_put_where_they_belong(model, tokens, count_hooks):
    name = "blocks.1.attn.hook_z"
    with torch.no_grad():
        z = model.run_with_cache(tokens, names_filter=name)[1][name].clone()
    before = count_hooks(model)
    values = {(1, 3): torch.randn(z[:, :, 0].shape), (1, 0): torch.randn(z[:, :, 0].shape)}
    z[:, :, 0], z[:, :, 3] = values[1, 0], values[1, 3]
    require_heads(model, values)
    with torch.no_grad(), put_heads(model, values):
        edited = model(tokens)
    with torch.no_grad():
        wanted = model.run_with_hooks(tokens, fwd_hooks=[(name, lambda value, hook: z)])
    assert torch.allclose(edited, wanted, atol=1e-5)
    assert count_hooks(model) == before


def test_heads_that_the_model_lacks_are_refused(zoo):
    with pytest.raises(InputError):
        require_heads(zoo("own"), [(0, 9)])


@pytest.mark.parametrize(
    "heads", ["L0H1", (0, 1), ["L0H1"], ["a0.h1"], ["0.1"], [(0, 1)], [[0, 1]], np.array([[0, 1]])]
)
def test_a_head_has_one_meaning_in_every_notation(zoo, heads):
    model = zoo("own")
    tokens = torch.arange(6)[None] % int(model.cfg.d_vocab)
    with torch.no_grad():
        with it.ablate(model, heads=[(0, 1)], how="zero"):
            expected = model(tokens)
        with it.ablate(model, heads=heads, how="zero"):
            torch.testing.assert_close(model(tokens), expected, atol=0, rtol=0)
