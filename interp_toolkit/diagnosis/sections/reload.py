"""Saving and loading gives the same model; folding changes no probability.

The state dict goes into a fresh copy whose tensors were NaN before (see `fresh`). A toolkit model
also goes through a file. The copy is then folded, as TransformerLens folds by default, and its
log-probabilities are compared: folding may add one constant to all logits of a position.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp_toolkit.diagnosis.bench import NOISE_BASIS, Bench
from interp_toolkit.diagnosis.checks import Check, listed, measured
from interp_toolkit.diagnosis.fresh import Fresh, never_set, poison, unset
from interp_toolkit.errors import InputError
from interp_toolkit.models.loading.formats.checkpoint import save
from interp_toolkit.models.loading.loader import load
from interp_toolkit.models.loading.quietly import quiet
from interp_toolkit.models.model import Model
from interp_toolkit.models.transformer.transformer import Transformer

SAME = "a fresh copy with this state dict gives the same logits"


def check_reload(
    model: Model, fresh: Fresh, logits: Tensor, plain: Tensor, tolerance: float
) -> Iterator[Check]:
    """Does a fresh copy with this model's state dict do the same, with every tensor set?"""
    name = "loading the state dict sets every tensor"
    nowhere = never_set(fresh.model) if bool(logits.isnan().any()) else []
    lost = tuple(dict.fromkeys([*fresh.unset, *fresh.absent, *nowhere]))
    if lost:
        yield Check("reload", name, "failed", f"left unset: {listed(lost)}", places=lost)
    elif fresh.unused:
        yield Check(
            "reload", name, "failed", f"no use for: {listed(fresh.unused)}", places=fresh.unused
        )
    else:
        yield Check("reload", name, "passed", f"{len(model.state_dict())} tensors")
    difference = float((logits - plain).abs().max())
    yield measured(
        "reload", SAME, difference, tolerance, float(plain.abs().max()), NOISE_BASIS, "other logits"
    )


def check_own_loading(model: Any) -> Iterator[Check]:
    """Does this object's own `load_state_dict` set every tensor? Asked of a deep copy of it."""
    name = "this object's load_state_dict sets every tensor"
    with quiet():
        twin = copy.deepcopy(model)
        weights = {
            key: value.detach().clone()
            for key, value in model.state_dict().items()
            if isinstance(value, Tensor)
        }
        poison(twin)
        twin.load_state_dict(weights)
    left = unset(twin)
    if left:
        yield Check("reload", name, "failed", f"left unset: {listed(left)}", places=left)
    else:
        yield Check("reload", name, "passed", f"{len(weights)} tensors")


def check_file(model: Any) -> Iterator[Check]:
    """Does a file give back the same tensors, bit for bit? Of the toolkit's own models."""
    name = "a file gives back the same tensors"
    if not isinstance(model, Transformer):
        yield Check("reload", name, "not_applicable", "the toolkit saves its own models only")
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        try:
            save(model, path)
            back = load(path)
        except InputError as error:
            yield Check("reload", name, "failed", str(error).replace(f"{path}", "the file"))
            return
    parameters = dict(model.named_parameters()) | {
        n: b for n, b in model.named_buffers() if n in back.state_dict()
    }
    reloaded = back.state_dict()
    bad = [
        n
        for n, t in parameters.items()
        if n not in reloaded or not torch.equal(t.cpu(), reloaded[n])
    ]
    if bad:
        yield Check("reload", name, "failed", f"not the same: {listed(bad)}", places=bad)
    else:
        yield Check("reload", name, "passed", f"{len(parameters)} tensors, bit for bit")


def check_folding(
    bench: Bench, model: Any, fresh: Any, plain: Tensor, tolerance: float
) -> Iterator[Check]:
    """Does folding, as TransformerLens does it, leave the log-probabilities as they are?

    `fresh` is folded in place.
    """
    name = "folding changes no probability"
    norm_type = str(getattr(model.cfg, "normalization_type", None))
    if norm_type.endswith("Pre") or getattr(model, "compatibility_mode", False):
        yield Check("reload", name, "not_applicable", "this model is folded already")
        return
    if not hasattr(fresh, "process_weights_") and not hasattr(fresh, "enable_compatibility_mode"):
        yield Check("reload", name, "not_applicable", f"a {type(model).__name__} does not fold")
        return
    with quiet():
        if hasattr(fresh, "enable_compatibility_mode"):
            fresh.enable_compatibility_mode(disable_warnings=True)
        else:
            fresh.process_weights_()
    folded = bench.run(fresh)
    difference = float((folded.log_softmax(-1) - plain.log_softmax(-1)).abs().max())
    tolerance, scale = 2 * tolerance, float(plain.log_softmax(-1).abs().max())
    check = measured(
        "reload",
        name,
        difference,
        tolerance,
        scale,
        f"twice {NOISE_BASIS}",
        "log-probabilities change",
    )
    if check.answer == "failed":  # the copy's doing, not this model's
        norm_type = "log-probabilities of a folded copy are others: do not fold this model"
        check = Check("reload", name, "differs", norm_type, difference, tolerance, check.basis)
    yield check
