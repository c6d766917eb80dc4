"""Looks: what is compared with what, against counting by hand."""

import numpy as np
import pytest
import torch

from interp_toolkit.circuits.behaviour.prompts import Prompts
from interp_toolkit.circuits.heads.controls import matched_controls
from interp_toolkit.circuits.heads.detectors import (
    DUPLICATE_TOKEN,
    FIRST_TOKEN,
    INDUCTION,
    PREVIOUS_TOKEN,
)

ALL = [INDUCTION, DUPLICATE_TOKEN, PREVIOUS_TOKEN, FIRST_TOKEN]


def tiled(periods, n_pos, d_vocab, seed=0):
    rng = np.random.default_rng(seed)
    rows = [np.resize(rng.choice(d_vocab, p, replace=False), n_pos) for p in periods]
    return Prompts(torch.from_numpy(np.stack(rows)), 0, np.array(periods), "test")


@pytest.fixture(params=[(9, 10, 11, 12), (10, 10, 10)], ids=["periods", "one period"])
def prompts(request):
    return tiled(request.param, 24, 40)


def places_of(found, look):
    row, query, key = found.places[:, found.which_set == look]
    return set(zip(row.tolist(), query.tolist(), key.tolist(), strict=True))


def family(found, detector, kind):
    return next(f for f in found.families if (f.detector, f.kind) == (detector, kind))


@pytest.mark.parametrize("causal", [True, False])
def test_targets_are_the_relation_and_controls_avoid_them(prompts, causal):
    found = matched_controls(prompts, ALL, causal=causal, d_model=16)
    for detector in (INDUCTION, DUPLICATE_TOKEN):
        target = places_of(found, family(found, detector.name, "shifted").target)
        expected = set()
        for row, tokens in enumerate(prompts.tokens.numpy()):
            for query, key in zip(*np.nonzero(detector.relation(tokens, tokens)), strict=True):
                if not causal or key <= query:
                    expected.add((row, int(query), int(key)))
        assert target == expected
        for kind in ("shifted", "relabelled", "displaced"):
            for control in family(found, detector.name, kind).controls:
                assert not places_of(found, control) & target
    for row, query, key in zip(*found.places.tolist(), strict=True):
        assert 0 <= key < 24
        assert not causal or key <= query
        assert 0 <= row < len(found.tokens)


def test_by_position_every_look_has_the_same_queries(prompts):
    found = matched_controls(prompts, ALL, causal=True, d_model=16)
    steps = {"previous-token": lambda q, s: q - 1 - s, "first-token": lambda q, s: s}
    for name, where in steps.items():
        kind = family(found, name, "shifted")
        assert len(kind.controls) == 8
        queries = {(r, q) for r, q, _ in places_of(found, kind.target)}
        for step, look in enumerate([kind.target, *kind.controls]):
            expected = {(r, q, where(q, step)) for r, q in queries}
            assert places_of(found, look) == expected
        assert min(q for _, q in queries) == 9
        assert not [f for f in found.families if f.detector == name and f.kind != "shifted"]


def test_relabelled_looks_ask_for_another_token_everywhere(prompts):
    found = matched_controls(prompts, [DUPLICATE_TOKEN], causal=True, d_model=16)
    tokens = prompts.tokens.numpy()
    asked = [
        {(tokens[r, q], tokens[r, k]) for r, q, k in places_of(found, control)}
        for control in family(found, "duplicate-token", "relabelled").controls
    ]
    assert len(asked) == 24
    assert all(query != key for pairs in asked for query, key in pairs)
    for row in range(len(tokens)):  # within a row every token asks for one other
        own = {
            (tokens[r, q], tokens[r, k])
            for r, q, k in places_of(
                found, family(found, "duplicate-token", "relabelled").controls[0]
            )
            if r == row
        }
        assert len({query for query, _ in own}) == len(own)


