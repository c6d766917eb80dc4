"""Twins: one task solved by two algorithms, and a model with and without a backdoor.

Both twins have one seed and equal prompts.

- Sorting lists of distinct values: by the smallest value above the previous output, or by the
  piecewise-linear argmax (`toys.sorting`).
- Addition modulo p: by multiplying (the *clock*), or by averaging and taking absolute values (the
  *pizza*). Zhong et al. 2023, "The Clock and the Pizza", arXiv 2306.17844; weights are set by hand,
  see `modular`.
- A compiled program with and without a backdoor (see `backdoors`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from interp_studies.challenge.case import Case, Truth
from interp_studies.challenge.disguise import disguised
from interp_studies.challenge.families.modular import clock, pairs_of, pizza
from interp_toolkit.data import FeatureData
from interp_toolkit.models.model import Head
from interp_toolkit.toys.sorting import sort_argmax, sort_min_greater

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
ROWS = 256


def twin_cases(seed: int, count: int) -> Iterator[Case]:
    """`count` models, every variant in turn; the first two are twins, and so on."""
    rng = np.random.default_rng([seed, 51])
    for number in range(count):
        if number % 2 == 0:
            shared = int(rng.integers(2**31))
        yield twin_case(VARIANTS[number % len(VARIANTS)], shared)


def twin_case(variant: str, seed: int) -> Case:
    """A twin.

    Args:
        variant: one of VARIANTS.
        seed: random seed of sizes, weights and prompts. Twins with one seed have equal outputs on
            equal prompts.
    """
    if variant.startswith("sorting"):
        return sorting_case(SORTERS[variant == VARIANTS[1]], seed)
    if variant.startswith("adding"):
        return adding_case(ADDERS[variant == VARIANTS[3]], seed)
    from interp_studies.challenge.families.backdoors import backdoor_case  # needs tracr

    return backdoor_case(variant == VARIANTS[4], variant, seed)


def sorting_case(algorithm: str, seed: int) -> Case:
    """A model that sorts lists of distinct values; the sorted list follows the list."""
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
    """A model that adds two numbers modulo p, redrawn until both twins are right on every pair."""
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
