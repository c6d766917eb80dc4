import dataclasses
import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from scipy import stats
from torch import nn

from interp_toolkit.circuits.sorting.evaluation import (
    counterexamples,
    greedy_outputs,
    list_accuracy,
)
from interp_toolkit.data.lists.draws import Lists, ListSource, all_sets
from interp_toolkit.data.lists.layout import fresh_generator, parse_layout, standard_sets
from interp_toolkit.errors import InputError
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer

N_VALUES, MARGIN = 5, 3.0
CAUSAL = parse_layout("5 list4 6 sorted4", d_vocab=8, d_vocab_out=5)
OWN_PLACES = parse_layout("5 list1-4 6 pad7", d_vocab=8, d_vocab_out=5)


class Sorter(nn.Module):
    """Sorts as plain Python does, but errs where it is told to.

    Args:
        layout: of its rows.
        errs: (the list, the items said before) -> whether the next item is wrong.
    """

    def __init__(self, layout, errs=lambda given, said: False):
        super().__init__()
        self.layout, self.errs = layout, errs
        self.weight = nn.Parameter(torch.zeros(1))
        self.largest_batch = 0
        self.cfg = SimpleNamespace(
            n_layers=1, d_model=8, d_head=8, n_heads=1, n_ctx=12, d_vocab=8, d_vocab_out=5
        )

    def forward(self, tokens):
        self.largest_batch = max(self.largest_batch, len(tokens))
        logits = torch.zeros(*tokens.shape, self.cfg.d_vocab_out)
        start = len(self.layout.before)
        for row, ids in enumerate(tokens.tolist()):
            given = ids[start : next(k for k in range(start, len(ids)) if ids[k] == 6)]
            for item, position in enumerate(self.layout.read_positions(len(given))):
                first = position - item + 1
                said = ids[first : position + 1] if self.layout.autoregressive else []
                logits[row, position, self.answer(given, tuple(said), item)] = MARGIN
        return logits + self.weight.detach()

    def answer(self, given, said, item):
        """The smallest item not said yet, if anything is left; or one off."""
        if self.layout.autoregressive:
            left = list(given)
            for token in said:
                if token in left:
                    left.remove(token)
            right = min(left, default=0)
        else:
            right = sorted(given)[item]
        return (right + 1) % N_VALUES if self.errs(tuple(given), said) else right


def greedy(model, given):
    """The model's own outputs fed back, in plain Python."""
    said = ()
    for item in range(len(given)):
        said += (model.answer(given, said, item),)
    return said


def has_a_three_first(given, said):
    return given[0] == 3


def after_two_small_ones(given, said):
    return len(said) == 2 and sum(said) < 2


def test_a_perfect_sorter():
    for layout in (CAUSAL, OWN_PLACES):
        lists = ListSource("hard", N_VALUES, layout.shortest, layout.longest).draw(
            50, torch.Generator().manual_seed(0)
        )
        found = list_accuracy(Sorter(layout), layout, lists)
        assert (found.lists_right, found.items_right, found.n, found.high) == (1, 1, 50, 1)
        assert found.low == pytest.approx(0.025 ** (1 / 50))  # Clopper & Pearson at no failure
        assert found.loss == pytest.approx(math.log(1 + 4 * math.exp(-MARGIN)))


@pytest.mark.parametrize("layout", [CAUSAL, OWN_PLACES], ids=["causal", "own places"])
def test_planted_failures_are_counted(layout):
    model = Sorter(layout, has_a_three_first)
    rows = [[3, 1, 0, 2], [1, 3, 3, 0], [4, 4, 4, 4], [3, 3, 3, 3], [0, 1, 2, 3]]
    found = list_accuracy(model, layout, Lists.from_rows(rows, N_VALUES))
    assert found.lists_right == pytest.approx(3 / 5)
    assert found.items_right == pytest.approx(12 / 20)
    norm = math.log(math.exp(MARGIN) + 4)
    assert found.loss == pytest.approx((12 * (norm - MARGIN) + 8 * norm) / 20)
    assert found.low == pytest.approx(stats.beta.ppf(0.025, 3, 3))
    assert found.high == pytest.approx(stats.beta.ppf(0.975, 4, 2))


def test_lists_of_several_lengths_count_their_own_items_only():
    model = Sorter(OWN_PLACES, has_a_three_first)
    lists = Lists.from_rows([[3], [2, 1, 0], [3, 3], [0, 0, 0, 0]], N_VALUES)
    found = list_accuracy(model, OWN_PLACES, lists)
    assert (found.lists_right, found.items_right) == (1 / 2, 7 / 10)


