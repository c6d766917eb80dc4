"""One head's level is not that of a model with many heads."""

from __future__ import annotations

import dataclasses

import pytest

from interp_toolkit.circuits.skip_bigrams.analysis import (
    beyond_chance,
    beyond_control,
    evidence_of,
    headline,
    notes_of,
    sentences,
)
from interp_toolkit.circuits.skip_bigrams.head import Bigram, HeadBigrams, skip_bigrams_of


@pytest.fixture(scope="module")
def empty() -> HeadBigrams:
    import torch

    drawn = torch.Generator().manual_seed(0)
    features, W = (torch.randn(shape, generator=drawn) for shape in ((40, 16), (16, 16)))
    found = skip_bigrams_of(W, features)
    return dataclasses.replace(
        found, layer=0, head=0, n_pairs=25_000_000, bigrams=[], control_p=1 / 200
    )


def heads(empty: HeadBigrams, n: int, z: float) -> list[HeadBigrams]:
    """Of which the last shows one bigram."""
    one = Bigram("key", "query", 1.0, 1.0, z)
    found = [dataclasses.replace(empty, head=head) for head in range(n)]
    return [*found[:-1], dataclasses.replace(found[-1], bigrams=[one])]


# two-sided p of 6.69 is 2.2e-11: times 25 million pairs 5.6e-4, times 144 heads 0.08
@pytest.mark.parametrize(
    ("n", "z", "status"),
    [
        (1, 6.69, "detected"),
        (80, 6.69, "detected"),
        (144, 6.69, "undecided"),
        (144, -6.69, "undecided"),
        (144, 7.0, "detected"),
    ],
)
def test_one_of_many_heads_is_held_against_all(empty, n: int, z: float, status: str, texts) -> None:
    found = heads(empty, n, z)
    evidence = evidence_of(found, 199)
    assert evidence.status == status
    assert (evidence.reason is None) == (status == "detected")
    texts([sentences(found, evidence)[0], headline(found, status)])
    assert beyond_chance(found) == (status == "detected")


def test_several_heads_that_just_show_something_are_more_than_chance(empty) -> None:
    found = heads(empty, 144, 6.69)
    assert not beyond_chance(found)
    found[:2] = [dataclasses.replace(found[-1], head=head) for head in (0, 1)]
    assert beyond_chance(found)


def test_where_nothing_stands_out_it_says_so(empty, texts) -> None:
    assert evidence_of([empty], 199).status == "not_detected"
    texts(headline([empty], "not_detected"))


def test_heads_count_only_beyond_their_control(empty, texts) -> None:
    found = heads(empty, 3, 9.0)
    assert beyond_control(found) == found[2:]
    found[2] = dataclasses.replace(found[2], control_p=0.3)
    assert beyond_control(found) == []
    evidence = evidence_of(found, 199)
    assert evidence.status == "uninformative"
    assert (evidence.heads_with_bigrams, evidence.beyond_control) == (1, 0)
    texts(headline(found, evidence.status))
    texts(sentences(found, evidence)[0])
    found[1] = dataclasses.replace(found[2], head=1, control_p=1 / 200)
    evidence = evidence_of(found, 199)
    assert evidence.status == "detected"
    assert any("L0H2" in note for note in notes_of(found, evidence))
    texts(notes_of(found, evidence))
    unknown = [dataclasses.replace(one, control_p=float("nan")) for one in found]
    assert evidence_of(unknown, 199).status != "detected"
