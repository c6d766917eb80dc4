import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from interp_toolkit.auditing.threshold import best_threshold, right_by_class, worst_class


@given(
    hnp.arrays(float, st.integers(2, 12), elements=st.integers(-4, 4).map(float)).flatmap(
        lambda scores: st.tuples(st.just(scores), hnp.arrays(bool, len(scores)))
    )
)
def test_no_threshold_is_better(drawn):
    scores, on = drawn
    if on.all() or not on.any() or len(np.unique(scores)) == 1:
        return
    found, share = best_threshold(scores, on)

    def worse(at, sign):
        called = sign * scores > at
        return min(called[on].mean(), (~called)[~on].mean())

    values = np.unique(np.concatenate([scores, -scores]))
    tried = np.concatenate([values, (values[1:] + values[:-1]) / 2])
    best = max(worse(at, sign) for at in tried for sign in (1, -1))
    assert abs(worse(*found) - best) < 1e-12
    assert abs(share - best) < 1e-12


def test_classes_are_judged_apart():
    scores = np.array([0.0, 1.0, 2.0, 3.0, 0.2, 2.2, 9.0])
    labels = np.array([False, False, True, True, True, True, False])
    off, on = right_by_class(scores, labels, np.arange(4), np.arange(4, 7))
    assert on.tolist() == [False, True]
    assert off.tolist() == [False]
    assert worst_class((off, on)) == 0.0
