"""Faults planted into live models, one function each: the model goes in sound and comes out ill.

Each works on an instance, so that a fresh copy of the class is sound.
"""

from __future__ import annotations

import copy
import math
import types

import torch
from transformer_lens.hook_points import HookPoint


class Mute(HookPoint):
    """A hook point that the model no longer calls."""

    def __call__(self, x, *args, **kwargs):
        return x


class Deaf(HookPoint):
    """A hook point whose edits the model throws away."""

    def __call__(self, x, *args, **kwargs):
        super().__call__(x.clone(), *args, **kwargs)
        return x


def never_fires(model, hook="blocks.1.hook_resid_post"):
    model.hook_dict[hook].__class__ = Mute


def thrown_away(model, hook="blocks.1.hook_resid_post"):
    if type(model).__name__ == "Transformer":  # which skips points without hooks
        point = model.hook_dict[hook]
        point.__class__ = Deaf
        return
    model.hook_dict[hook].__class__ = Deaf


class HalfDeaf(HookPoint):
    """A hook point whose edits at the first position the model throws away."""

    def __call__(self, x, *args, **kwargs):
        edited = super().__call__(x.clone(), *args, **kwargs)
        return torch.cat([x[:, :1], edited[:, 1:]], 1)


def half_thrown_away(model, hook="blocks.1.hook_resid_pre"):
    model.hook_dict[hook].__class__ = HalfDeaf


def unscaled_embedding(model):
    scale = math.sqrt(model.cfg.d_model)
    model.embed.register_forward_hook(lambda module, args, output: output / scale)


def wrong_groups(model):
    """Key-value heads in the order 0, 1, 0, 1 where it is 0, 0, 1, 1."""
    attn = model.blocks[1].attn
    if type(model).__name__ == "Transformer":
        attn._per_query_head = lambda x: x.repeat(1, 1, attn.group, 1)
    elif type(model).__name__ == "HookedTransformer":
        times = attn.repeat_kv_heads

        def z_scores(self, v, pattern):
            return super(type(self), self).calculate_z_scores(v.repeat(1, 1, times, 1), pattern)

        attn.calculate_z_scores = types.MethodType(z_scores, attn)
    else:
        _repeat_wrongly(attn)


def _repeat_wrongly(attn):
    """One layer of a wrapped model calls a function that repeats heads in the wrong order."""
    from transformers.models.llama import modeling_llama

    forward, right = attn.forward, modeling_llama.repeat_kv

    def wrongly(*args, **kwargs):
        modeling_llama.repeat_kv = lambda x, times: x.repeat(1, times, 1, 1)
        try:
            return forward(*args, **kwargs)
        finally:
            modeling_llama.repeat_kv = right

    attn.__dict__["forward"] = wrongly


def no_score_cap(model):
    attn = model.blocks[1].attn
    if type(model).__name__ == "Transformer":
        attn.scores_soft_cap = -1.0
    elif type(model).__name__ == "HookedTransformer":
        attn.cfg = copy.deepcopy(attn.cfg)
        attn.cfg.attn_scores_soft_cap = -1.0
    else:
        attn.original_component.attn_logit_softcapping = None


def no_logit_cap(model):
    """The logits as if nothing capped them."""
    cap = model.cfg.output_logits_soft_cap
    forward = model.forward

    def uncapped(*args, **kwargs):
        output = forward(*args, **kwargs)
        logits = getattr(output, "logits", output)
        return cap * torch.atanh((logits / cap).clamp(-0.999999, 0.999999))

    model.forward = uncapped


def double_bos(model):
    """The tokenizer puts one, and the model is told that it does not."""
    model.cfg.tokenizer_prepends_bos = False


def folded_told_unfolded(model):
    """Weights folded and centered, cfg as before."""
    before = model.cfg.normalization_type
    if type(model).__name__ == "HookedTransformer":
        model.process_weights_()
        model.cfg.normalization_type = before
    elif type(model).__name__ == "Transformer":
        _fold_own(model)
    else:
        model.enable_compatibility_mode(disable_warnings=True)
        model.compatibility_mode = False
    return model


