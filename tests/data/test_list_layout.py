import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp_toolkit.data.lists.draws import Lists
from interp_toolkit.data.lists.layout import MAX_LENGTH, ListLayout, parse_layout
from interp_toolkit.errors import InputError

CAUSAL = "10 list10 11 sorted10"
BIDIRECTIONAL = "10 list1-10 11 pad12"


def parse(text, d_vocab=13, d_vocab_out=10, **options):
    return parse_layout(text, d_vocab=d_vocab, d_vocab_out=d_vocab_out, **options)


def oracle_row(words, row, values, longest_row):
    """One row of tokens, token by token, and where each sorted item is read."""
    tokens, read, pad = [], [], None
    for word in words:
        if word.startswith("list"):
            listed_at = len(tokens)
            tokens.extend(values[item] for item in row)
        elif word.startswith("sorted"):
            for item in sorted(row):
                read.append(len(tokens) - 1)
                tokens.append(values[item])
        elif word.startswith("pad"):
            pad = int(word[3:])
        else:
            tokens.append(int(word))
    if not read:
        read = [listed_at + k for k in range(len(row))]
    while len(tokens) < longest_row:
        tokens.append(pad)
    return tokens, read


@st.composite
def layouts(draw):
    """Words, vocabulary sizes, and rows of values that fit them."""
    d_vocab = draw(st.integers(6, 12))
    d_vocab_out = draw(st.integers(5, d_vocab))
    special = draw(st.lists(st.integers(0, d_vocab - 1), max_size=3, unique=True))
    separators, pads = special[1:], special[:1]
    shortest = draw(st.integers(1, 3))
    longest = draw(st.integers(shortest, 4)) if pads else shortest
    span = str(longest) if shortest == longest else f"{shortest}-{longest}"
    some = st.lists(st.sampled_from(separators), max_size=3) if separators else st.just([])
    words = [*map(str, draw(some)), f"list{span}", *map(str, draw(some))]
    if draw(st.booleans()):
        words += [f"sorted{span}", *map(str, draw(some))]
    words += [f"pad{pad}" for pad in pads]
    used = {
        int(word.removeprefix("pad"))
        for word in words
        if word[-1].isdigit() and word[0] in "0123456789p"
    }
    values = [token for token in range(d_vocab_out) if token not in used]
    item = st.integers(0, len(values) - 1)
    rows = draw(st.lists(st.lists(item, min_size=shortest, max_size=longest), min_size=1))
    return words, d_vocab, d_vocab_out, values, rows


@settings(max_examples=300)
@given(layouts())
def test_rows_against_rows_built_token_by_token(case):
    words, d_vocab, d_vocab_out, values, rows = case
    layout = parse_layout(" ".join(words), d_vocab=d_vocab, d_vocab_out=d_vocab_out)
    assert layout.values == tuple(values)
    made = layout.rows(Lists.from_rows(rows, len(values)))
    longest = layout.longest
    longest_row = len(oracle_row(words, [0] * longest, values, 0)[0])
    assert layout.n_positions == longest_row
    assert made.tokens.shape == (len(rows), longest_row)
    assert made.read.shape == made.answer.shape == made.present.shape == (len(rows), longest)
    for number, row in enumerate(rows):
        tokens, read = oracle_row(words, row, values, longest_row)
        assert made.tokens[number].tolist() == tokens
        assert made.present[number].tolist() == [k < len(row) for k in range(longest)]
        assert made.read[number, : len(row)].tolist() == read
        assert list(layout.read_positions(len(row))) == read
        assert made.answer[number, : len(row)].tolist() == sorted(row)
        assert 0 <= int(made.read[number].min()) <= int(made.read[number].max()) < longest_row
        assert 0 <= int(made.answer[number].min()) <= int(made.answer[number].max()) < len(values)


@settings(max_examples=50)
@given(layouts())
def test_cells_against_every_row_there_is(case):
    words, d_vocab, d_vocab_out, values, _ = case
    layout = parse_layout(words, d_vocab=d_vocab, d_vocab_out=d_vocab_out)
    keys = set()
    lengths = range(layout.shortest, layout.longest + 1)
    for length, value in itertools.product(lengths, range(len(values))):
        tokens, _ = oracle_row(words, [value] * length, values, layout.n_positions)
        keys.update(enumerate(tokens))
    cells = layout.key_cells()
    found = list(zip(cells.positions.tolist(), cells.tokens.tolist(), strict=True))
    assert found == sorted(keys)


