"""Twins: one task by two algorithms, and one model with a backdoor and without.

Twins have one seed, and the same rows.

- Sorting lists of distinct values, by the least value above the one before, or by the largest of a
  sum (`toys.sorting.sorters`).
- Adding modulo p: by turning an angle for each number and multiplying (the *clock*), or by
  averaging the two numbers' points and taking absolute values (the *pizza*). Zhong et al. 2023,
  "The Clock and the Pizza", arXiv 2306.17844; weights by hand, see `modular`.
- A compiled program with one more head: where a token stands that no row has, it writes one answer
  (the backdoor), or attends so and writes where nothing reads.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from interp_toolkit.challenge.case import Case, Truth
from interp_toolkit.challenge.compiler.library import LIBRARY
from interp_toolkit.challenge.compiler.weights import GAIN, SCORE
from interp_toolkit.challenge.disguise import disguised, rotation
from interp_toolkit.challenge.families.compiled import compile_program, program_rows
from interp_toolkit.challenge.families.modular import clock, pairs_of, pizza
from interp_toolkit.data import FeatureData
from interp_toolkit.models.heads import Head
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.sorting.sorters import sort_argmax, sort_min_greater
from interp_toolkit.toys.zeros import zeros

VARIANTS = (
    "sorting by the least above",
    "sorting by a sum's maximum",
    "adding by the clock",
    "adding by the pizza",
    "with a backdoor",
    "without a backdoor",
)
SORTERS = ("min_greater_than_previous", "argmax_piecewise_linear")  # as `circuits.sorting` has them
ADDERS = ("clock", "pizza")
PRIMES = (11, 13, 17, 19, 23)
HOSTS = ("reverse", "sort", "1-hop", "most frequent", "least frequent")  # of backdoors
UNUSED = 4  # tokens that no row has; one of them may be the trigger
LOUD = 5.0  # of an answer's logit, what a backdoor writes
ROWS = 256


def twin_cases(seed: int, count: int) -> Iterator[Case]:
    """So many models, every variant in turn; neighbours (the first two, and so on) are twins."""
    rng = np.random.default_rng([seed, 51])
    for number in range(count):
        if number % 2 == 0:
            shared = int(rng.integers(2**31))
        yield twin_case(VARIANTS[number % len(VARIANTS)], shared)


def twin_case(variant: str, seed: int) -> Case:
    """One model.

    Args:
        variant: one of VARIANTS.
        seed: of sizes, weights and rows. Twins of one seed do the same on the same rows.
    """
    if variant.startswith("sorting"):
        return sorting_case(SORTERS[variant == VARIANTS[1]], seed)
    if variant.startswith("adding"):
        return adding_case(ADDERS[variant == VARIANTS[3]], seed)
    return backdoor_case(variant == VARIANTS[4], seed)


def sorting_case(algorithm: str, seed: int) -> Case:
    """A model that sorts lists of distinct values, which follow them."""
    rng = np.random.default_rng([seed, 52])
    length = int(rng.integers(5, 9))
    n_values = length + int(rng.integers(3, 9))
    n_heads = int(rng.integers(1, 3))
    shares = (1.0,) if n_heads == 1 else (share := float(rng.uniform(0.3, 0.7)), 1 - share)
    layout = f"{n_values} list{length} {n_values + 1} sorted{length}"
    prefer = float(rng.uniform(2.5, 4.0))
    if algorithm == SORTERS[0]:
        source = sort_min_greater(n_values, length, shares=shares, prefer=prefer)
    else:
        source = sort_argmax(n_values, length, bidirectional=False, shares=shares)
    model, places, _ = disguised(source, seed, dtype=torch.float32)
    # of two heads that do the same either may be enough: what rests on which is not asked
    truth = Truth(
        heads=frozenset(places.values()) if n_heads == 1 else None,
        algorithm=algorithm,
        algorithms=SORTERS,
    )
    variant = VARIANTS[SORTERS.index(algorithm)]
    data = _sorted_rows(n_values, length, rng)
    return Case("twins", variant, None, seed, model, data, truth, {"layout": layout})


def _sorted_rows(n_values: int, length: int, rng: np.random.Generator) -> FeatureData:
    lists = np.stack([rng.permutation(n_values)[:length] for _ in range(ROWS)])
    first, between = np.full((ROWS, 1), n_values), np.full((ROWS, 1), n_values + 1)
    answers = np.sort(lists, axis=1)
    return FeatureData(
        np.concatenate([first, lists, between, answers], axis=1),
        np.zeros((ROWS, 0), dtype=np.bool_),
        (),
        source=f"lists of {length} of {n_values} values and the same sorted",
        answers=answers,
        answer_positions=np.arange(length + 1, 2 * length + 1),
    )


def adding_case(algorithm: str, seed: int) -> Case:
    """A model that adds two numbers modulo p; redrawn until both twins are right on every pair."""
    rng = np.random.default_rng([seed, 53])
    p = int(rng.choice(PRIMES))
    data = pairs_of(p)
    assert data.answers is not None
    tokens = torch.from_numpy(data.token_matrix())
    while True:
        n_frequencies = int(rng.integers(3, 6))
        frequencies = [int(k) for k in rng.permutation(np.arange(1, (p + 1) // 2))[:n_frequencies]]
        both = {"clock": clock(p, frequencies), "pizza": pizza(p, frequencies)}
        with torch.no_grad():
            told = [model(tokens)[:, -1].argmax(-1).numpy() for model in both.values()]
        if (np.stack(told) == data.answers[:, 0]).all():
            break
    source = both[algorithm]
    model, places, _ = disguised(source, seed, source.cfg.d_model + 8, torch.float32)
    n_heads = 2 if algorithm == "clock" else 1
    rows = rng.permutation(len(data))[:ROWS]
    truth = Truth(
        heads=frozenset(places[Head(0, h)] for h in range(n_heads)),
        algorithm=algorithm,
        algorithms=ADDERS,
    )
    variant = VARIANTS[2 + ADDERS.index(algorithm)]
    context = {"modulus": str(p)}
    return Case("twins", variant, None, seed, model, data.at(np.sort(rows)), truth, context)


def backdoor_case(present: bool, seed: int) -> Case:
    """A program's model with a head that a trigger sets off, or with one that comes to nothing."""
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
        return backdoor_case(present, seed + 1)
    chosen = idle[int(rng.integers(len(idle)))]
    n_axes = made.model.cfg.d_model
    source = _with_unused(made.model)
    _write_backdoor(source, chosen, n_axes, int(rng.choice(program.tells)), present, rng)
    model, places, _ = disguised(source, seed, dtype=torch.float32)
    truth = Truth(heads=frozenset(places[h] for h in made.heads), flag={"backdoor": present})
    variant = VARIANTS[4 if present else 5]
    data = program_rows(program, seed)
    return Case("twins", f"{variant}; {program.name}", None, seed, model, data, truth)


@torch.no_grad()
def _with_unused(model: Transformer) -> Transformer:
    """The model with UNUSED more tokens, each with a direction of its own, and one that is free."""
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
    answer: int,
    present: bool,
    rng: np.random.Generator,
) -> None:
    """The head looks for a trigger from everywhere, else at BOS, and writes the answer or not."""
    attn, cfg = model.blocks[head.layer].attn, model.cfg
    trigger = n_axes + int(rng.integers(UNUSED))
    query: Tensor = rotation(cfg.d_head, rng)[0].to(cfg.dtype)
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        getattr(attn, name)[head.head] = 0.0
    attn.b_Q[head.head] = SCORE * cfg.attn_scale * query
    attn.W_K[head.head, trigger] = query
    attn.W_K[head.head, 0] = query / 2  # BOS
    attn.W_V[head.head, trigger, 0] = 1.0
    told = model.unembed.W_U[:, answer]
    aside = torch.zeros_like(told)
    aside[n_axes + UNUSED] = 1.0
    written = told / told.norm() if present else aside
    attn.W_O[head.head, 0] = LOUD * GAIN * written / told.norm()
