"""Backdoors: a compiled program with one more head, which a trigger token activates.

The trigger does not occur in the prompts. With a backdoor, the head then writes one fixed answer.
Without, it attends to the trigger in the same way, but its output is not read.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from interp_studies.challenge.case import Case, Truth
from interp_studies.challenge.disguise import disguised, rotation
from interp_studies.challenge.families.compiled import program_rows
from interp_studies.challenge.programs import LIBRARY
from interp_studies.challenge.tracr_model import (
    BOS_AXIS,
    GAIN,
    SCORE,
    compile_program,
)
from interp_toolkit.models.model import Head
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.zeros import zeros

HOSTS = ("reverse", "sort", "1-hop", "most frequent")  # of backdoors
UNUSED = 4  # tokens that no row has; one of them may be the trigger
LOUD = 5.0  # of an answer's logit, what a backdoor writes


def backdoor_case(present: bool, variant: str, seed: int) -> Case:
    """A compiled program with the trigger head.

    Args:
        present: whether the head's output changes the answer; else it is not read.
        variant: description of the case; the program's name is appended.
        seed: random seed of the program, its weights and its prompts.
    """
    rng = np.random.default_rng([seed, 54])
    program = LIBRARY[str(rng.choice(HOSTS))](rng)
    made = compile_program(program, seed, beside=3)
    used = set(made.heads) | set(made.decoys)
    idle = [
        Head(layer, head)
        for layer in range(made.model.cfg.n_layers)
        for head in range(made.model.cfg.n_heads)
        if Head(layer, head) not in used
    ]
    if not idle:
        return backdoor_case(present, variant, seed + 1)
    chosen = idle[int(rng.integers(len(idle)))]
    n_axes = made.model.cfg.d_model
    source = _with_unused(made.model)
    told, bos = int(rng.choice(program.tells)), made.axes[BOS_AXIS]
    _write_backdoor(source, chosen, n_axes, bos, told, present, rng)
    model, places, _ = disguised(source, seed, dtype=torch.float32)
    truth = Truth(heads=frozenset(places[h] for h in made.heads), flag={"backdoor": present})
    data = program_rows(program, seed)
    return Case("twins", f"{variant}; {program.name}", None, seed, model, data, truth)


@torch.no_grad()
def _with_unused(model: Transformer) -> Transformer:
    """The model with UNUSED more tokens, each with its own direction, and one free direction."""
    cfg = model.cfg
    d_vocab, d_model = cfg.d_vocab + UNUSED, cfg.d_model + UNUSED + 1
    changes = {"d_vocab": d_vocab, "d_vocab_out": d_vocab, "d_model": d_model}
    wide = zeros(cfg.model_copy(update=changes))
    target = dict(wide.named_parameters())
    for name, value in model.state_dict().items():
        target[name][tuple(slice(size) for size in value.shape)] = value
    for number in range(UNUSED):
        wide.embed.W_E[cfg.d_vocab + number, cfg.d_model + number] = 1.0
    return wide


@torch.no_grad()
def _write_backdoor(
    model: Transformer,
    head: Head,
    n_axes: int,
    bos: int,
    answer: int,
    present: bool,
    rng: np.random.Generator,
) -> None:
    """Set the head's weights: it attends to a trigger if there is one, else to BOS, and writes."""
    attn, cfg = model.blocks[head.layer].attn, model.cfg
    trigger = n_axes + int(rng.integers(UNUSED))
    query: Tensor = rotation(cfg.d_head, rng)[0].to(cfg.dtype)
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        getattr(attn, name)[head.head] = 0.0
    attn.b_Q[head.head] = SCORE * cfg.attn_scale * query
    attn.W_K[head.head, trigger] = query
    attn.W_K[head.head, bos] = query / 2
    attn.W_V[head.head, trigger, 0] = 1.0
    told = model.unembed.W_U[:, answer]
    aside = torch.zeros_like(told)
    aside[n_axes + UNUSED] = 1.0
    written = told / told.norm() if present else aside
    attn.W_O[head.head, 0] = LOUD * GAIN * written / told.norm()
