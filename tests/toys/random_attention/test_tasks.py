"""Tasks: rows and answers by their definition, guesses by count, draws by their distribution."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter, defaultdict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from interp_toolkit.toys.random_attention.tasks import (
    FALSE,
    NOTHING,
    PAD,
    TRUE,
    DecimalAddition,
    Dyck,
    KHop,
    Memorization,
    ModularAddition,
    Retrieval,
    Task,
    TaskRows,
    answer_chances,
    balanced_strings,
    is_balanced,
    right_share,
    shuffled,
)

TASKS = [
    Retrieval(most_pairs=1, symbols=4),
    Retrieval(most_pairs=3, symbols=8, repeated_keys=True),
    Retrieval(30, 256),
    KHop(most_hops=1, length=3, alphabet=2),
    KHop(16, 100, 4),
    ModularAddition(2),
    ModularAddition(599),
    DecimalAddition(1),
    DecimalAddition(18, reversed=True),
    Dyck(2),
    Dyck(40),
    Memorization(2),
    Memorization(40, table_seed=7),
]
every_task = pytest.mark.parametrize("task", TASKS, ids=str)


def drawn(task: Task, n_rows: int, seed: int = 0) -> TaskRows:
    return task.draw(n_rows, torch.Generator().manual_seed(seed))


@every_task
def test_rows_fit_into_the_model_they_are_for(task: Task) -> None:
    rows = drawn(task, 300)
    assert len(rows.tokens) == len(rows.read) == len(rows.answer) == 300
    assert rows.read.shape == rows.answer.shape
    assert all(tensor.dtype == torch.int64 for tensor in rows)
    assert rows.tokens.shape[1] <= task.n_ctx
    assert rows.tokens.min() >= 0
    assert rows.tokens.max() < task.d_vocab
    assert rows.answer.min() >= 0
    assert rows.answer.max() < task.d_vocab
    assert rows.read.min() >= 0
    assert rows.read.max() < rows.tokens.shape[1]


@every_task
def test_the_generator_alone_says_which_rows(task: Task) -> None:
    first, again, other = drawn(task, 50), drawn(task, 50), drawn(task, 50, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.tokens, other.tokens)


@every_task
def test_the_same_question_has_the_same_answer(task: Task) -> None:
    rows = drawn(task, 2_000)
    asked: dict[tuple[int, ...], list[int]] = {}
    for tokens, answer in zip(rows.tokens.tolist(), rows.answer.tolist(), strict=True):
        assert asked.setdefault(tuple(tokens), answer) == answer


@every_task
def test_the_record_is_json_and_makes_the_task_again(task: Task) -> None:
    record = json.loads(json.dumps(task.record()))
    assert record.pop("name") == task.name
    assert type(task)(**record) == task


@every_task
def test_guessing_is_a_chance_above_naming_any_token(task: Task) -> None:
    assert task.guess is not None
    least = 0 if isinstance(task, DecimalAddition) else 1 / task.d_vocab
    assert least < task.guess <= 1
    assert math.isfinite(task.guess)


def test_the_share_of_rows_and_of_answers() -> None:
    answer = torch.tensor([[1, 2], [3, NOTHING], [4, 5], [6, NOTHING]])
    given = torch.tensor([[1, 2], [3, 9], [4, 0], [0, 0]])
    assert right_share(given, answer, whole_rows=True) == 0.5
    assert right_share(given, answer, whole_rows=False) == 4 / 6


def test_some_of_the_rows() -> None:
    rows = drawn(ModularAddition(5), 10)
    for which in (slice(2, 5), torch.tensor([2, 3, 4]), torch.arange(10).clamp(2, 5) % 5 > 1):
        taken = rows.take(which)
        for part, whole in zip(taken, rows, strict=True):
            assert torch.equal(part, whole[which])
    assert all(t.device.type == "cpu" for t in rows.to("cpu"))


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


def hop(letters: list[int] | str, place: int | None) -> int | None:
    """The place after the last earlier occurrence of the letter here."""
    if place is None:
        return None
    earlier = [i for i in range(place) if letters[i] == letters[place]]
    return earlier[-1] + 1 if earlier else None


def hop_k(letters: list[int] | str, place: int, k: int) -> int | None:
    at: int | None = place
    for _ in range(k):
        at = hop(letters, at)
    return at


def test_the_sources_example() -> None:
    at = hop_k("adcada", 5, 2)
    assert at is not None
    assert "adcada"[at] == "c"


@given(st.integers(1, 6), st.integers(3, 24), st.integers(2, 5), st.integers(0, 2**31))
def test_every_answer_is_k_hops_away(most: int, length: int, alphabet: int, seed: int) -> None:
    task = KHop(most, length, alphabet)
    rows = task.draw(4, torch.Generator().manual_seed(seed))
    for tokens, read, answers in zip(*(x.tolist() for x in rows), strict=True):
        k, letters = tokens[0] - alphabet, tokens[1:]
        assert 1 <= k <= most
        assert read == list(range(1, length))
        for place, answer in enumerate(answers):
            at = hop_k(letters, place, k)
            assert answer == (alphabet if at is None else letters[at])


def test_all_numbers_of_hops_and_letters_come() -> None:
    tokens = KHop(16, 20, 4).draw(2_000, torch.Generator().manual_seed(0)).tokens
    assert set(tokens[:, 0].tolist()) == set(range(5, 21))
    assert set(tokens[:, 1:].flatten().tolist()) == set(range(4))


@pytest.mark.parametrize(("most", "length", "alphabet"), [(5, 8, 2), (4, 7, 3), (3, 6, 4)])
def test_chances_of_an_answer_over_all_strings(most: int, length: int, alphabet: int) -> None:
    strings = list(itertools.product(range(alphabet), repeat=length))
    expected = torch.zeros(most, length, 3, dtype=torch.float64)
    for string in strings:
        for place in range(length):
            at: int | None = place
            for k in range(most):
                at = hop(list(string), at)
                kind = 2 if at is None else int(string[at] != string[place])
                expected[k, place, kind] += 1 / len(strings)
    expected[:, :, 1] /= alphabet - 1  # one certain other letter
    found = answer_chances(most, length, alphabet)
    assert torch.allclose(found, expected, atol=1e-12)
    guess = expected.amax(-1).mean().item()
    assert KHop(most, length + 1, alphabet).guess == pytest.approx(guess)


def test_at_the_sources_sizes_guessing_is_right_half_of_the_time() -> None:
    task = KHop(16, 100, 4)
    rows = task.draw(2_000, torch.Generator().manual_seed(0))
    chances = answer_chances(16, 99, 4)[rows.tokens[:, 0] - 5]
    best = chances.argmax(-1)
    said = torch.where(best == 2, 4, rows.tokens[:, 1:])
    assert not (best == 1).any()
    right = (said == rows.answer).double().mean().item()
    assert right == pytest.approx(task.guess, abs=0.01)
    assert task.guess == pytest.approx(0.512, abs=5e-4)


def test_all_pairs_and_their_sums() -> None:
    task = ModularAddition(7)
    rows = task.numbered(torch.arange(task.n_rows))
    seen = set()
    for (a, b, equals), (read,), (answer,) in zip(*(x.tolist() for x in rows), strict=True):
        assert (equals, read) == (7, 2)
        assert answer == (a + b) % 7
        seen.add((a, b))
    assert seen == {(a, b) for a in range(7) for b in range(7)}
    assert rows.answer.flatten().bincount().tolist() == [7] * 7
    assert task.guess == 1 / 7


def test_drawn_pairs_are_even() -> None:
    rows = ModularAddition(3).draw(90_000, torch.Generator().manual_seed(0))
    counts = (3 * rows.tokens[:, 0] + rows.tokens[:, 1]).bincount()
    assert len(counts) == 9
    assert (counts - 10_000).abs().max() < 500  # five standard deviations


def test_the_sources_size() -> None:
    task = ModularAddition(599)
    assert (task.d_vocab, task.n_ctx, task.n_rows) == (600, 3, 358_801)


@given(st.integers(1, 18), st.booleans(), st.integers(0, 2**31))
def test_rows_are_sums(digits: int, backwards: bool, seed: int) -> None:
    task = DecimalAddition(digits, backwards)
    rows = task.draw(5, torch.Generator().manual_seed(seed))
    for tokens, read, answer in zip(*(x.tolist() for x in rows), strict=True):
        row = [*tokens, answer[-1]]
        assert [row[place + 1] for place in read] == answer
        assert (row[digits], row[2 * digits + 1]) == (10, 11)
        numbers = [row[:digits], row[digits + 1 : 2 * digits + 1], row[2 * digits + 2 :]]
        if backwards:
            numbers = [number[::-1] for number in numbers]
        assert numbers[0][0] > 0
        assert numbers[1][0] > 0
        first, second, total = (int("".join(map(str, number))) for number in numbers)
        assert first + second == total


def test_the_sources_example_and_size() -> None:
    task = DecimalAddition(10)
    assert (task.d_vocab, task.n_ctx) == (12, 32)
    numbers = torch.tensor([1234567890 + 2345678901])
    assert task._written(numbers, 11).tolist() == [[0, 3, 5, 8, 0, 2, 4, 6, 7, 9, 1]]


@pytest.mark.parametrize("digits", [1, 2])
def test_the_likeliest_sum(digits: int) -> None:
    numbers = range(10 ** (digits - 1), 10**digits)
    sums = Counter(a + b for a, b in itertools.product(numbers, repeat=2))
    (likeliest, count), *_ = sums.most_common()
    assert likeliest == 11 * 10 ** (digits - 1) - 1
    assert DecimalAddition(digits).guess == pytest.approx(count / len(numbers) ** 2)


def balanced(string: list[int]) -> bool:
    depth = 0
    for parenthesis in string:
        depth += 1 if parenthesis == 0 else -1
        if depth < 0:
            return False
    return depth == 0


@given(st.integers(1, 24).map(lambda half: 2 * half), st.integers(0, 2**31))
def test_every_answer_is_right(length: int, seed: int) -> None:
    rows = Dyck(length).draw(20, torch.Generator().manual_seed(seed))
    for tokens, (read,), (answer,) in zip(*(x.tolist() for x in rows), strict=True):
        assert (read, tokens[-1]) == (length, 2)
        assert set(tokens[:-1]) <= {0, 1}
        assert answer == (TRUE if balanced(tokens[:-1]) else FALSE)


def test_balanced_is_told_for_every_string() -> None:
    strings = list(itertools.product([0, 1], repeat=8))
    found = is_balanced(torch.tensor(strings))
    assert found.tolist() == [balanced(list(string)) for string in strings]
    assert found.sum() == math.comb(8, 4) // 5


def test_balanced_strings_are_uniform() -> None:
    made = balanced_strings(42_000, 10, torch.Generator().manual_seed(0))
    strings, counts = made.unique(dim=0, return_counts=True)
    assert len(strings) == math.comb(10, 5) // 6
    assert all(balanced(string) for string in strings.tolist())
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_orders_are_uniform() -> None:
    made = shuffled(30_000, 2, 3, torch.Generator().manual_seed(0))
    strings, counts = made.unique(dim=0, return_counts=True)
    assert len(strings) == math.comb(5, 2)
    assert (strings.sum(1) == 3).all()
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_the_kinds_of_rows_have_their_shares() -> None:
    length, n_rows = 40, 30_000
    rows = Dyck(length).draw(n_rows, torch.Generator().manual_seed(0))
    is_true = rows.answer[:, 0] == TRUE
    assert is_true.double().mean().item() == pytest.approx(1 / 2, abs=0.015)
    wrong = rows.tokens[~is_true, :-1]
    excess = (1 - 2 * wrong).sum(1)
    by_chance = math.comb(length, length // 2) / 2**length
    expected = (1 + by_chance) / 3  # as many of each: the order alone tells
    assert (excess == 0).double().mean().item() == pytest.approx(expected, abs=0.02)
    two_off = math.comb(length, length // 2 - 1) / 2**length
    near = (1 + 2 * two_off) / 3  # one turned round, or so by chance
    assert (excess.abs() == 2).double().mean().item() == pytest.approx(near, abs=0.02)


def test_the_rows_are_the_table() -> None:
    task = Memorization(8, table_seed=3)
    rows = task.numbered(torch.arange(64))
    table = {}
    for (first, second), (read,), (answer,) in zip(*(x.tolist() for x in rows), strict=True):
        assert 0 <= first < 8 <= second < 16
        assert read == 1
        assert 0 <= answer < 8
        table[first, second] = answer
    assert len(table) == 64
    drawn = task.draw(200, torch.Generator().manual_seed(0))
    for (first, second), (answer,) in zip(
        drawn.tokens.tolist(), drawn.answer.tolist(), strict=True
    ):
        assert table[first, second] == answer
    by_second = defaultdict(Counter)
    for (_, second), value in table.items():
        by_second[second][value] += 1
    assert task.guess == sum(max(counts.values()) for counts in by_second.values()) / 64


def test_the_seed_says_which_table() -> None:
    assert torch.equal(Memorization(32).table(), Memorization(32).table())
    assert not torch.equal(Memorization(32).table(), Memorization(32, table_seed=1).table())


def test_the_sources_size_of_memorization() -> None:
    task = Memorization(512)
    assert (task.d_vocab, task.n_ctx, task.n_rows) == (1_024, 3, 2**18)
    assert task.stored_bits == 9 * 2**18
    values = task.table().bincount()
    assert len(values) == 512
    assert (values - 512).abs().max() < 5 * 512**0.5
