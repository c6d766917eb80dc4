"""Drawing rows: distinct, of one length, as evenly from every template as can be."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interp_toolkit.errors import InputError
from interp_toolkit.registry import names
from interp_toolkit.tasks.rows import ALIASES, PromptPair, sample_rows, task_name


def drawing(length_of=lambda template: 3, most=10_000):
    """Rows whose first token is their template; at most so many of a template."""

    def draw(template, rng):
        length = length_of(template)
        if length is None:
            return None
        row = [template, int(rng.integers(most)), *[0] * (length - 2)]
        return PromptPair(tuple(row), (template, *[99_999] * (length - 1)), 1, 2)

    return draw


@settings(max_examples=60)
@given(templates=st.integers(1, 12), rows=st.integers(4, 90), seed=st.integers(0, 3))
def test_every_half_holds_every_template(templates, rows, seed):
    data = sample_rows(drawing(), templates, rows, seed, "made")
    tokens = np.array(data.tokens)
    assert len(np.unique(tokens, axis=0)) == len(tokens) == rows
    used = min(templates, rows // 4)
    counts = Counter(tokens[:, 0].tolist())
    assert set(counts) == set(range(used))
    assert max(counts.values()) - min(counts.values()) <= 2
    half = rows // 2
    for part in (tokens[:half], tokens[half:], tokens[::2], tokens[1::2]):
        assert set(part[:, 0].tolist()) == set(range(used))


def test_the_seed_decides():
    tokens = [np.array(sample_rows(drawing(), 3, 16, s, "made").tokens) for s in (0, 0, 1)]
    np.testing.assert_array_equal(tokens[0], tokens[1])
    assert (tokens[0] != tokens[2]).any()


def test_the_length_that_gives_most_is_taken():
    data = sample_rows(drawing(lambda template: 5 if template == 1 else 4), 3, 12, 0, "made")
    assert set(data.lengths) == {4}
    assert {int(row[0]) for row in data.tokens} == {0, 2}


def test_templates_that_run_out_are_passed_over():
    def draw(template, rng):
        return drawing(most=3 if template else 10_000)(template, rng)

    counts = Counter(int(row[0]) for row in sample_rows(draw, 2, 16, 0, "made").tokens)
    assert counts == {0: 13, 1: 3}


def test_too_few_rows_are_one_line(texts):
    with pytest.raises(InputError, match=r"too few prompts \(3\): give at least 4"):
        sample_rows(drawing(), 1, 3, 0, "made")
    with pytest.raises(InputError, check=texts):
        sample_rows(drawing(most=5), 1, 8, 0, "made")
    with pytest.raises(InputError, check=texts):
        sample_rows(drawing(lambda template: None), 1, 8, 0, "made")
    assert len(sample_rows(drawing(most=5), 1, 5, 0, "made")) == 5


def test_the_same_row_again_does_not_count():
    def draw(template, rng):
        often = rng.random() < 0.8
        row = (int(rng.integers(2)), 0) if often else (int(rng.integers(10_000)), 0, 0)
        return PromptPair(row, (10_001, *row[1:]), 1, 2)

    assert set(sample_rows(draw, 1, 12, 0, "made").lengths) == {3}


def test_a_task_has_its_common_name_too():
    assert task_name("IOI") == task_name("ioi") == "indirect-object"
    assert task_name("successor") == "successor"
    assert set(ALIASES.values()) <= set(names("tasks"))