def _fold_own(model):
    with torch.no_grad():
        for block in model.blocks:
            attn, ln1, ln2 = block.attn, block.ln1, block.ln2
            for W, b in ((attn.W_Q, attn.b_Q), (attn.W_K, attn.b_K), (attn.W_V, attn.b_V)):
                b += torch.einsum("m,hmd->hd", ln1.b, W)
                W *= ln1.w[:, None]
                W -= W.mean(1, keepdim=True)
            block.mlp.b_in += ln2.b @ block.mlp.W_in
            block.mlp.W_in *= ln2.w[:, None]
            block.mlp.W_in -= block.mlp.W_in.mean(0, keepdim=True)
        final, unembed = model.ln_final, model.unembed
        unembed.b_U += final.b @ unembed.W_U
        unembed.W_U *= final.w[:, None]
        unembed.W_U -= unembed.W_U.mean(0, keepdim=True)
        for norm in [n for block in model.blocks for n in (block.ln1, block.ln2)] + [final]:
            norm.w.fill_(1)
            norm.b.fill_(0)


def reload_forgets(model):
    """Loading a state dict into this object leaves one tensor as it was."""
    model.load_state_dict = types.MethodType(
        lambda self, weights, strict=True, **kw: type(self).load_state_dict(
            self,
            {n: w for n, w in weights.items() if n != _forgotten(weights)},
            strict=False,
            **kw,
        ),
        model,
    )


def _forgotten(weights):
    return next(
        name for name in weights if "blocks.1" in name and weights[name].is_floating_point()
    )


def state_forgets(model):
    """The state dict that is saved lacks a tensor."""
    whole = type(model).state_dict

    def partial(self, *args, **kwargs):
        weights = whole(self, *args, **kwargs)
        weights.pop(_forgotten(weights))
        return weights

    model.state_dict = types.MethodType(partial, model)


# beyond the eight: mutants that no rule was made for


def wrong_rotary_base(model):
    attn = model.blocks[1].attn
    if hasattr(attn, "rotary_cos"):
        attn.rotary_cos, attn.rotary_sin = attn.rotary_cos.roll(1, 0), attn.rotary_sin.roll(1, 0)
    elif type(model).__name__ == "Transformer":
        tables = attn.rotary.tables
        attn.rotary.tables = lambda n, like: tuple(t.roll(1, 0) for t in tables(n, like))
    else:
        inner = model.rotary_emb.original_component
        inner.inv_freq = inner.inv_freq * 1.3


def wrong_eps(model):
    block = model.blocks[1]
    norm = getattr(block.ln1, "original_component", block.ln1)
    if norm is not block.ln1 and not block.ln1.uses_rms_norm:
        block.ln1.config = copy.copy(block.ln1.config)
        block.ln1.config.eps = 1e-2
    for name in ("eps", "variance_epsilon"):
        if hasattr(norm, name):
            setattr(norm, name, 1e-2)


def transposed_head(model):
    """One head's W_O transposed: in the weights, so only a model beside it can tell."""
    attn = model.blocks[1].attn
    with torch.no_grad():
        W = attn.W_O[0]
        side = min(W.shape)
        W[:side, :side] = W[:side, :side].T.clone()


def leaky_mask(model):
    """One layer sees the future."""
    attn = model.blocks[1].attn
    if type(model).__name__ == "Transformer":
        attn.causal = False
    else:
        attn.apply_causal_mask = lambda scores, *args, **kwargs: scores


def batch_mixes(model):
    """Rows see each other's mean."""
    model.blocks[1].mlp.register_forward_hook(
        lambda module, args, output: output + 0.1 * output.mean(0, keepdim=True)
    )


def half_attention(model):
    """Attention adds half of what its hook shows."""
    block = model.blocks[1]
    point = block.hook_attn_out if "hook_attn_out" in block._modules else None

    class Half(HookPoint):
        def __call__(self, x, *args, **kwargs):
            return super().__call__(x, *args, **kwargs) / 2

    point.__class__ = Half


def wrong_scale(model):
    attn = model.blocks[1].attn
    if type(model).__name__ == "Transformer":
        attn.scale = attn.scale * 2
    elif type(model).__name__ == "HookedTransformer":
        attn.attn_scale = attn.attn_scale * 2
    else:
        attn.original_component.scaling = attn.original_component.scaling * 2


def wrong_activation(model):
    mlp = model.blocks[1].mlp
    if hasattr(mlp, "act_fn"):
        mlp.act_fn = torch.nn.functional.gelu
    elif hasattr(mlp, "act"):
        mlp.act = torch.nn.functional.gelu
    else:
        mlp.original_component.act_fn = torch.nn.functional.gelu
