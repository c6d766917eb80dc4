"""Training without denormal numbers.

What a sharp softmax leaves of the other tokens falls below 1e-38, where a CPU keeps fewer digits
and takes a hundred times as long for each: a trained sorter's step takes a third longer than the
same step at the start. Such numbers count as zero here, in the thread that trains; PyTorch's other
threads, if there are some, are started before, and keep them, so that a run is the same each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

MANY = 2**17  # numbers that PyTorch shares out among its threads


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Numbers below the smallest normal one count as zero, where the processor can do that."""
    before = _flushed()
    torch.zeros(MANY).add_(1.0)  # starts the threads among which operations are shared out
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _flushed() -> bool:
    """Whether they do already, which PyTorch does not tell."""
    smallest = torch.tensor(torch.finfo(torch.float32).smallest_normal)
    return bool(smallest / 2 == 0)
