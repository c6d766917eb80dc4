"""Memory limits of a run: parsing sizes, and the number of prompts that fit.

The estimate counts the memory of a forward pass at its widest point, per row of `n_pos` tokens, in
units of the model's dtype:

- the residual stream, four copies (input, normalized, sublayer output, sum): 4 d_model per
  position;
- attention: queries, keys, values, output, 4 n_heads d_head per position, and scores, pattern and
  one temporary, 3 n_heads n_pos per position;
- an MLP's gate, input and product: 3 d_mlp per position;
- the logits and their copy if the pass runs to its end: 2 d_vocab per position;
- activations stored by hooks.

Weights are not counted, since they are loaded before the run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeVar

from interp_toolkit.errors import InputError

T = TypeVar("T")
DEFAULT_MEMORY = 2**30
MAX_BATCH = 4096
_UNITS = {
    "": 1,
    "b": 1,
    "k": 1000,
    "kb": 1000,
    "m": 1000**2,
    "mb": 1000**2,
    "g": 1000**3,
    "gb": 1000**3,
    "t": 1000**4,
    "tb": 1000**4,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}


def parse_memory(memory: int | str | None) -> int:
    """Bytes from a number or from text such as "4GiB", "500 MB", "2e9"; None means 1 GiB.

    Raises InputError for anything else, and for sizes below one byte.
    """
    if memory is None:
        return DEFAULT_MEMORY
    if isinstance(memory, int) and not isinstance(memory, bool):
        size = float(memory)
    else:
        match = re.fullmatch(
            r"\s*(\d+(?:\.\d*)?(?:e\d{1,2})?)\s*([a-z]*)\s*", str(memory), re.IGNORECASE
        )
        unit = _UNITS.get(match[2].lower()) if match else None
        if match is None or unit is None:
            raise InputError(f"memory {memory!r} is not a size; write it like 4GiB or 500MB")
        size = float(match[1]) * unit
    if size < 1:
        raise InputError(f"memory {memory!r} is less than one byte")
    return int(size)


def format_size(n_bytes: int) -> str:
    """A size as text, such as "1.5 MiB"."""
    return f"{n_bytes / 2**20:.1f} MiB" if n_bytes >= 2**20 else f"{n_bytes} bytes"


def bytes_per_row(cfg: Any, n_pos: int, itemsize: int, *, logits: bool, n_stored: int) -> int:
    """The bytes of one prompt at the widest point of a forward pass (the module's estimate).

    Args:
        cfg: the model's configuration (TransformerLens's field names).
        n_pos: tokens in the row.
        itemsize: bytes of one number of the model.
        logits: whether the pass reaches the unembedding.
        n_stored: numbers that hooks store per row.
    """
    d_model, n_heads = int(cfg.d_model), heads_of(cfg)[0]
    position = 4 * d_model + 4 * n_heads * heads_of(cfg)[1] + 3 * n_heads * n_pos
    position += 3 * int(getattr(cfg, "d_mlp", None) or 0)
    if logits:
        position += 2 * int(cfg.d_vocab)
    return itemsize * (position * n_pos + n_stored)


def heads_of(cfg: Any) -> tuple[int, int]:
    """Number and size of the heads; zeros if the configuration has none."""
    return int(getattr(cfg, "n_heads", 0) or 0), int(getattr(cfg, "d_head", 0) or 0)


def itemsize_of(model: Any) -> int:
    """Bytes per number of a model's weights."""
    size: int = next(iter(model.parameters())).element_size()
    return size


def together(items: Sequence[T], first: T, memory: int | str | None, item_bytes: int) -> list[T]:
    """An item and the following ones, as many as fit in half of the memory.

    Only the first if the size of an item is not known yet (0), or if it is not in the list.
    """
    if not item_bytes or first not in items:
        return [first]
    start, room = items.index(first), max(1, parse_memory(memory) // (2 * item_bytes))
    return list(items[start : start + room])


def rows_that_fit(memory: int, row_bytes: int, n_pos: int) -> int:
    """The number of rows that fit in `memory` bytes, at most MAX_BATCH.

    Raises InputError if not even one fits.
    """
    rows = memory // max(row_bytes, 1)
    if rows < 1:
        raise InputError(
            f"one row of {n_pos} tokens needs about {format_size(row_bytes)}, more than the "
            f"{format_size(memory)} of memory allowed; raise the limit or shorten the rows"
        )
    return min(rows, MAX_BATCH)
