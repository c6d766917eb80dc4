"""Checks of invariance to the batch, padding, dtype and device.

A row alone is the row in a batch; what is appended changes nothing before it in a causal model.
These are faults where they do not hold. Padding on the left, another dtype and another device are
measured, and told.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from interp_toolkit.diagnosis.bench import NOISE_BASIS, Bench
from interp_toolkit.diagnosis.checks import Check, measured
from interp_toolkit.diagnosis.fresh import move
from interp_toolkit.errors import first_line
from interp_toolkit.models.loading.quietly import quiet
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import device_of
from interp_toolkit.models.weights import read

PADS = 2


def check_batch(bench: Bench, model: Any, plain: Tensor, tolerance: float) -> Iterator[Check]:
    """Is a row alone what it is in a batch?"""
    alone = bench.run(model, bench.tokens[:1])
    difference = float((alone - plain[:1]).abs().max())
    yield measured(
        "conditions",
        "a row alone is the row in a batch",
        difference,
        tolerance,
        float(plain.abs().max()),
        NOISE_BASIS,
        "other rows change its logits",
    )


def check_causal(bench: Bench, model: Model, plain: Tensor, tolerance: float) -> Iterator[Check]:
    """Does what is appended (padding on the right) leave what stands before it as it is?"""
    name = "padding on the right changes nothing before it"
    n_pos = bench.tokens.shape[1]
    layers = range(int(model.cfg.n_layers))
    if any(read.visibility(model, layer)[0] == "bidirectional" for layer in layers):
        yield Check("conditions", name, "not_applicable", "every position sees every other")
        return
    if any(read.mixes(model, layer) for layer in layers) or n_pos < 2:
        yield Check(
            "conditions", name, "not_applicable", "mixed by fixed matrices, or one position"
        )
        return
    if not hasattr(model, "blocks") or plain.ndim < 3:
        reason = "without blocks nothing says that a position sees no later one"
        yield Check("conditions", name, "not_applicable", reason)
        return
    half = n_pos // 2
    rows = bench.tokens[:4, :half]
    try:
        prefix = bench.run(model, rows)
    except RuntimeError as error:  # a mask or positions of one length
        reason = f"it takes no rows of {half} tokens: {first_line(error)}"
        yield Check("conditions", name, "not_applicable", reason)
        return
    difference = float((prefix - plain[:4, :half]).abs().max())
    yield measured(
        "conditions",
        name,
        difference,
        tolerance,
        float(plain.abs().max()),
        NOISE_BASIS,
        "logits depend on later tokens",
    )


def check_left_padding(
    bench: Bench, model: Any, plain: Tensor, tolerance: float
) -> Iterator[Check]:
    """Does masked padding on the left change anything: are positions counted from real tokens?"""
    name = "padding on the left, masked, changes nothing"
    n_ctx, n_pos = int(getattr(model.cfg, "n_ctx", 0)), bench.tokens.shape[1]
    if "attention_mask" not in inspect.signature(model.forward).parameters:
        yield Check(
            "conditions",
            name,
            "not_applicable",
            f"a {type(model).__name__} takes no attention_mask: pad on the right",
        )
        return
    if n_pos + PADS > n_ctx:
        yield Check(
            "conditions", name, "not_applicable", f"no room for padding in {n_ctx} positions"
        )
        return
    rows = bench.tokens[:4]
    padded = torch.cat([rows[:, :1].expand(-1, PADS), rows], 1)
    mask = torch.ones_like(padded)
    mask[:, :PADS] = 0
    logits = bench.run(model, padded, attention_mask=mask)[:, PADS:]
    yield _result(name, logits - plain[:4], plain, tolerance, "logits change: pad on the right")


def check_dtype(bench: Bench, copy: Any, plain: Tensor, tolerance: float) -> Iterator[Check]:
    """Compare the logits with those of the same weights in float64."""
    name = "float64 gives the same logits"
    before = next(iter(copy.parameters())).dtype
    if before == torch.float64:
        yield Check("conditions", name, "not_applicable", "the model is in float64")
        return
    wide = _run_moved(bench, copy, torch.float64, before)
    text = f"{str(before).removeprefix('torch.')} is off by more than its rounding explains"
    yield _result(name, wide - plain, plain, tolerance, text)


def check_device(
    bench: Bench, model: Any, copy: Any, plain: Tensor, tolerance: float
) -> Iterator[Check]:
    """Does the other device give the same logits, where there is one?"""
    name = "another device gives the same logits"
    here = device_of(model)
    if here.type == "cpu" and not torch.cuda.is_available():
        yield Check("conditions", name, "not_applicable", "there is no other device here")
        return
    there = torch.device("cpu" if here.type != "cpu" else "cuda")
    moved = _run_moved(bench, copy, there, here)
    yield _result(name, moved - plain, plain, tolerance, f"not on {there.type}")


def _run_moved(
    bench: Bench, copy: Any, there: torch.dtype | torch.device, back: torch.dtype | torch.device
) -> Tensor:
    """The logits of a copy in another dtype or on another device; it is moved back."""
    with quiet():  # TransformerLens says that it moves
        move(copy, there)
        try:
            return bench.run(copy)
        finally:
            move(copy, back)


def _result(name: str, change: Tensor, plain: Tensor, tolerance: float, said: str) -> Check:
    """A difference that is told, and is no fault."""
    difference, scale = float(change.abs().max()), float(plain.abs().max())
    check = measured("conditions", name, difference, tolerance, scale, NOISE_BASIS)
    if check.answer != "failed":
        return check
    return Check("conditions", name, "differs", said, difference, tolerance, NOISE_BASIS)
