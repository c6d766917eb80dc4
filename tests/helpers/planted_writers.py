"""Models of two heads: one does the task, the other writes by the answer or by something else."""

from __future__ import annotations

import numpy as np
import torch

from interp_toolkit.data import FeatureData

V, T, FIRST = 14, 5, 8  # tokens, positions, the first answer; clues are 1, 2, ...


def two_heads(kind: str, n_answers: int, norm: str | None, size: float) -> torch.nn.Module:
    """L0H0 writes the answer of the clue; L0H1 writes by `kind`, in logits before the norm."""
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    d_head = V + T + 1
    config = {"n_layers": 1, "n_heads": 2, "d_model": d_head + V, "d_head": d_head, "n_ctx": T}
    fixed = {"attn_only": True, "use_attn_scale": False, "seed": 0, "device": "cpu"}
    model = HookedTransformer(
        HookedTransformerConfig(**config, **fixed, d_vocab=V, normalization_type=norm)
    )
    out = d_head
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "ln" not in name:
                parameter.zero_()
        model.W_E[:, :V] = torch.eye(V)
        model.W_pos[:, V : V + T] = torch.eye(T)
        model.W_pos[:, V + T] = 1
        model.W_U[out:] = torch.eye(V)
        attn = model.blocks[0].attn
        attn.W_Q[:, V + T, 0] = 1
        for k in range(1, n_answers + 1):
            attn.W_K[0, k, 0] = 60
            attn.W_V[0, k, k] = 1
            attn.W_O[0, k, out + FIRST + k - 1] = 8 + 3 * k  # so that the norm's scale varies
        if kind == "constant":
            attn.b_V[1, 0] = 1
        elif kind == "noise token":
            attn.W_K[1, 5, 0] = 60
            attn.W_V[1, 5, 0] = 1
        elif kind == "position":
            attn.W_K[1, 1 : n_answers + 1, 0] = 60
            attn.W_V[1, V : V + T, 0] = torch.arange(T) - 1.0
        else:
            attn.W_K[1, 1 : n_answers + 1, 0] = 60
            for k in range(1, n_answers + 1):
                attn.W_V[1, k, k] = 1
                attn.W_O[1, k, out + FIRST + k - 1] = size
        attn.W_O[1, 0, out + FIRST] = size
    return model.eval()


def clues(frequencies: tuple[float, ...], *, wrong: bool, slots: int, n: int = 60) -> FeatureData:
    rng = np.random.default_rng(0)
    clue = rng.choice(len(frequencies), n, p=frequencies)
    tokens = rng.choice([4, 5, 6, 7], (n, T))
    tokens[np.arange(n), rng.integers(0, T - 2, n)] = 1 + clue
    answers = np.repeat(FIRST + clue[:, None], slots, axis=1)
    other = np.repeat(FIRST + (clue[:, None] + 1) % len(frequencies), slots, axis=1)
    return FeatureData(
        tokens,
        np.zeros((n, 0), bool),
        (),
        answers=answers,
        answer_positions=np.tile(np.arange(T - slots, T), (n, 1)),
        wrong=other if wrong else None,
    )
