"""Patched activations of many families of models against hooks on transformers' own modules."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from family_models import loaded_or_skipped

from interp_toolkit.circuits.metrics.metrics import LogitDifference
from interp_toolkit.circuits.metrics.prompts import prompts_from_tokens
from interp_toolkit.circuits.patching.passes import PatchSite, patch, patchable_hooks

FAMILIES = (
    *("Llama", "Mixtral", "Qwen3", "Granite", "GptOss", "Gemma2", "Gemma3", "Olmo2", "Cohere"),
    *("Afmoe", "FalconH1", "MiniMaxM2"),
)
POSITION, HEAD = 5, 3


@functools.cache
def case(family):
    original, model = loaded_or_skipped(family)
    generator = torch.Generator().manual_seed(1)
    tokens, corrupted = (torch.randint(3, 50, (4, 10), generator=generator) for _ in range(2))
    corrupted[:, :3] = tokens[:, :3]
    answers = torch.randint(3, 50, (4, 1), generator=generator)
    prompts = replace(
        prompts_from_tokens(tokens, model),
        answers=answers,
        wrong=(answers + 1) % 50,
        answer_positions=torch.full((4, 1), 9),
        corrupted=corrupted,
    )
    return original, model, prompts


def first(out):
    return out[0] if isinstance(out, tuple) else out


@torch.no_grad()
def difference(original, prompts, tokens, module=None, which="output", function=None):
    """The logit difference of each prompt, with a module's input or output replaced."""
    if module is None:
        handle = None
    elif which == "input":
        handle = module.register_forward_pre_hook(
            lambda m, args, kwargs: (
                ((function(args[0]), *args[1:]), kwargs)
                if args
                else (args, {**kwargs, "hidden_states": function(kwargs["hidden_states"])})
            ),
            with_kwargs=True,
        )
    else:

        def put(m, args, out):
            new = function(first(out))
            return (new, *out[1:]) if isinstance(out, tuple) else new

        handle = module.register_forward_hook(put)
    try:
        logits = original(tokens).logits[:, -1].double()
    finally:
        if handle is not None:
            handle.remove()
    answer, wrong = (logits.gather(1, ids) for ids in (prompts.answers, prompts.wrong))
    return (answer - wrong)[:, 0].numpy()


def clean_value(original, prompts, module, which):
    values = []
    difference(original, prompts, prompts.tokens, module, which, lambda x: values.append(x) or x)
    return values[0]


def at_position(clean):
    def put(x):
        x = x.clone()
        x[:, POSITION] = clean[:, POSITION]
        return x

    return put


def of_head(clean, columns):
    def put(x):
        x = x.clone()
        x[..., columns] = clean[..., columns]
        return x

    return put


@pytest.mark.parametrize("kind", ["residual", "attention", "mlp", "head"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_patched_site_is_the_module_s_value_replaced(family, kind):
    original, model, prompts = case(family)
    layer = 0 if kind in ("attention", "mlp") else 1  # of two: what reads a position comes after
    block = original.model.layers[layer]
    mlp = next(
        getattr(block, name)
        for name in ("mlp", "block_sparse_moe", "feed_forward")
        if hasattr(block, name)
    )
    module, which = {
        "residual": (block, "input"),
        "attention": (block.self_attn, "output"),
        "mlp": (mlp, "output"),
        "head": (block.self_attn.o_proj, "input"),
    }[kind]
    clean = clean_value(original, prompts, module, which)
    site = PatchSite(kind, layer, HEAD if kind == "head" else POSITION)
    assert layer in patchable_hooks(model)[0][kind]
    width = clean.shape[-1] // 4
    columns = slice(HEAD * width, (HEAD + 1) * width)
    put = of_head(clean, columns) if kind == "head" else at_position(clean)
    truth = difference(original, prompts, prompts.corrupted, module, which, put)
    patched = patch(model, prompts, LogitDifference(prompts), [site])
    scale = np.abs(truth).max()
    assert np.abs(truth - patched.corrupted).max() > 1e-4 * scale  # the patch does something
    np.testing.assert_allclose(patched.values[site], truth, atol=1e-4 * scale)
    np.testing.assert_allclose(
        patched.clean, difference(original, prompts, prompts.tokens), atol=1e-4 * scale
    )


@pytest.mark.parametrize("family", ["Mamba", "Lfm2", "GPT2", "GPTJ", "Bloom", "OPT", "DeepseekV3"])
def test_the_only_position_that_differs_makes_the_clean_prompt(family):
    """Where the prompts differ at one position only, its embedding is the whole clean prompt."""
    original, model, prompts = case(family)
    corrupted = prompts.tokens.clone()
    corrupted[:, 6] = (corrupted[:, 6] + 1) % 50
    prompts = replace(prompts, corrupted=corrupted)  # prompts differ at one position
    site = PatchSite("residual", 0, 6)
    patched = patch(model, prompts, LogitDifference(prompts), [site])
    assert np.abs(patched.clean - patched.corrupted).max() > 0
    np.testing.assert_allclose(patched.values[site], patched.clean, atol=1e-4)
    truth = difference(original, prompts, prompts.corrupted)
    np.testing.assert_allclose(patched.corrupted, truth, atol=1e-4)
    before = patch(model, prompts, LogitDifference(prompts), [PatchSite("residual", 1, 3)])
    np.testing.assert_allclose(
        before.values[PatchSite("residual", 1, 3)], patched.corrupted, atol=1e-6
    )
