"""Functions of two bits, computed by one head or two with random weights and positions.

The output of one head at the query is (A(a) + B(b) + c) / (α(a) + β(b) + γ). Numerators and
denominators are sums, so those of 00 and 11 add up to those of 01 and 10. A weighted mean of the
outputs of 00 and 11 therefore equals one of 01 and 10, and no hyperplane separates equal from
different bits, whatever the weights. Two heads have no such limit. Which functions are readable
from them is measured (see `hulls`), independently of the linear program that is tested.
Source: "How many attention heads do you need to do XOR?".
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from interp_studies.challenge.case import Case, KnownReadout, Truth
from interp_studies.challenge.hulls import apart
from interp_toolkit.data import FeatureData
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.zeros import zeros

HOOK = "blocks.0.hook_attn_out"
SHARP = 1.6  # of queries and keys, so that the bits move attention
TABLES = ("0110", "1001", "0001", "0111", "0100")
#: that one head can read nowhere
ONE_HEAD_NEVER = ("0110", "1001")


def xor_cases(seed: int, count: int) -> Iterator[Case]:
    """`count` models, with one head and two heads in turn."""
    rng = np.random.default_rng([seed, 21])
    for number in range(count):
        yield xor_case(1 + number % 2, int(rng.integers(2**31)))


def xor_case(n_heads: int, seed: int) -> Case:
    """Random heads that attend to two bits from a query.

    Args:
        n_heads: 1 or 2.
        seed: random seed of the weights, the positions of the bits, and the other tokens.
    """
    rng = np.random.default_rng([seed, 22])
    model = _random_heads(n_heads, rng)
    data = _rows(model.cfg.d_vocab, rng)
    with torch.no_grad():
        _, cache = model.run_with_cache(torch.from_numpy(data.token_matrix()))
        points = cache[HOOK][:, -1].numpy()
    readouts = []
    for table in TABLES:
        told = np.array([table[2 * a + b] == "1" for a, b in data.features.astype(int)])
        never = n_heads == 1 and table in ONE_HEAD_NEVER
        if never or apart(points, told):
            readouts.append(KnownReadout(HOOK, -1, data.names, table, not never))
    variant = "one head" if n_heads == 1 else "two heads"
    return Case("xor", variant, None, seed, model, data, Truth(readouts=tuple(readouts)))


@torch.no_grad()
def _random_heads(n_heads: int, rng: np.random.Generator) -> Transformer:
    """A one-layer model with normal weights, large enough for attention that is not uniform."""
    d_model, d_head = int(rng.integers(6, 20)), int(rng.integers(3, 7))
    config = TransformerConfig(
        n_layers=1,
        d_model=d_model,
        n_ctx=8,
        d_head=d_head,
        n_heads=n_heads,
        d_vocab=int(rng.integers(6, 12)),
        attn_only=True,
        normalization_type=None,
        positional_embedding_type="standard",
        dtype=torch.float64,
    )
    model = zeros(config)
    for name, parameter in model.named_parameters():
        if "W_" in name:
            drawn = torch.from_numpy(rng.standard_normal(tuple(parameter.shape)))
            sharp = SHARP if name.endswith(("W_Q", "W_K")) else 1.0
            parameter.copy_(sharp * drawn / np.sqrt(parameter.shape[-2]))
    model.embed.W_E.mul_(np.sqrt(config.d_vocab))
    model.pos_embed.W_pos.mul_(np.sqrt(config.n_ctx))
    model.eval()
    return model


def _rows(d_vocab: int, rng: np.random.Generator) -> FeatureData:
    """The four pairs of bits among other tokens, with the query last."""
    n = int(rng.integers(3, 9))
    fillers = rng.integers(2, d_vocab, size=n)
    places = np.sort(rng.permutation(n - 1)[:2])
    zero, one = (int(t) for t in rng.permutation(d_vocab)[:2])
    bits = np.array([[a, b] for a in (0, 1) for b in (0, 1)])
    tokens = np.tile(fillers, (4, 1))
    tokens[:, places] = np.where(bits == 1, one, zero)
    return FeatureData(tokens, bits.astype(bool), ("a", "b"), source="two bits")
