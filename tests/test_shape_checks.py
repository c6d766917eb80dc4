"""The suite's checks of shapes do check."""

import jaxtyping
import numpy as np
import pytest
import shape_checks
from beartype import beartype
from jaxtyping import Float

import interp_toolkit.stats


class Adder:
    def both(self, x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> Float[np.ndarray, ""]:
        return np.asarray(x.sum() + y.sum())

    both = shape_checks.sampled(typechecker=beartype)(both)

    @staticmethod
    def one(x: Float[np.ndarray, " n"]) -> None: ...

    one = shape_checks.sampled(one, typechecker=beartype)


def right_and_wrong(calls: int) -> None:
    x = np.zeros(2)
    for _ in range(calls):
        Adder().both(x, x)
    with pytest.raises(jaxtyping.TypeCheckError):
        Adder().both(x, np.zeros(3))


@pytest.mark.parametrize(
    "calls", [0, shape_checks.FIRST - 1, 2 * shape_checks.EVERY - 1, 9 * shape_checks.EVERY - 1]
)
def test_first_calls_and_some_later_ones_are_checked(calls: int) -> None:
    right_and_wrong(calls)


def test_each_test_begins_anew() -> None:
    for _ in range(shape_checks.FIRST):
        Adder().both(np.zeros(1), np.zeros(1))
    Adder().both(np.zeros(2), np.zeros(3))  # not one of those that are checked
    shape_checks.begin_test()
    right_and_wrong(0)


def test_methods_without_an_instance() -> None:
    with pytest.raises(jaxtyping.TypeCheckError):
        Adder.one(np.zeros((2, 2)))


def test_the_package_is_checked() -> None:
    with pytest.raises(jaxtyping.TypeCheckError):
        interp_toolkit.stats.holm(np.zeros((2, 2)))


def test_functions_of_one_def_are_counted_together() -> None:
    def made():
        def both(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> None: ...

        return shape_checks.sampled(both, typechecker=beartype)

    for calls in range(1, 3 * shape_checks.EVERY + 1):
        if calls <= shape_checks.FIRST or calls % shape_checks.EVERY == 0:
            with pytest.raises(jaxtyping.TypeCheckError):
                made()(np.zeros(1), np.zeros(2))
        else:
            made()(np.zeros(1), np.zeros(2))
