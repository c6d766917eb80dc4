"""Retrieval against a reader that goes through each row pair by pair."""

from __future__ import annotations

import pytest
import torch

from interp_toolkit.toys.random_attention.tasks import PAD, Retrieval


def pairs_of(tokens: list[int], place: int) -> list[tuple[int, int]]:
    return list(zip(tokens[:place:2], tokens[1:place:2], strict=True))


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize(("most", "symbols"), [(1, 4), (8, 16), (30, 256)])
def test_rows_are_pairs_and_a_key_that_they_have(most: int, symbols: int, repeated: bool) -> None:
    task = Retrieval(most, symbols, repeated)
    rows = task.draw(2_000, torch.Generator().manual_seed(0))
    lengths, asked, repeats = set(), set(), 0
    for tokens, (place,), (answer,) in zip(*(x.tolist() for x in rows), strict=True):
        pairs, query = pairs_of(tokens, place), tokens[place]
        keys = [key for key, _ in pairs]
        assert all(symbols // 2 <= key <= symbols for key in keys)
        assert all(1 <= value < symbols // 2 for _, value in pairs)
        assert dict(pairs)[query] == answer  # the last pair of a key counts
        assert tokens[place + 1 :] == [PAD] * (2 * most - place)
        repeats += len(set(keys)) < len(keys)
        lengths.add(len(pairs))
        asked.add(keys.index(query))
    assert lengths == set(range(1, most + 1))
    assert asked == set(range(most))
    assert (repeats > 0) == (repeated and most > 1)


def test_naming_a_value_of_the_context() -> None:
    assert Retrieval(1, 256).guess == 1
    # the mean of 1/m, and values that are the same by chance
    assert Retrieval(8, symbols=1_000_000).guess == pytest.approx(0.3397, abs=5e-5)
    assert Retrieval(30, symbols=1_000_000).guess == pytest.approx(0.1332, abs=5e-5)


@pytest.mark.parametrize(("pairs", "symbols"), [(8, 256), (4, 8)])
def test_guessing_is_naming_the_first_value(pairs: int, symbols: int) -> None:
    task = Retrieval(pairs, symbols)
    rows = task.draw(40_000, torch.Generator().manual_seed(1))
    right = (rows.tokens[:, 1] == rows.answer[:, 0]).double().mean().item()
    assert right == pytest.approx(task.guess, abs=0.012)


def test_the_ceiling_where_keys_repeat() -> None:
    """With independent keys, whoever names a value of the asked key at random errs this often."""
    task = Retrieval(30, 256, repeated_keys=True)
    rows = task.draw(40_000, torch.Generator().manual_seed(1))
    ceiling = 0.0
    for tokens, (place,), _ in zip(*(x.tolist() for x in rows), strict=True):
        values = [v for k, v in pairs_of(tokens, place) if k == tokens[place]]
        ceiling += max(values.count(v) for v in values) / len(values)
    assert ceiling / 40_000 == pytest.approx(0.946, abs=2e-3)