def every_list(layout):
    lengths = range(layout.shortest, layout.longest + 1)
    return [row for k in lengths for row in itertools.product(range(layout.n_values), repeat=k)]


@pytest.mark.parametrize("errs", [has_a_three_first, after_two_small_ones])
def test_a_whole_list_is_right_teacher_forced_exactly_if_it_is_right_greedily(errs):
    model = Sorter(CAUSAL, errs)
    rows = every_list(CAUSAL)
    lists = Lists.from_rows(rows, N_VALUES)
    said = [greedy(model, row) for row in rows]
    assert greedy_outputs(model, CAUSAL, lists).tolist() == [list(output) for output in said]
    right = sum(output == tuple(sorted(row)) for row, output in zip(rows, said, strict=True))
    assert list_accuracy(model, CAUSAL, lists).lists_right == pytest.approx(right / len(rows))
    assert 0 < right < len(rows)


def random_transformer(layout, seed, causal=True):
    config = TransformerConfig(
        n_layers=1,
        d_model=6,
        n_ctx=layout.n_positions,
        d_head=6,
        n_heads=1,
        d_vocab=8,
        d_vocab_out=5,
        attn_only=True,
        normalization_type=None,
        attention_dir="causal" if causal else "bidirectional",
        initializer_range=1.5,
        seed=seed,
    )
    return Transformer(config).eval()


@pytest.mark.parametrize("text", ["3 2 list2 4 sorted2", "2 list1-3 3 sorted1-3 4 pad5"])
def test_greedy_and_teacher_forced_agree_on_random_transformers(text):
    layout = parse_layout(text, d_vocab=8, d_vocab_out=5)
    rows = every_list(layout)
    lists = Lists.from_rows(rows, layout.n_values)
    right = 0
    for seed in range(20):
        model = random_transformer(layout, seed)
        outputs = greedy_outputs(model, layout, lists).tolist()
        ids = [[layout.values[item] for item in sorted(row)] for row in rows]
        both = zip(outputs, ids, strict=True)
        n_right = sum(output[: len(answer)] == answer for output, answer in both)
        found = list_accuracy(model, layout, lists)
        assert found.lists_right == pytest.approx(n_right / len(rows))
        right += n_right
    assert right > 0


def test_accuracy_and_loss_of_a_transformer_against_its_own_forward_pass():
    model = random_transformer(OWN_PLACES, 0, causal=False)
    rows = [[4, 1, 1], [0, 2], [3, 2, 1, 0]]
    right = loss = 0.0
    for row in rows:
        tokens = [5, *row, 6, *[7] * (4 - len(row))]
        log_p = model(torch.tensor([tokens]))[0].double().log_softmax(-1)
        for place, answer in enumerate(sorted(row), start=1):
            loss -= log_p[place, answer].item()
            right += log_p[place].argmax().item() == answer
    found = list_accuracy(model, OWN_PLACES, Lists.from_rows(rows, N_VALUES))
    assert found.items_right == pytest.approx(right / 9)
    assert found.loss == pytest.approx(loss / 9, rel=1e-5)


@pytest.mark.parametrize("layout", [CAUSAL, OWN_PLACES], ids=["causal", "own places"])
def test_a_search_finds_what_was_planted(layout):
    model = Sorter(layout, has_a_three_first)
    source = ListSource("hard", N_VALUES, layout.shortest, layout.longest)
    said = []
    found = counterexamples(model, layout, source, n=2000, keep=7, seed=3, progress=said.append)
    drawn = source.draw(2000, fresh_generator(3))  # one batch: the same lists
    failing = [row for row in drawn.values.tolist() if row[0] == 3]
    assert (found.searched, found.failed) == (2000, len(failing))
    assert found.rate == pytest.approx(len(failing) / 2000)
    assert found.low < found.rate < found.high
    assert len(found.examples) == 7
    for example, row in zip(found.examples, failing, strict=False):
        assert example.input_list == tuple(item for item in row if item < N_VALUES)
        assert example.correct == tuple(sorted(example.input_list))
        assert example.output == greedy(model, example.input_list)
    assert said == [f"2,000 of 2,000 lists sorted, {len(failing)} wrong"]


def test_a_search_that_finds_nothing():
    source = ListSource("uniform", N_VALUES, 4, 4)
    found = counterexamples(Sorter(CAUSAL), CAUSAL, source, n=300)
    assert (found.failed, found.rate, found.low, found.examples) == (0, 0, 0, ())
    assert found.high == pytest.approx(1 - 0.025 ** (1 / 300))


