import pytest
import torch

from interp_toolkit.errors import InputError
from interp_toolkit.models.running.hooks import expand_hooks, hook_points, layer_of, one_name_each


def testone_name_each_names_give_each_hook_point_once(model):
    names = one_name_each(hook_points(model))
    points = {id(point) for point in model.hook_dict.values()}
    assert len(names) == len(points)
    assert {id(model.hook_dict[n]) for n in names} == points


USUAL = ["resid_pre", "q", "k", "v", "attn_scores", "pattern", "z", "attn_out", "resid_post"]


def test_bridges_get_the_usual_names(zoo):
    usual = {"blocks.1.hook_resid_pre", "blocks.1.attn.hook_z", "blocks.1.hook_attn_out"}
    usual |= {"blocks.1.hook_resid_mid", "blocks.1.mlp.hook_post", "blocks.1.hook_resid_post"}
    for kind in ("gpt2", "llama", "gemma2", "native", "gpt2-folded"):
        assert usual <= set(one_name_each(hook_points(zoo(kind))))


@pytest.mark.parametrize("kind", ["own", "own-rotary", "hooked", "gpt2", "llama", "gemma2"])
def test_order_is_that_of_a_forward_pass(zoo, kind, tokens):
    model = zoo(kind)
    names = expand_hooks(model, [*USUAL, "resid_mid", "mlp_out", "pre", "post", "rot_q"][:12])
    fired = []
    hooks = [(n, lambda value, hook, n=n: fired.append(n)) for n in names]
    with torch.no_grad():
        model.run_with_hooks(tokens, fwd_hooks=hooks)
    assert fired == names


def test_bare_names_patterns_and_exact_names(model):
    bare = expand_hooks(model, "resid_post")
    assert bare == ["blocks.0.hook_resid_post", "blocks.1.hook_resid_post"]
    assert expand_hooks(model, "hook_resid_post") == bare
    assert expand_hooks(model, "blocks.*.hook_resid_post") == bare
    assert expand_hooks(model, ["blocks.1.hook_resid_post", "blocks.*_post", "z"])[-1] == bare[1]
    assert expand_hooks(model, "blocks.0.attn.hook_z") == ["blocks.0.attn.hook_z"]


def test_an_alias_keeps_its_name_and_is_not_read_twice(zoo):
    bridge = zoo("gpt2")
    assert expand_hooks(bridge, "blocks.0.hook_in") == ["blocks.0.hook_in"]
    both = expand_hooks(bridge, ["blocks.0.hook_in", "blocks.*.hook_resid_pre"])
    assert both == ["blocks.0.hook_in", "blocks.1.hook_resid_pre"]


def test_nothing_matches(model, texts):
    with pytest.raises(InputError, match="'resid_pots'", check=texts):
        expand_hooks(model, "resid_pots")
    with pytest.raises(InputError, match=r"no hook matches 'blocks\.7\.hook_resid_post'"):
        expand_hooks(model, ["resid_post", "blocks.7.hook_resid_post"])
    with pytest.raises(InputError, check=texts):
        expand_hooks(model, [])


def test_silent_hooks_are_refused_by_name_and_left_out_of_patterns(zoo):
    bridge = zoo("gpt2")
    with pytest.raises(InputError, match=r"set_use_attn_result\(True\)"):
        expand_hooks(bridge, "blocks.0.attn.hook_result")
    assert not [n for n in expand_hooks(bridge, "blocks.0.*") if n.endswith("hook_result")]


def test_an_object_without_hooks(texts):
    with pytest.raises(InputError, match="TransformerLens", check=texts):
        expand_hooks(torch.nn.Linear(1, 1), "resid_post")


def test_layer_of():
    assert layer_of("blocks.12.attn.hook_z") == 12
    assert layer_of("hook_embed") is None
    assert layer_of("ln_final.hook_scale") is None