def test_the_three_experiments():
    first = parse(CAUSAL)
    row = first.rows(Lists.from_rows([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3]], 10))
    assert row.tokens.tolist() == [
        [10, 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 11, 1, 1, 2, 3, 3, 4, 5, 5, 6, 9]
    ]
    assert row.read.tolist() == [list(range(11, 21))]
    second = parse("15 list10 16 sorted10", 17, 15)
    assert (second.values, second.n_positions) == (tuple(range(15)), 22)
    third = parse(BIDIRECTIONAL)
    row = third.rows(Lists.from_rows([[7, 7, 0], [5] * 10], 10))
    assert row.tokens.tolist() == [
        [10, 7, 7, 0, 11, 12, 12, 12, 12, 12, 12, 12],
        [10, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 11],
    ]
    assert row.answer[0, :3].tolist() == [0, 7, 7]
    assert row.read[0, :3].tolist() == [1, 2, 3]


def test_lists_narrower_than_the_layout_are_padded():
    layout = parse(BIDIRECTIONAL)
    narrow = layout.rows(Lists.from_rows([[7, 1]], 10))
    wide = layout.rows(Lists(torch.tensor([[7, 1] + [10] * 8]), torch.tensor([2]), 10))
    assert all(torch.equal(a, b) for a, b in zip(narrow, wide, strict=True))


def test_names_and_description(texts):
    layout = parse("0 list2-3 2 pad7", 9, 9)
    assert layout.values == (1, 3, 4, 5, 6, 8)
    assert layout.value_names() == ("1", "3", "4", "5", "6", "8")
    assert [layout.token_name(token) for token in (3, 2, 7)] == ["3", "[2]", "[7]"]
    texts(layout.describe())
    texts(parse(CAUSAL).describe())


def test_a_layout_is_a_plain_value():
    assert parse(CAUSAL) == parse(tuple(CAUSAL.split()))
    assert hash(parse(CAUSAL)) == hash(parse(CAUSAL))
    assert str(parse("  10   list10 11 sorted10 ")) == CAUSAL
    assert isinstance(parse(CAUSAL), ListLayout)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10 11",
        "10 sorted10",
        "list10 list10",
        "list5 sorted5 sorted5",
        "10 lst10",
        "10 list",
        "10 list-5",
        "-1 list5",
        "list5 pad12-13",
        "10-11 list5",
        "list٣",
        "list0",
        "list5-3 pad12",
        f"list{MAX_LENGTH + 1}",
        "sorted5 11 list5",
        "list5 sorted4",
        "list1-5 sorted5 pad12",
        "list1-5",
        "pad12 list5",
        "list5 pad11 pad12",
        "12 list5 pad12",
        "13 list5",
        "list5 pad13",
        "0 1 2 3 4 5 6 7 8 list5",
    ],
)
def test_what_is_no_layout_is_one_clear_line(text, texts):
    with pytest.raises(InputError) as caught:
        parse(text)
    texts(str(caught.value))
    assert "\n" not in str(caught.value)


def test_rows_longer_than_the_context(texts):
    assert parse(CAUSAL, n_ctx=22).n_positions == 22
    with pytest.raises(InputError, match="22", check=texts):
        parse(CAUSAL, n_ctx=21)


@pytest.mark.parametrize(
    ("text", "rows", "n_values"),
    [
        ("list3", [[0, 1, 2]], 4),
        ("list3", [[0, 1]], 10),
        ("list3", [[0, 1, 2, 3]], 10),
        ("list2-3 pad12", [[0, 1], [2]], 10),
    ],
)
def test_lists_that_do_not_fit(text, rows, n_values, texts):
    with pytest.raises(InputError, check=texts):
        parse(text).rows(Lists.from_rows(rows, n_values))


def test_values_with_gaps_between_their_ids_take_lists_that_are_not_contiguous_in_memory() -> None:
    layout = parse_layout("2 list3", d_vocab=6, d_vocab_out=6)
    values = torch.tensor([[0, 4], [3, 1], [2, 2]]).T
    lists = Lists(values, torch.tensor([3, 3]), 5)
    assert not values.is_contiguous()
    assert layout.rows(lists).tokens.tolist() == [[2, 0, 4, 3], [2, 5, 1, 3]]