def test_memory_bounds_the_batches_and_changes_no_count():
    lists = ListSource("uniform", N_VALUES, 4, 4).draw(100, torch.Generator().manual_seed(1))
    large, small = (Sorter(CAUSAL, has_a_three_first) for _ in range(2))
    whole, parts = list_accuracy(large, CAUSAL, lists), list_accuracy(small, CAUSAL, lists, "100kB")
    assert dataclasses.replace(parts, loss=whole.loss) == whole
    n_items = int(lists.lengths.sum())
    assert parts.loss == pytest.approx(whole.loss, rel=n_items * torch.finfo(torch.float32).eps)
    assert small.largest_batch < 50 < large.largest_batch
    with pytest.raises(InputError, match="more than the"):
        list_accuracy(large, CAUSAL, lists, memory=1000)
    source = ListSource("uniform", N_VALUES, 4, 4)
    said = []
    found = counterexamples(small, CAUSAL, source, 500, memory="100kB", progress=said.append)
    assert found.searched == 500
    assert len(said) == 10
    assert small.largest_batch < 50


def test_examples_are_token_ids():
    layout = parse_layout("0 list2", d_vocab=4, d_vocab_out=4)
    model = random_transformer(layout, 0)
    found = counterexamples(model, layout, ListSource("uniform", 3, 2, 2), n=200)
    assert {token for example in found.examples for token in example.input_list} == {1, 2, 3}
    assert all(example.correct == tuple(sorted(example.input_list)) for example in found.examples)


def test_standard_sets(texts):
    sets = standard_sets(OWN_PLACES, distinct=False)
    assert {name: len(lists) for name, lists in sets.items()} == {"random": 4000, "hard": 4000}
    again = standard_sets(OWN_PLACES, distinct=False)
    assert all(torch.equal(sets[name].values, again[name].values) for name in sets)
    different = {k: [len(set(row)) for row in sets[k].values.tolist()] for k in sets}
    assert sum(different["hard"]) < sum(different["random"])

    sets = standard_sets(OWN_PLACES, distinct=True, n=10)
    assert set(sets) == {"random", "sets"}
    found = {
        tuple(row[:k]) for row, k in zip(*(x.tolist() for x in sorted_rows(sets)), strict=True)
    }
    expected = [s for k in range(1, 5) for s in itertools.combinations(range(N_VALUES), k)]
    assert len(sets["sets"]) == len(expected)
    assert found == set(expected)
    assert not torch.equal(sets["sets"].values, sets["sets"].sorted())

    many = parse_layout("30 list10", d_vocab=31, d_vocab_out=30)
    assert set(standard_sets(many, distinct=True, n=10)) == {"random"}
    with pytest.raises(InputError, check=texts):
        standard_sets(parse_layout("list6", d_vocab=8, d_vocab_out=5), distinct=True)


def sorted_rows(sets):
    return sets["sets"].sorted(), sets["sets"].lengths


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("8 list4", {}),
        ("5 list4", {"d_vocab_out": 4}),
        ("5 list4", {"n_ctx": 4}),
        ("list4 sorted4", {"attention_dir": "bidirectional"}),
        ("list4 sorted4", {"d_vocab_out": 9}),
    ],
)
def test_models_that_do_not_fit_the_layout(text, change, texts):
    layout = parse_layout(text, d_vocab=9, d_vocab_out=5)
    model = Sorter(layout)
    vars(model.cfg).update(change)
    lists = all_sets(layout.n_values, 4)
    with pytest.raises(InputError, check=texts):
        list_accuracy(model, layout, lists)
    with pytest.raises(InputError, check=texts):
        counterexamples(model, layout, ListSource("uniform", layout.n_values, 4, 4))


def test_searches_and_lists_that_make_no_sense(texts):
    model, source = Sorter(CAUSAL), ListSource("uniform", N_VALUES, 4, 4)
    with pytest.raises(InputError, match="the source draws 3 to 4"):
        counterexamples(model, CAUSAL, ListSource("uniform", N_VALUES, 3, 4))
    with pytest.raises(InputError, check=texts):
        counterexamples(model, CAUSAL, source, n=0)
    with pytest.raises(InputError, check=texts):
        counterexamples(model, CAUSAL, ListSource("uniform", 4, 4, 4))
    none = source.draw(1, torch.Generator()).take(slice(0, 0))
    with pytest.raises(InputError, check=texts):
        list_accuracy(model, CAUSAL, none)
