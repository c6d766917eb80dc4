"""Attention-only layers that compute a boolean function with the fewest possible heads.

A head whose query does not see the bits writes N/Z with N and Z affine in them. Multiplied by all
the Z (which are positive), a threshold on h heads is a polynomial of degree h with the function's
signs. So a function needs at least as many heads as its threshold degree. These constructions reach
that bound:

    degree 1                    one head: N the linear function itself, any Z
    degree 2, three bits        p = A + B L with affine A, B, L, which suffice for 3 cross terms;
                                two heads (A + B/ε)/(1 + ε L1) - (B/ε)/(1 + ε L2) with L = L2 - L1
                                are A + B L + O(ε)
    a function of how many bits are on
                                p(s)/Π (1 + c_h s) splits into a constant and heads R_h/(1 + c_h s):
                                as many heads as the function has changes of sign

All numbers are fractions, and `HeadFormula.value` is exact. In the model, tokens determine the
attention (a 1 has twice the weight of a 0), and positions both the attention and the value.
Source: "How many attention heads do you need to do XOR?" for two bits; the rest is derived here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch

from interp_toolkit.boolean_functions import ThresholdDegree, threshold_degree
from interp_toolkit.errors import InputError
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.registry import Toy
from interp_toolkit.toys.zeros import zeros

ZERO, ONE, QUERY = 0, 1, 2  # token ids, and the axes of their embeddings
SOURCE = "How many attention heads do you need to do XOR?"
FINEST = 40  # largest number of halvings of ε


@dataclass(frozen=True)
class Affine:
    """constant + Σ weights x, with fractions."""

    constant: Fraction
    weights: tuple[Fraction, ...]

    def at(self, bits: Sequence[int]) -> Fraction:
        """The function's value on these bits."""
        return self.constant + sum(w * b for w, b in zip(self.weights, bits, strict=True))


@dataclass(frozen=True)
class HeadFormula:
    """Heads as fractions of affine functions, and the threshold on their sum.

    Attributes:
        heads: (N, Z) of each; Z has positive weights, whose sum is below its constant.
        threshold: the function is true if Σ N/Z is above it.
    """

    heads: tuple[tuple[Affine, Affine], ...]
    threshold: Fraction

    def value(self, bits: Sequence[int]) -> Fraction:
        """The heads' output minus the threshold, exactly."""
        return sum((n.at(bits) / z.at(bits) for n, z in self.heads), -self.threshold)

    def computes(self, table: str) -> bool:
        """Whether the sign of the value is the function's on every input."""
        n_bits = len(table).bit_length() - 1
        inputs = itertools.product((0, 1), repeat=n_bits)
        values = (self.value(bits) for bits in inputs)
        return all((v > 0) == (bit == "1") and v for v, bit in zip(values, table, strict=True))


def head_formula(table: str) -> HeadFormula:
    """A layer with as many heads as the threshold degree, which computes the function exactly.

    Args:
        table: table of a function of at most three bits, or of at most six bits if it is a linear
            threshold function or depends only on the number of bits that are on; not constant.

    Raises:
        InputError: another table.
    """
    least = threshold_degree(table)
    if not least.degree:
        raise InputError(f"{table} is constant: no head is needed")
    n_bits = len(table).bit_length() - 1
    counts = _by_count(table, n_bits)
    if least.degree == 1:
        formula = _one_head(least, n_bits)
    elif counts is not None:
        formula = _of_counts(counts)
    elif n_bits == 3:
        formula = _two_heads(least)
    else:
        raise InputError(
            f"{table}: give a function of at most three bits, or, of at most six, a linear "
            "threshold function or one of the number of bits that are on"
        )
    if not formula.computes(table):
        raise AssertionError(f"{table}: the heads do not compute it")
    return formula


def _by_count(table: str, n_bits: int) -> list[int] | None:
    """The values by the number of bits that are on; None if they depend on more than that."""
    values: list[set[str]] = [set() for _ in range(n_bits + 1)]
    for index, bit in enumerate(table):
        values[index.bit_count()].add(bit)
    return None if any(len(v) > 1 for v in values) else [int(*v) for v in values]


def _one_head(least: ThresholdDegree, n_bits: int) -> HeadFormula:
    """One head: the linear polynomial divided by a positive denominator (any would do)."""
    p = least.polynomial
    linear = Affine(Fraction(p.get((), 0)), tuple(Fraction(p.get((i,), 0)) for i in range(n_bits)))
    z = Affine(Fraction(1), (Fraction(1, 2 * n_bits),) * n_bits)
    return HeadFormula(((linear, z),), Fraction(0))


