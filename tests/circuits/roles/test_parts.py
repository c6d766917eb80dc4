"""The parts: places and their controls by loops, flipped signs, lists, marks, the rule."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from interp_toolkit.circuits.roles.causal import RoleCheck
from interp_toolkit.circuits.roles.find import _in_front, inhibits
from interp_toolkit.circuits.roles.kinds import RoleWord
from interp_toolkit.circuits.roles.measures import against_displaced, against_like
from interp_toolkit.circuits.roles.reading import Queries, queries_of
from interp_toolkit.circuits.roles.result import HeadRole
from interp_toolkit.circuits.roles.token_lists import lists_of, successions
from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Head
from interp_toolkit.stats import Share
from interp_toolkit.toys.hand_set.untrained import random_model


def queries(n: int = 5, n_pos: int = 9, seed: int = 0) -> Queries:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, 4, (n, n_pos))
    place = np.full(n, n_pos - 1)
    return Queries(tokens, place, rng.integers(0, 4, n), rng.integers(0, 4, n), 1)


def test_attention_beyond_places_like_the_targets_by_loops() -> None:
    given, rng = queries(), np.random.default_rng(1)
    attention = rng.random((2, 5, 9))
    targets = given.holding(given.answer)
    found = against_like(attention, given, targets)
    for head, ask in itertools.product(range(2), range(5)):
        mine = [p for p in range(8) if targets[ask, p]]
        others = [p for p in range(1, 8) if not targets[ask, p]]
        near = [p for p in others if any(abs(p - t) <= 3 for t in mine)] or others
        if not mine or not near:
            assert np.isnan(found[head, ask])
            continue
        paid = attention[head, ask]
        wanted = sum(paid[p] for p in mine) - len(mine) * np.mean([paid[p] for p in near])
        assert found[head, ask] == pytest.approx(wanted)


def test_attention_beyond_the_places_of_other_rows_by_loops() -> None:
    given, rng = queries(), np.random.default_rng(1)
    attention = rng.random((2, 5, 9))
    targets = given.holding(given.answer)
    found = against_displaced(attention, given, targets)
    for head, ask in itertools.product(range(2), range(5)):
        paid, means = attention[head, ask], []
        for other in range(5):
            moved = targets[other] & ~targets[ask] & given.earlier[ask]
            if other != ask and moved.any():
                means.append(paid[moved].mean())
        count = targets[ask].sum()
        if not means or not count:
            assert np.isnan(found[head, ask])
            continue
        wanted = paid[targets[ask]].sum() - count * np.mean(means)
        assert found[head, ask] == pytest.approx(wanted)


def test_targets_at_the_same_places_in_all_rows_have_no_displaced_control() -> None:
    tokens = np.array([[0, 1, 2, 9], [0, 3, 4, 9], [0, 5, 6, 9]])
    given = Queries(tokens, np.full(3, 3), np.array([1, 3, 5]), None, 1)
    found = against_displaced(np.ones((1, 3, 4)), given, given.holding(given.answer))
    assert np.isnan(found).all()


def test_successions_name_the_token_before_the_answer() -> None:
    tokens = np.array([[3, 0, 9], [5, 0, 9], [0, 0, 9]])
    given = Queries(tokens, np.full(3, 2), np.array([4, 4, 4]), None, 1)
    found = successions(given, [np.array([2, 3, 4, 5])])
    assert found.before.tolist() == [3, -1, -1]
    assert found.is_successor.tolist() == [True, False, False]


@pytest.mark.parametrize("wrong", [[1, 2, 3], [1, 2, 2, 3], [1, 2, 3, 99]])
def test_lists_that_are_none_are_refused(wrong: list[int]) -> None:
    with pytest.raises(InputError):
        lists_of(random_model(0), [wrong])


def check(loss: Share, direct: Share, downstream: Share, shift: Share | None) -> RoleCheck:
    return RoleCheck((Head(0, 0),), loss, direct, downstream, shift, "contributes")


def test_what_inhibits_is_told_by_the_causal_check() -> None:
    some, none = Share(0.3, 0.2, 0.4), Share(0.0, -0.01, 0.01)
    assert inhibits(check(some, none, some, some))[0] == "named"
    assert inhibits(check(some, none, some, none))[0] == "undecided"
    assert inhibits(check(some, none, some, None))[0] == "undecided"
    assert inhibits(check(none, none, none, some))[0] == "no"
    assert inhibits(check(some, Share(0.4, 0.3, 0.5), Share(0.1, 0.05, 0.2), some))[0] == "no"
    assert inhibits(None)[0] == "undecided"


def test_what_cancels_in_all_is_not_said_to_cost_nothing_downstream(texts) -> None:
    none, small = Share(0.0, -0.01, 0.01), Share(-0.1, -0.15, -0.05)
    some, more = Share(0.1, 0.05, 0.15), Share(0.12, 0.08, 0.16)
    assert inhibits(check(none, small, more, more))[0] == "undecided"
    alone = inhibits(check(none, small, some, some))
    nothing = inhibits(check(some, some, none, some))
    overlap = inhibits(check(some, more, some, some))
    assert [words[0] for words in (alone, nothing, overlap)] == ["undecided", "no", "undecided"]
    texts(words[1] for words in (alone, nothing, overlap))


def head_role(layer: int, kind: str, word: RoleWord) -> HeadRole:
    share = Share(0.5, 0.4, 0.6)
    return HeadRole(layer, 0, kind, word, share, None, 0.01, True, None)


def test_heads_are_in_front_of_movers_that_are_undecided_too() -> None:
    inhibiting = [head_role(n, "s-inhibition", "candidate") for n in range(5)]
    unclear = [head_role(n, "s-inhibition", "undecided") for n in range(5)]
    named, open_ = head_role(1, "name-mover", "named"), head_role(3, "name-mover", "undecided")

    def words(*movers: HeadRole, of: list[HeadRole] = inhibiting) -> list[str]:
        return [h.word for h in _in_front([*of, *movers]) if h.kind == "s-inhibition"]

    assert words(named) == ["candidate"] + 4 * ["no"]
    assert words(named, open_) == 3 * ["candidate"] + 2 * ["no"]
    assert words(named, open_, of=unclear) == 3 * ["undecided"] + 2 * ["no"]
    assert words(open_) == words() == 5 * ["candidate"]
    assert words(named, head_role(3, "name-mover", "no")) == ["candidate"] + 4 * ["no"]


def test_rows_that_ask_too_little_are_refused() -> None:
    from planted_roles import rows

    with pytest.raises(InputError, match="too few"):
        queries_of(rows(4))
