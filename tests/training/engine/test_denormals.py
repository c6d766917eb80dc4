"""Denormal numbers count as zero while a model trains, and only then."""

from __future__ import annotations

import pytest
import torch

from interp_toolkit.training.engine.acceleration import flushed_denormals

TINY = torch.finfo(torch.float32).smallest_normal


def half_of_the_smallest() -> float:
    return (torch.tensor(TINY) / 2).item()


needs = pytest.mark.skipif(
    not (torch.set_flush_denormal(True), torch.set_flush_denormal(False))[0],
    reason="this processor keeps denormal numbers",
)


@needs
def test_they_are_zero_inside_and_kept_outside_also_after_an_error() -> None:
    assert half_of_the_smallest() == TINY / 2
    inside = []

    def fails() -> None:
        with flushed_denormals():
            inside.append(half_of_the_smallest())
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert inside == [0]
    assert half_of_the_smallest() == TINY / 2


@needs
def test_who_has_them_flushed_keeps_them_so() -> None:
    torch.set_flush_denormal(True)
    try:
        with flushed_denormals():
            pass
        assert half_of_the_smallest() == 0
    finally:
        torch.set_flush_denormal(False)


@needs
def test_backward_has_them_flushed_too() -> None:
    weight = torch.tensor([TINY], requires_grad=True)
    with flushed_denormals():
        (weight * 0.5).sum().backward()
        small = torch.tensor([0.25], requires_grad=True)
        (small * torch.tensor([TINY])).mul(0.5).sum().backward()
    assert small.grad is not None
    assert small.grad.item() == 0
