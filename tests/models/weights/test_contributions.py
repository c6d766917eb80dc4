import numpy as np
import pytest
import torch
from head_outputs import head_outputs

from interp_toolkit.circuits.roles.reading import readable
from interp_toolkit.errors import InputError
from interp_toolkit.models.weights.contributions import ResidualParts, head_scores
from interp_toolkit.models.weights.view import weights


def test_outputs_are_what_ablating_the_head_takes_away(model, tokens):
    """By brute force: the change of hook_attn_out when the head's z is set to zero."""
    if getattr(model.cfg, "rmsnorm_uses_offset", False):
        pytest.skip("Gemma 2 normalizes the sum over its heads")
    if getattr(model.cfg, "architecture", None) == "BertForMaskedLM":
        pytest.skip("BERT normalizes the residual stream behind the addition")
    for layer, position in ((0, -1), (1, 2)):
        outputs = head_outputs(model, tokens, layer, position)
        assert outputs.shape == (5, 4, model.cfg.d_model)
        name = f"blocks.{layer}.hook_attn_out"
        full = out_without(model, tokens, layer, None)[name][:, position]
        for head in range(4):
            rest = out_without(model, tokens, layer, head)[name][:, position]
            torch.testing.assert_close(outputs[:, head], full - rest, rtol=1e-4, atol=1e-4)


def out_without(model, tokens, layer, head):
    seen = {}

    def cut(z, hook):
        z = z.clone()
        if head is not None:
            z[:, :, head] = 0
        return z

    def keep(value, hook):
        seen[f"blocks.{layer}.hook_attn_out"] = value

    hooks = [(f"blocks.{layer}.attn.hook_z", cut), (f"blocks.{layer}.hook_attn_out", keep)]
    with torch.no_grad():
        model.run_with_hooks(tokens, fwd_hooks=hooks)
    return seen


def test_heads_inside_a_norm_have_its_scale(zoo, tokens):
    model = zoo("gemma2")
    z, added = {}, out_without(model, tokens, 0, None)["blocks.0.hook_attn_out"][:, -1]
    with torch.no_grad():
        model.run_with_hooks(
            tokens,
            fwd_hooks=[("blocks.0.attn.hook_z", lambda x, hook: z.update(z=x[:, -1].detach()))],
        )
    w = weights(model).outputs(0)
    raw = torch.einsum("nhd,hdm->nhm", z["z"], w.W_O)
    scale = (raw.sum(1).pow(2).mean(-1) + w.post_norm.eps).sqrt()
    outputs = head_outputs(model, tokens, 0)
    expected = raw / scale[:, None, None] * w.post_norm.w.detach()
    torch.testing.assert_close(outputs, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(outputs.sum(1), added, atol=1e-5, rtol=1e-5)


def test_heads_of_a_normalized_stream_are_refused(zoo, tokens, texts):
    with pytest.raises(InputError, check=texts):
        head_outputs(zoo("bert"), tokens, 0)


def test_what_does_not_add_up_is_found_out(zoo, tokens):
    """Another intervention is at work on the sum: then the split is not of this output."""
    model = zoo("own")
    with (
        model.hooks(fwd_hooks=[("blocks.0.hook_attn_out", lambda value, hook: value + 1)]),
        pytest.raises(InputError, match="layer 0"),
    ):
        head_outputs(model, tokens, 0)


def test_small_memory_gives_the_same(zoo, tokens):
    model = zoo("llama")
    few, many = (head_outputs(model, tokens, 1, memory=m) for m in ("20KiB", None))
    torch.testing.assert_close(few, many)


def test_scores_of_several_layers_in_one_pass_are_those_of_the_outputs(zoo, tokens):
    direction = np.random.default_rng(0).normal(size=zoo("own").cfg.d_model)
    for name in ("own", "llama"):
        model = zoo(name)
        scores = head_scores(model, tokens, [0, 1], direction[: model.cfg.d_model], 2)
        for layer in (0, 1):
            outputs = head_outputs(model, tokens, layer, 2).double().detach().numpy()
            expected = outputs @ direction[: model.cfg.d_model]
            np.testing.assert_allclose(scores[:, layer], expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("parts", [ResidualParts, readable])
def test_a_norm_behind_the_addition_leaves_no_parts(zoo, parts):
    bert = zoo("bert")
    with pytest.raises(InputError, match="normalizes"):
        parts(bert, weights(bert))
