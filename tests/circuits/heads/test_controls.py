"""Looks: what is compared with what, against counting by hand."""

import dataclasses
import tracemalloc

import numpy as np
import pytest
import torch

from interp_toolkit.circuits.heads.controls import (
    matched_controls,
)
from interp_toolkit.circuits.heads.detectors import (
    ANSWER,
    DUPLICATE_TOKEN,
    FIRST_TOKEN,
    INDUCTION,
    PREVIOUS_TOKEN,
)
from interp_toolkit.circuits.metrics.prompts import Prompts
from interp_toolkit.errors import InputError

ALL = [INDUCTION, DUPLICATE_TOKEN, PREVIOUS_TOKEN, FIRST_TOKEN]


def tiled(periods, n_pos, d_vocab, seed=0):
    rng = np.random.default_rng(seed)
    rows = [np.resize(rng.choice(d_vocab, p, replace=False), n_pos) for p in periods]
    return Prompts(torch.from_numpy(np.stack(rows)), 0, np.array(periods), "test")


@pytest.fixture(params=[(9, 10, 11, 12), (10, 10, 10)], ids=["periods", "one period"])
def prompts(request):
    return tiled(request.param, 24, 40)


def places_of(found, look):
    row, query, key = found.sets().entries[:, found.sets().which_set == look]
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
        for kind in ("shifted", "relabelled", "displaced", "other queries"):
            for control in family(found, detector.name, kind).controls:
                assert not places_of(found, control) & target
    for row, query, key in zip(*found.sets().entries.tolist(), strict=True):
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
        kinds = {f.kind for f in found.families if f.detector == name} - {"shifted"}
        assert kinds == ({"other queries"} if name == "previous-token" else set())


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


def test_displaced_controls_are_the_same_positions_in_shuffled_rows(prompts):
    found = matched_controls(prompts, [INDUCTION], causal=True, d_model=16)
    kind = family(found, "induction", "displaced")
    n, (control,) = len(prompts), kind.controls
    rows, shuffled = found.tokens[:n], found.tokens[n:]
    assert torch.equal(shuffled.sort(1).values, rows.sort(1).values)
    assert not torch.equal(shuffled, rows)
    compared, moved = places_of(found, kind.compared), places_of(found, control)
    assert moved == {(r + n, q, k) for r, q, k in compared}
    for row, query, key in places_of(found, kind.target) - compared:  # it holds there too
        tokens = shuffled[row].numpy()
        assert INDUCTION.relation(tokens, tokens)[query, key]


def test_answers_are_displaced_to_other_rows_and_layouts_are_not_shuffled():
    rng = np.random.default_rng(0)
    tokens = rng.integers(2, 30, (40, 9))
    tokens[:, 0], tokens[:, -1] = 0, 1
    where = rng.integers(1, 8, 40)
    answers = torch.from_numpy(tokens[np.arange(40), where])[:, None]
    prompts = Prompts(
        torch.from_numpy(tokens), 0, np.zeros(40, int), "test", answers, torch.full((40, 1), 8)
    )
    found = matched_controls(prompts, [ANSWER, DUPLICATE_TOKEN], causal=True, d_model=16)
    kind = family(found, "answer", "displaced")
    for row, query, key in places_of(found, kind.controls[0]):
        assert row < 40
        assert query == 8
        assert tokens[row, key] != answers[row, 0]
    assert (found.tokens[40:, 0] == 0).all()
    assert (found.tokens[40:, -1] == 1).all()
    assert not [f for f in found.families if (f.detector, f.kind) == ("answer", "other queries")]


def test_other_queries_see_the_same_keys_as_counted_by_hand(prompts):
    found = matched_controls(prompts, [INDUCTION, PREVIOUS_TOKEN], causal=True, d_model=16)
    pattern = torch.rand(24, 24, generator=torch.Generator().manual_seed(0)).numpy()
    for name in ("induction", "previous-token"):
        kind = family(found, name, "other queries")
        target = places_of(found, kind.target)
        for row in range(len(prompts)):
            own = {(q, k) for r, q, k in target if r == row}
            wanted = 0.0
            for _, key in own:
                others = [q for q in range(key + 1, 24) if (q, key) not in own]
                others = others or [key]  # its own query, where no other sees it
                wanted += np.mean([pattern[q, key] for q in others])
            here = (found.sets().which_set == kind.controls[0]) & (found.sets().entries[0] == row)
            _, query, key = found.sets().entries[:, here]
            made = (found.sets().weights[here] * pattern[query, key]).sum()
            assert made == pytest.approx(wanted)
            assert found.n_queries[row, kind.controls[0]] == pytest.approx(len(own))


def test_uniform_attention_is_counted_over_visible_keys(prompts):
    found = matched_controls(prompts, ALL, causal=True, d_model=16)
    for window in (None, 5):
        sums = found.uniform(window)
        for look in range(found.n_sets):
            for row in range(len(found.tokens)):
                here = (found.sets().which_set == look) & (found.sets().entries[0] == row)
                places = zip(
                    *found.sets().entries[1:, here], found.sets().weights[here], strict=True
                )
                expected = sum(
                    weight / min(q + 1, window or 99)
                    for q, k, weight in places
                    if window is None or q - k < window
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


@pytest.mark.parametrize("detectors", [ALL, [ANSWER, DUPLICATE_TOKEN], [PREVIOUS_TOKEN]])
def test_sets_made_in_parts_are_those_made_at_once(detectors):
    prompts = tiled((9, 10, 11, 12), 24, 40)
    answers = prompts.tokens[:, 5:6]
    prompts = dataclasses.replace(prompts, answers=answers, answer_positions=torch.full((4, 1), 23))
    whole = matched_controls(prompts, detectors, causal=True, d_model=16)
    least = 2 * whole.row_bytes + 1
    parts = matched_controls(prompts, detectors, causal=True, d_model=16, memory=least)
    kinds = [
        [(f.detector, f.kind, f.target, f.controls, f.compared) for f in one.families]
        for one in (parts, whole)
    ]
    assert kinds[0] == kinds[1]
    np.testing.assert_array_equal(parts.n_queries, whole.n_queries)
    for window in (None, 5):
        np.testing.assert_allclose(parts.uniform(window), whole.uniform(window), rtol=1e-12)
    n_rows = len(whole.tokens)
    for most in (1, 2, 3, n_rows):
        batches = parts.batches(most)
        assert sorted(np.concatenate(batches).tolist()) == list(range(n_rows))
        for rows in batches:
            made, wanted = parts.sets(rows), whole.sets(rows)
            np.testing.assert_array_equal(made.entries, wanted.entries)
            np.testing.assert_array_equal(made.which_set, wanted.which_set)
            np.testing.assert_array_equal(made.weights, wanted.weights)


def made_within(memory):
    """Bytes that numpy holds at most while the sets of long prompts are made."""
    prompts = tiled((60, 70, 80, 90) * 2, 160, 400)
    tracemalloc.start()
    found = matched_controls(prompts, ALL, causal=True, d_model=16, memory=memory)
    for rows in found.batches(2):
        found.sets(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak, found.row_bytes


def test_a_bound_of_memory_is_kept_or_refused():
    whole, row_bytes = made_within(None)
    bound = 5 * row_bytes
    assert whole > 1.5 * bound
    assert made_within(bound)[0] < bound
    with pytest.raises(InputError):
        made_within(row_bytes)
