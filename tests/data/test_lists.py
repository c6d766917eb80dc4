import itertools
import math
import random
from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats

from interp_toolkit.data.lists.draws import (
    MAX_TABLE_VALUES,
    Lists,
    ListSource,
    alias_table,
    all_sets,
    all_two_valued,
    support_probabilities,
)
from interp_toolkit.data.lists.layout import fresh_generator, parse_layout, two_valued_sets
from interp_toolkit.errors import InputError

N_DRAWN = 100_000
UNLIKELY = 1e-6  # a right sampler fails a test with this chance, for a seed that is fixed


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def oracle_support(n_values, rng, redraw=True):
    """The source's pseudocode, word for word; `redraw=False` keeps p over the retries."""
    if rng.random() < 2 / 3:
        p = rng.random()
        while True:
            if redraw:
                p = rng.random()
            support = [v for v in range(n_values) if rng.random() < p]
            if support:
                return support
    x, y = rng.randrange(n_values), rng.randrange(n_values)
    return list(range(min(x, y), max(x, y) + 1))


def oracle_list(n_values, length, rng, redraw=True):
    support = oracle_support(n_values, rng, redraw)
    return tuple(rng.choice(support) for _ in range(length))


def exact_supports(n_values):
    """Support -> probability, by enumeration of the pseudocode's choices, p integrated out."""
    exact = Counter()
    for support in itertools.product([False, True], repeat=n_values):
        members = tuple(v for v in range(n_values) if support[v])
        if members:  # E[p^k (1-p)^(n-k)], given that a set came out on that try
            k = len(members)
            beta = math.gamma(k + 1) * math.gamma(n_values - k + 1) / math.gamma(n_values + 2)
            exact[members] += 2 / 3 * beta / (1 - 1 / (n_values + 1))
    for x, y in itertools.product(range(n_values), repeat=2):
        exact[tuple(range(min(x, y), max(x, y) + 1))] += 1 / 3 / n_values**2
    return exact


def exact_lists(n_values, length):
    """List -> probability, by enumeration."""
    exact = Counter()
    for support, chance in exact_supports(n_values).items():
        for items in itertools.product(support, repeat=length):
            exact[items] += chance / len(support) ** length
    return exact


def chi_square(drawn, exact):
    """P-value of the counts of what was drawn."""
    assert set(drawn) <= set(exact)
    n = sum(drawn.values())
    counts = [drawn[outcome] for outcome in exact]
    return stats.chisquare(counts, [n * chance for chance in exact.values()]).pvalue


def two_sample(first, second):
    """P-value that two counts are of one distribution, rare outcomes taken together."""
    outcomes = Counter(first) + Counter(second)
    common = [outcome for outcome, count in outcomes.items() if count >= 40]
    rows = [[counts[o] for o in common] for counts in (first, second)]
    for row, counts in zip(rows, (first, second), strict=True):
        row.append(sum(counts.values()) - sum(row) + 1)
    return stats.chi2_contingency(np.array(rows)).pvalue


def counted(lists):
    rows = zip(lists.values.tolist(), lists.lengths.tolist(), strict=True)
    return Counter(tuple(row[:length]) for row, length in rows)


@pytest.mark.parametrize("n_values", [1, 2, 3, 5, 8])
def test_the_probabilities_of_supports_are_those_of_the_pseudocode(n_values):
    exact = exact_supports(n_values)
    found = support_probabilities(n_values)
    assert found.sum() == pytest.approx(1)
    for support, chance in exact.items():
        assert found[sum(1 << v for v in support) - 1] == pytest.approx(chance, rel=1e-12)


@pytest.mark.parametrize("weights", [[1.0], [0.5, 0.5], [0.7, 0.1, 0.1, 0.1], [0.0, 1.0, 3.0]])
def test_an_alias_table_gives_every_outcome_its_probability(weights):
    weights = np.array(weights) / sum(weights)
    keep, alias = alias_table(weights)
    found = keep / len(weights)
    np.add.at(found, alias, (1 - keep) / len(weights))
    np.testing.assert_allclose(found, weights, atol=1e-12)


