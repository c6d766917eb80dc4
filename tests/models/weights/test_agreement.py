"""Two tensors that agree up to rounding, and two that do not."""

import pytest
import torch

from interp_toolkit.models.weights.precision import agrees


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_is_told_from_error(dtype: torch.dtype) -> None:
    theirs = torch.tensor([1.0, -3.0], dtype=dtype)
    assert agrees(theirs * (1 + 1e-6), theirs)
    assert not agrees(theirs * (1 + 1e-2), theirs)
    assert not agrees(theirs[:1], theirs)
    assert not agrees(theirs, theirs * float("nan"))
    assert not agrees(theirs * float("nan"), theirs)


def test_sums_that_cancel_are_rounded_beside_what_was_summed() -> None:
    """Terms of 10 in single precision leave 1e-6 of rounding each, whatever their sum is."""
    theirs = torch.tensor([2e-6, -1e-6])
    ours = theirs + 3e-6
    assert not agrees(ours, theirs)
    assert agrees(ours, theirs, summed=10.0)
    assert not agrees(theirs + 1e-3, theirs, summed=10.0)
    assert not agrees(theirs * float("nan"), theirs, summed=10.0)