def _two_heads(least: ThresholdDegree) -> HeadFormula:
    """Two heads whose difference is a product of affine functions, as ε goes to 0."""
    p = least.polynomial
    cross = [Fraction(p.get(pair, 0)) for pair in ((0, 1), (0, 2), (1, 2))]
    half = sum(cross, Fraction(0)) / 2
    product = (half - cross[2], half - cross[1], half - cross[0])  # L of B L with B = Σ x
    linear = [Fraction(p.get((i,), 0)) - product[i] for i in range(3)]
    constant = Fraction(p.get((), 0))
    for halvings in range(1, FINEST):
        formula = _at_epsilon(constant, linear, product, Fraction(1, 2**halvings))
        if formula is not None and formula.computes(least.table):
            return formula
    raise AssertionError(f"{least.table}: no ε down to 2^-{FINEST} separates it")


def _at_epsilon(
    constant: Fraction,
    linear: Sequence[Fraction],
    product: Sequence[Fraction],
    epsilon: Fraction,
) -> HeadFormula | None:
    """The two heads at this ε; None if a denominator's weights would not fit."""
    first = [epsilon * (max(-x, Fraction(0)) + 1) for x in product]
    second = [epsilon * (max(x, Fraction(0)) + 1) for x in product]
    if max(sum(first), sum(second)) >= 1:
        return None
    one, scale = Fraction(1), 1 / epsilon
    up = Affine(constant, tuple(x + scale for x in linear))
    down = Affine(Fraction(0), (-scale,) * 3)
    heads = (up, Affine(one, tuple(first))), (down, Affine(one, tuple(second)))
    return HeadFormula(heads, Fraction(0))


def _of_counts(counts: Sequence[int]) -> HeadFormula:
    """A head for every change of sign, by partial fractions."""
    n_bits = len(counts) - 1
    roots = [Fraction(2 * s + 1, 2) for s in range(n_bits) if counts[s] != counts[s + 1]]
    lead = Fraction(1 if counts[n_bits] else -1)
    poles = [Fraction(h, n_bits * (len(roots) + 1)) for h in range(1, len(roots) + 1)]
    heads = []
    for c in poles:
        at_pole = lead * math.prod(-1 / c - root for root in roots)
        others = math.prod(1 - other / c for other in poles if other != c)
        n = Affine(at_pole / others, (Fraction(0),) * n_bits)
        heads.append((n, Affine(Fraction(1), (c,) * n_bits)))
    return HeadFormula(tuple(heads), -lead / math.prod(poles))


def boolean_heads(table: str, dtype: torch.dtype = torch.float64) -> Transformer:
    """The model of `head_formula`: prompts are the bits and '=', and the answer is read at '='.

    A key at position i scores log z_i, plus log 2 if it is a 1; its value is n_i / z_i. The key of
    '=' carries the remaining terms of N and Z.

    Raises:
        InputError: see `head_formula`.
    """
    formula = head_formula(table)
    n_bits = len(table).bit_length() - 1
    answer = QUERY + n_bits + 2  # after the positions' axes; nothing else writes there
    config = TransformerConfig(
        n_layers=1,
        d_model=answer + 1,
        n_ctx=n_bits + 1,
        d_head=1,
        n_heads=len(formula.heads),
        d_vocab=3,
        d_vocab_out=2,
        attn_only=True,
        d_mlp=None,
        act_fn=None,
        biases=False,
        normalization_type=None,
        positional_embedding_type="standard",
        dtype=dtype,
    )
    model = zeros(config)
    attn = model.blocks[0].attn
    with torch.no_grad():
        model.embed.W_E[:, : QUERY + 1] = torch.eye(3, dtype=dtype)
        model.pos_embed.W_pos[:, QUERY + 1 : answer] = torch.eye(n_bits + 1, dtype=dtype)
        for head, (n, z) in enumerate(formula.heads):
            keys = [*z.weights, z.constant - sum(z.weights)]
            values = [w / k for w, k in zip(n.weights, z.weights, strict=True)]
            values.append((n.constant - sum(n.weights)) / keys[-1])
            attn.W_Q[head, QUERY, 0] = config.attn_scale
            attn.W_K[head, ONE, 0] = math.log(2)
            for i, (key, value) in enumerate(zip(keys, values, strict=True)):
                attn.W_K[head, QUERY + 1 + i, 0] = math.log(key)
                attn.W_V[head, QUERY + 1 + i, 0] = float(value)
            attn.W_O[head, 0, answer] = 1.0
        model.unembed.W_U[answer, 1] = 1.0
        model.unembed.W_U[QUERY, 1] = -float(formula.threshold)
    model.eval()
    return model


def _parity_3() -> Transformer:
    return boolean_heads("01101001")


PARITY_3HEAD = Toy(
    "parity-3head",
    "three heads that compute the parity of three bits; two heads cannot",
    _parity_3,
    {
        "name": "parity",
        "function": "01101001",
        "tokens": {"0": ZERO, "1": ONE, "query": QUERY},
        "layout": ["a", "b", "c", "query"],
    },
    SOURCE,
)