@pytest.mark.parametrize(("n_values", "length"), [(3, 3), (4, 2), (5, 3)])
def test_hard_lists_have_exactly_the_probabilities_of_the_pseudocode(n_values, length):
    drawn = ListSource("hard", n_values, length, length).draw(N_DRAWN, generator())
    assert chi_square(counted(drawn), exact_lists(n_values, length)) > UNLIKELY


@pytest.mark.parametrize("n_values", [3, 5])
def test_hard_lists_of_large_alphabets_have_them_too(n_values, monkeypatch):
    monkeypatch.setattr("interp_toolkit.data.lists.draws.MAX_TABLE_VALUES", 0)
    for length in (2, 4, 6):  # also lists longer than the alphabet
        drawn = ListSource("hard", n_values, length, length).draw(N_DRAWN, generator(length))
        if n_values**length < 1000:
            assert chi_square(counted(drawn), exact_lists(n_values, length)) > UNLIKELY
        else:
            used = Counter(len(set(row)) for row in counted(drawn).elements())
            rng = random.Random(length)
            rows = (oracle_list(n_values, length, rng) for _ in range(N_DRAWN))
            assert two_sample(used, Counter(len(set(row)) for row in rows)) > UNLIKELY


def test_both_ways_of_drawing_hard_lists_agree_on_ten_values(monkeypatch):
    source = ListSource("hard", 10, 3, 3)
    by_table = counted(source.draw(N_DRAWN, generator(1)))
    monkeypatch.setattr("interp_toolkit.data.lists.draws.MAX_TABLE_VALUES", 0)
    assert two_sample(by_table, counted(source.draw(N_DRAWN, generator(2)))) > UNLIKELY


def test_hard_lists_against_the_pseudocode_and_not_against_its_misreading():
    drawn = ListSource("hard", 10, 10, 10).draw(40_000, generator())
    used = Counter(len(set(row)) for row in drawn.values.tolist())
    for redraw in (True, False):
        rng = random.Random(0)
        oracle = Counter(len(set(oracle_list(10, 10, rng, redraw))) for _ in range(40_000))
        p_value = two_sample(used, oracle)
        assert p_value > UNLIKELY if redraw else p_value < 1e-12


@pytest.mark.parametrize(("n_values", "length"), [(3, 3), (4, 2), (6, 2), (6, 3), (7, 3)])
def test_distinct_lists_are_uniform(n_values, length):
    drawn = ListSource("distinct", n_values, length, length).draw(N_DRAWN, generator())
    every = list(itertools.permutations(range(n_values), length))
    assert chi_square(counted(drawn), dict.fromkeys(every, 1 / len(every))) > UNLIKELY


def test_uniform_lists_are_uniform_and_so_are_lengths():
    drawn = ListSource("uniform", 3, 1, 3).draw(N_DRAWN, generator())
    exact = {
        items: 1 / 3 / 3**length
        for length in (1, 2, 3)
        for items in itertools.product(range(3), repeat=length)
    }
    assert chi_square(counted(drawn), exact) > UNLIKELY


@pytest.mark.parametrize("kind", ["uniform", "hard", "distinct", "two-valued"])
@pytest.mark.parametrize("n_values", [6, MAX_TABLE_VALUES + 1, 3000])
def test_what_is_drawn_is_in_range_and_beyond_a_list_there_is_nothing(kind, n_values):
    lists = ListSource(kind, n_values, 2, 5).draw(500, generator())
    assert lists.values.shape == (500, 5)
    assert len(lists) == 500
    assert lists.values.dtype == torch.int64
    assert sorted(set(lists.lengths.tolist())) == [2, 3, 4, 5]
    ordered = lists.sorted().tolist()
    for row, ascending, length in zip(
        lists.values.tolist(), ordered, lists.lengths.tolist(), strict=True
    ):
        assert all(0 <= value < n_values for value in row[:length])
        assert row[length:] == [n_values] * (5 - length)
        assert ascending == sorted(row[:length]) + row[length:]
        assert kind != "distinct" or len(set(row[:length])) == length
        assert kind != "two-valued" or len(set(row[:length])) == 2


@pytest.mark.parametrize("kind", ["uniform", "hard", "distinct", "two-valued"])
def test_a_seed_settles_the_lists_and_sorting_leaves_them(kind):
    source = ListSource(kind, 12, 3, 6)
    first, again, other = (source.draw(64, generator(seed)) for seed in (4, 4, 5))
    before = first.values.clone()
    first.sorted()
    assert torch.equal(first.values, before)
    assert torch.equal(first.values, again.values)
    assert torch.equal(first.lengths, again.lengths)
    assert not torch.equal(first.values, other.values)