def test_displaced_looks_are_the_same_places_elsewhere(prompts):
    found = matched_controls(prompts, [INDUCTION], causal=True, d_model=16)
    kind = family(found, "induction", "displaced")
    target = places_of(found, kind.target)
    one_period = len(set(prompts.periods.tolist())) == 1
    assert len(found.tokens) == len(prompts) * (2 if one_period else 1)
    for look, move in zip(kind.controls, kind.moved, strict=True):
        moved = {((r + move) % len(found.tokens), q, k) for r, q, k in target}
        assert places_of(found, look) == moved - target
        assert places_of(found, look)
    if one_period:  # the hosts hold the same tokens, in another order
        hosts, rows = found.tokens[len(prompts) :], prompts.tokens
        assert torch.equal(hosts.sort(1).values, rows.sort(1).values)
        assert not torch.equal(hosts, rows)


def test_uniform_attention_is_counted_over_visible_keys(prompts):
    found = matched_controls(prompts, ALL, causal=True, d_model=16)
    for window in (None, 5):
        sums = found.uniform(window)
        for look in range(found.n_sets):
            for row in range(len(found.tokens)):
                expected = sum(
                    1 / min(q + 1, window or 99)
                    for r, q, k in places_of(found, look)
                    if r == row and (window is None or q - k < window)
                )
                assert sums[row, look] == pytest.approx(expected)
    both = matched_controls(prompts, [PREVIOUS_TOKEN], causal=False, d_model=16)
    target = family(both, "previous-token", "shifted").target
    assert both.uniform()[0, target] == pytest.approx(both.n_queries[0, target] / 24)


def test_queries_are_counted_once():
    row = torch.tensor([[1, 2, 1, 2, 1, 2, 1, 2]] * 2)
    found = matched_controls(
        Prompts(row, 0, np.array([2, 2]), "test"), [DUPLICATE_TOKEN], causal=True, d_model=8
    )
    target = found.families[0].target
    assert found.n_queries[0, target] == 6  # all but the first two, however many keys each has


def test_a_small_alphabet_is_relabelled_in_every_way():
    rng = np.random.default_rng(0)
    tokens = torch.from_numpy(rng.integers(0, 4, (5, 20)))
    found = matched_controls(
        Prompts(tokens, 0, np.zeros(5, int), "test"), [DUPLICATE_TOKEN], causal=True, d_model=8
    )
    assert len(family(found, "duplicate-token", "relabelled").controls) == 9  # derangements of 4


def test_rows_with_tokens_of_their_own_raise_the_spread():
    shared = matched_controls(tiled((9, 10), 24, 10), [INDUCTION], causal=True, d_model=20)
    own = matched_controls(tiled((9, 10), 24, 4000), [INDUCTION], causal=True, d_model=20)
    assert family(shared, "induction", "relabelled").spread == pytest.approx(1 + 10 / 20)
    assert family(own, "induction", "relabelled").spread == pytest.approx(1 + 19 / 20)
    half = matched_controls(tiled((9,) * 8, 24, 30), [INDUCTION], causal=True, d_model=20)
    union = len({t for row in tiled((9,) * 8, 24, 30).tokens.tolist() for t in row})
    expected = 72 / union * (1 + union / 20)
    assert family(half, "induction", "relabelled").spread == pytest.approx(expected)


def test_a_detectors_neighbour_is_no_control_of_it(prompts):
    """What attends to the same token is a duplicate-token head, not evidence about induction."""
    found = matched_controls(prompts, [INDUCTION, DUPLICATE_TOKEN], causal=True, d_model=16)
    ends = {INDUCTION: -1, DUPLICATE_TOKEN: 1}
    for detector, step in ends.items():
        shifted = family(found, detector.name, "shifted")
        moved = {(r, q, k + step) for r, q, k in places_of(found, shifted.target)}
        assert len(shifted.controls) == 11
        assert all(places_of(found, control) - moved for control in shifted.controls)
