"""Counts what would make a GPU wait: values that Python reads, and copies to the host.

On a CPU nothing waits, so the operations themselves are counted: a scalar read by Python
(`item`, `bool`, `int`), an operation whose output's size depends on values (`nonzero`, boolean
masks, `unique`), and a tensor that goes to the CPU or to a list (NumPy takes CPU tensors only).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

READS = (
    "aten._local_scalar_dense",
    "aten.nonzero",
    "aten.masked_select",
    "aten._unique2",
    "aten.unique_dim",
    "aten.equal",
    "aten.is_nonzero",
)
COPIES = ("cpu", "tolist")


class _Reads(TorchDispatchMode):
    def __init__(self, counted: Counter[str]) -> None:
        super().__init__()
        self.counted = counted

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).rsplit(".", 1)[0]
        if name in READS:
            self.counted[name] += 1
        if name in ("aten.index", "aten.index_put", "aten.index_put_") and any(
            isinstance(index, torch.Tensor) and index.dtype == torch.bool for index in args[1]
        ):
            self.counted["boolean mask"] += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Inside the block, count reads and copies by name."""
    counts: Counter[str] = Counter()
    before = {name: getattr(torch.Tensor, name) for name in COPIES}

    def counting(name: str) -> Any:
        def method(self: torch.Tensor, *args: Any, **options: Any) -> Any:
            counts[name] += 1
            return before[name](self, *args, **options)

        return method

    for name in COPIES:
        setattr(torch.Tensor, name, counting(name))
    try:
        with _Reads(counts):
            yield counts
    finally:
        for name, method in before.items():
            setattr(torch.Tensor, name, method)
