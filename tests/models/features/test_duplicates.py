"""Equal inputs, and groupings joined, against plain loops."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from interp_toolkit.models.features.samples import equal_inputs, joined

codes = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12)


def test_inputs_are_equal_in_length_and_values() -> None:
    rows = [np.array([1, 2]), np.array([1]), np.array([1, 2]), np.array([2, 1]), np.array([1])]
    assert equal_inputs(rows).tolist() == [0, 1, 0, 2, 1]
    assert equal_inputs(np.array([[0.5, 1.0], [0.5, 1.0], [0.5, 2.0]])).tolist() == [0, 0, 1]
    assert equal_inputs(np.arange(8).reshape(2, 4).T[[0, 1, 0]]).tolist() == [0, 1, 0]


@given(codes)
def test_joined_groups_are_connected_components(rows: list[tuple[int, int]]) -> None:
    expected = list(range(len(rows)))
    for _ in rows:  # as often as a chain of links can be long
        for i, one in enumerate(rows):
            for j, other in enumerate(rows):
                if one[0] == other[0] or one[1] == other[1]:
                    expected[i] = expected[j] = min(expected[i], expected[j])
    found = joined(np.array([a for a, _ in rows]), [b for _, b in rows])
    assert [np.flatnonzero(found == code)[0] for code in found] == expected
    assert sorted(set(found.tolist())) == list(range(found.max() + 1))
