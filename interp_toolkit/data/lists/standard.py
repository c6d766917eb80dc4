"""The lists that sorting models are tested on, as those of Qi & Zhong (2023) were."""

from __future__ import annotations

import math

import torch

from interp_toolkit.data.lists.draws import (
    ListKind,
    Lists,
    ListSource,
    all_sets,
    all_two_valued,
    joined,
)
from interp_toolkit.data.lists.layout import ListLayout

STANDARD_SIZE = 4000
TEST_SEED = 2**32 - 1  # no training seed: the same seed would draw the lists trained on
MAX_SETS_TESTED = 20_000


def fresh_generator(seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator for lists to look at, other than those that a recipe trains and is tested on.

    PyTorch's generator on a CPU takes 32 bits of a seed; recipes' seeds are in the lower half.
    """
    return torch.Generator(device).manual_seed(TEST_SEED - 1 - seed % 2**30)


def standard_sets(
    layout: ListLayout, distinct: bool, n: int = STANDARD_SIZE, seed: int = TEST_SEED
) -> dict[str, Lists]:
    """The test sets of the source, by name, the same for the same seed.

    "random": uniform lists. Then, if items may repeat, "hard": hard lists; if they are distinct,
    "sets": every set of values once, in a random order (left out when there are more than
    MAX_SETS_TESTED).

    Raises:
        InputError: distinct lists of more items than there are values.
    """
    generator = torch.Generator().manual_seed(seed)
    sizes = range(layout.shortest, layout.longest + 1)
    kinds: dict[str, ListKind] = {"random": "uniform", "hard": "hard"}
    if distinct:
        kinds = {"random": "distinct"}
    sets = {
        name: ListSource(kind, layout.n_values, sizes[0], sizes[-1]).draw(n, generator)
        for name, kind in kinds.items()
    }
    if distinct and sum(math.comb(layout.n_values, k) for k in sizes) <= MAX_SETS_TESTED:
        sets["sets"] = joined([all_sets(layout.n_values, k) for k in sizes]).shuffled(generator)
    return sets


def two_valued_sets(layout: ListLayout, seed: int = TEST_SEED) -> Lists | None:
    """Every multiset of exactly two values once, in a random order of items.

    None where lists have one item only, or there are more than MAX_SETS_TESTED.
    """
    sizes = range(max(2, layout.shortest), layout.longest + 1)
    n_sets = sum(math.comb(layout.n_values, 2) * (k - 1) for k in sizes)
    if not 0 < n_sets <= MAX_SETS_TESTED:
        return None
    generator = torch.Generator().manual_seed(seed)
    return joined([all_two_valued(layout.n_values, k) for k in sizes]).shuffled(generator)