def test_drawing_does_not_touch_the_global_generator():
    state = torch.random.get_rng_state()
    ListSource("hard", 30, 1, 6).draw(10, generator())
    assert torch.equal(torch.random.get_rng_state(), state)


def test_shuffled_lists_hold_the_same_items_in_every_order():
    lists = Lists.from_rows([[0, 1, 2]] * 12_000 + [[3, 1]] * 100, 4)
    shuffled = lists.shuffled(generator())
    assert torch.equal(shuffled.sorted(), lists.sorted())
    assert torch.equal(shuffled.lengths, lists.lengths)
    orders = counted(shuffled.take(slice(0, 12_000)))
    every = dict.fromkeys(itertools.permutations(range(3)), 1 / 6)
    assert chi_square(orders, every) > UNLIKELY
    assert set(counted(shuffled.take(slice(12_000, None)))) == {(3, 1), (1, 3)}


@pytest.mark.parametrize(("n_values", "size"), [(4, 2), (5, 5), (15, 10)])
def test_all_sets(n_values, size):
    sets = all_sets(n_values, size)
    assert sets.values.tolist() == [list(s) for s in itertools.combinations(range(n_values), size)]
    assert sets.lengths.tolist() == [size] * len(sets)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ListSource("distinct", 5, 1, 6),
        lambda: ListSource("uniform", 5, 0, 3),
        lambda: ListSource("uniform", 5, 4, 3),
        lambda: ListSource("uniform", 0, 1, 3),
        lambda: all_sets(3, 4),
        lambda: all_sets(3, 0),
        lambda: all_sets(60, 30),
        lambda: Lists.from_rows([], 3),
        lambda: Lists.from_rows([[1], []], 3),
        lambda: Lists.from_rows([[1, 3]], 3),
    ],
)
def test_what_cannot_be_is_refused(make, texts):
    with pytest.raises(InputError, check=texts):
        make()


def test_lists_to_look_at_are_none_of_a_training_seed() -> None:
    """On the CPU a seed is taken modulo 2^32, so that a large offset alone would not do."""
    source = ListSource("hard", 10, 10, 10)
    seeds = range(200)
    trained = {str(source.draw(3, torch.Generator().manual_seed(s)).values.tolist()) for s in seeds}
    fresh = {str(source.draw(3, fresh_generator(s)).values.tolist()) for s in seeds}
    assert len(fresh) == len(trained) == 200
    assert not fresh & trained
    low = source.draw(3, torch.Generator().manual_seed(2**32)).values
    assert torch.equal(low, source.draw(3, torch.Generator().manual_seed(0)).values)


def test_two_valued_lists_have_every_pair_count_and_order_alike():
    drawn = ListSource("two-valued", 3, 2, 3).draw(N_DRAWN, generator())
    exact = {}
    for length in (2, 3):
        for pair in itertools.combinations(range(3), 2):
            for copies in range(1, length):
                orders = set(
                    itertools.permutations([pair[0]] * copies + [pair[1]] * (length - copies))
                )
                for order in orders:
                    exact[order] = 1 / 2 / 3 / (length - 1) / len(orders)
    assert chi_square(counted(drawn), exact) > UNLIKELY


def test_all_multisets_of_two_values_once():
    found = {tuple(row) for row in all_two_valued(4, 3).values.tolist()}
    brute = {
        row for row in itertools.combinations_with_replacement(range(4), 3) if len(set(row)) == 2
    }
    assert found == brute
    assert len(all_two_valued(10, 10)) == 405
    standard = two_valued_sets(parse_layout("10 list10 11 sorted10", d_vocab=12, d_vocab_out=10))
    assert len(standard) == 405
    assert (
        two_valued_sets(parse_layout("64 list50 65 sorted50", d_vocab=66, d_vocab_out=64)) is None
    )  # 98,784 of them
    with pytest.raises(InputError, match="exactly two"):
        all_two_valued(10, 1)
    with pytest.raises(InputError, match="two items"):
        ListSource("two-valued", 10, 1, 10)
