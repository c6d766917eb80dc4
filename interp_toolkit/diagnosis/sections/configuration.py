"""Checks of `cfg` against the modules, and of invariance to batch, padding, dtype and device.

`cfg`: folded norms, eps, the base of rotary positions. Invariance: a row has the same logits alone
and in a batch, and in a causal model appended tokens change nothing before them; a violation is a
fault. Padding on the left, another dtype and another device are measured and reported.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from interp_toolkit.diagnosis.bench import NOISE_BASIS, Bench, eps_of, move
from interp_toolkit.diagnosis.checks import Check, listed, measured
from interp_toolkit.errors import InputError, a_kind, first_line
from interp_toolkit.models.loading.library_output import suppress_output
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import device_of
from interp_toolkit.models.weights import read
from interp_toolkit.models.weights.parts import NormWeights
from interp_toolkit.models.weights.positions import rotary

#: norm weights this close to 1, and biases this close to 0, were folded or never trained
IDENTITY_EPS = 4


def norms_of(model: Any) -> dict[str, NormWeights]:
    """The norms before attention, MLP and unembedding, by name."""
    norms = {}
    for layer, block in enumerate(model.blocks):
        for name in ("ln1", "ln2"):
            if name in block._modules:
                norms[f"blocks.{layer}.{name}"] = read.norm(block, name, model.cfg)
    if "ln_final" in model._modules:
        norms["ln_final"] = read.norm(model, "ln_final", model.cfg)
    return {name: norm for name, norm in norms.items() if norm.kind is not None}


def _identity(norm: NormWeights) -> bool:
    """Whether a norm's weights have no effect."""
    eps = IDENTITY_EPS * (eps_of(norm.w.dtype) if norm.w is not None else 0.0)
    one = norm.w is None or bool((norm.w - 1).abs().max() <= eps)
    zero = norm.b is None or bool(norm.b.abs().max() <= eps)
    return one and zero


def check_folding(model: Any) -> Iterator[Check]:
    """Do the norms hold weights as `cfg.normalization_type` says?"""
    check = partial(Check, "configuration", "norms are folded as cfg says")
    norm_type = getattr(model.cfg, "normalization_type", None)
    norms = norms_of(model)
    processed = bool(getattr(model, "compatibility_mode", False))
    if not norms:
        if norm_type in (None, "none"):
            yield check("not_applicable", "no norms")
        else:
            yield check("failed", f"cfg says {norm_type}, and there are no norms")
        return
    if norm_type is None:
        yield check(
            "failed",
            f"cfg says there are no norms, but there are {listed(list(norms))}",
            locations=list(norms),
        )
        return
    bare = [hook for hook, norm in norms.items() if norm.w is None and norm.b is None]
    working = [hook for hook, norm in norms.items() if not _identity(norm)]
    if str(norm_type).endswith("Pre"):
        if working:
            yield check(
                "failed",
                f"cfg says {norm_type} (folded), but weights are active in {listed(working)}",
                locations=working,
            )
        else:
            yield check("passed", f"{norm_type}: {len(norms)} norms without active weights")
        return
    if bare and (len(bare) < len(norms) or not _without_weights(model)):
        yield check(
            "failed",
            f"cfg says {norm_type} (not folded), but {listed(bare)} hold no weights",
            locations=bare,
        )
        return
    if working:
        yield check("passed", f"{norm_type}: weights are active in {len(working)} of {len(norms)}")
        return
    means = _means(model)
    if means is None:
        explanation = (
            "all norm weights are 1: folded or never trained; the model does not show which"
        )
        yield check("undecided", explanation)
        return
    largest, tolerance, expected = means
    if largest <= tolerance:
        recorded_as_folded = processed
        yield check(
            "differs" if recorded_as_folded else "failed",
            f"cfg says {norm_type} (not folded), but all norms are the identity and their "
            "readers are centered: they were folded"
            + (", as compatibility_mode says" if recorded_as_folded else ""),
            largest,
            tolerance,
            f"rounding of a mean; weights never folded have about {expected:.2g}",
        )
    else:
        yield check(
            "passed",
            f"{norm_type}: all norm weights are 1, and their readers are not centered: not folded",
            largest,
            tolerance,
            "rounding of a mean",
        )


def _without_weights(model: Any) -> bool:
    """Whether the norms may never have had weights: only in bridges (OLMo's)."""
    return hasattr(model, "original_model")


def _means(model: Any) -> tuple[float, float, float] | None:
    """The largest column mean of value weights after a LayerNorm, which folding sets to 0.

    Also returns the tolerance, and the value expected for independent entries. None if no matrix
    can be read, or if the norms do not subtract a mean (folding then does not center).
    """
    matrices: list[Tensor] = []
    for layer in range(int(model.cfg.n_layers)):
        try:
            w = read.ov(model, layer)
        except InputError:
            continue
        if w.norm.kind == "LN":
            matrices.append(w.W_V)
    if not matrices:
        return None
    mean = max(float(W.double().mean(-2).abs().max()) for W in matrices)
    size = max(float(W.double().abs().mean(-2).max()) for W in matrices)
    eps = eps_of(matrices[0].dtype)
    if size == 0:
        return None
    return mean, 16 * eps * size, size / matrices[0].shape[-2] ** 0.5


def check_eps(model: Any) -> Iterator[Check]:
    """Do all norms use cfg's eps?"""
    check = partial(Check, "configuration", "norms use cfg's eps")
    eps = getattr(model.cfg, "eps", None)
    norms = norms_of(model)
    if eps is None or not norms:
        yield check("not_applicable", "no norms, or no eps in cfg")
        return
    wrong = [name for name, n in norms.items() if abs(n.eps - float(eps)) > 1e-3 * float(eps)]
    if wrong:
        used = norms[wrong[0]].eps
        yield check(
            "failed",
            f"cfg says {eps:g}, {listed(wrong)} use {used:g}",
            abs(used - eps),
            1e-3 * eps,
            "a thousandth of it",
            wrong,
        )
    else:
        yield check("passed", f"{eps:g} in {len(norms)} norms")


def by_design(own: Iterator[Check], model: Any, fresh: Iterator[Check] | None) -> Iterator[Check]:
    """A model's checks; failures of a bridge that a fresh copy shares differ by design."""
    in_copy = {} if fresh is None else {check.name: check for check in fresh}
    for check in own:
        other = in_copy.get(check.name)
        shared = other is not None and other.answer == check.answer == "failed"
        if shared and hasattr(model, "original_model") and other and other.summary == check.summary:
            check = replace(
                check, answer="differs", summary=f"{check.summary}, in a fresh copy too"
            )
        yield check


def check_rotary(model: Model, n_pos: int) -> Iterator[Check]:
    """Are the rotary tables those of cfg's base (Su et al. 2021)?"""
    check = partial(Check, "configuration", "rotary tables are those of cfg's base")
    cfg: Any = model.cfg
    base = getattr(cfg, "rotary_base", None)
    if getattr(cfg, "positional_embedding_type", "") != "rotary" or base is None:
        yield check("not_applicable", "no rotary positions, or no base in cfg")
        return
    scaled = _scaling(model)
    if scaled:
        yield check("not_applicable", f"the frequencies are scaled ({scaled})")
        return
    wrong, worst, tolerance = [], 0.0, 0.0
    for layer in range(int(cfg.n_layers)):
        tables = rotary(model, model.blocks[layer].attn, cfg)  # type: ignore[attr-defined]
        assert tables is not None
        cos, _ = tables.tables(n_pos)
        half = torch.arange(tables.dim // 2, dtype=torch.float64)
        angles = torch.arange(n_pos, dtype=torch.float64)[:, None] * float(base) ** (
            -2 * half / tables.dim
        )
        ours = angles.cos()
        ours = ours.repeat_interleave(2, -1) if tables.adjacent else torch.cat([ours, ours], -1)
        gap = float((cos.double().cpu() - ours).abs().max())
        tolerance = 4 * eps_of(cos.dtype) * max(n_pos, 1)
        worst = max(worst, gap)
        if not gap <= tolerance:
            wrong.append(f"blocks.{layer}.attn")
    basis = "4 eps times the largest position"
    if wrong:
        yield check(
            "failed", f"cfg says {base:g}; not in {listed(wrong)}", worst, tolerance, basis, wrong
        )
    else:
        yield check("passed", f"base {base:g}", worst, tolerance, basis)


def _scaling(model: Any) -> str:
    """The scaling of the rotary frequencies, as text; "" if there is none."""
    cfg = model.cfg
    if getattr(cfg, "use_NTK_by_parts_rope", False):
        return "by parts"
    if (getattr(cfg, "rotary_scaling_factor", None) or 1.0) != 1.0:
        return "linearly"
    config = getattr(getattr(model, "original_model", None), "config", None)
    config = getattr(config, "text_config", None) or config
    scaling = (
        getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    )
    if any(isinstance(value, dict) for value in scaling.values()):
        return "by layer"
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    return "" if kind in (None, "default") else str(kind)


PADS = 2


def check_batch(bench: Bench, model: Any, plain: Tensor, tolerance: float) -> Iterator[Check]:
    """Does a row have the same logits alone as in a batch?"""
    alone = bench.run(model, bench.tokens[:1])
    difference = float((alone - plain[:1]).abs().max())
    yield measured(
        "invariance",
        "a row has the same logits alone and in a batch",
        difference,
        tolerance,
        float(plain.abs().max()),
        NOISE_BASIS,
        "other rows change its logits",
    )


def check_causal(bench: Bench, model: Model, plain: Tensor, tolerance: float) -> Iterator[Check]:
    """Do appended tokens (padding on the right) leave the logits before them unchanged?"""
    name = "padding on the right changes nothing before it"
    n_pos = bench.tokens.shape[1]
    layers = range(int(model.cfg.n_layers))
    if any(read.visibility(model, layer)[0] == "bidirectional" for layer in layers):
        yield Check("invariance", name, "not_applicable", "every position sees every other")
        return
    if any(read.mixes(model, layer) for layer in layers) or n_pos < 2:
        yield Check(
            "invariance", name, "not_applicable", "mixed by fixed matrices, or one position"
        )
        return
    if not hasattr(model, "blocks") or plain.ndim < 3:
        reason = "without blocks the model has no causal mask to check"
        yield Check("invariance", name, "not_applicable", reason)
        return
    half = n_pos // 2
    rows = bench.tokens[:4, :half]
    try:
        prefix = bench.run(model, rows)
    except RuntimeError as error:  # a mask or positions of fixed length
        reason = f"it takes no rows of {half} tokens: {first_line(error)}"
        yield Check("invariance", name, "not_applicable", reason)
        return
    difference = float((prefix - plain[:4, :half]).abs().max())
    yield measured(
        "invariance",
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
    """Does masked padding on the left change the logits (through the positions of tokens)?"""
    name = "padding on the left, masked, changes nothing"
    n_ctx, n_pos = int(getattr(model.cfg, "n_ctx", 0)), bench.tokens.shape[1]
    if "attention_mask" not in inspect.signature(model.forward).parameters:
        yield Check(
            "invariance",
            name,
            "not_applicable",
            f"{a_kind(model)} takes no attention_mask: pad on the right",
        )
        return
    if n_pos + PADS > n_ctx:
        yield Check(
            "invariance", name, "not_applicable", f"no room for padding in {n_ctx} positions"
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
        yield Check("invariance", name, "not_applicable", "the model is in float64")
        return
    wide = _run_moved(bench, copy, torch.float64, before)
    text = f"{str(before).removeprefix('torch.')} is off by more than its rounding explains"
    yield _result(name, wide - plain, plain, tolerance, text)


def check_device(
    bench: Bench, model: Any, copy: Any, plain: Tensor, tolerance: float
) -> Iterator[Check]:
    """Does another device give the same logits, if there is one?"""
    name = "another device gives the same logits"
    here = device_of(model)
    if here.type == "cpu" and not torch.cuda.is_available():
        yield Check("invariance", name, "not_applicable", "no other device is available")
        return
    there = torch.device("cpu" if here.type != "cpu" else "cuda")
    moved = _run_moved(bench, copy, there, here)
    yield _result(name, moved - plain, plain, tolerance, f"not on {there.type}")


def _run_moved(
    bench: Bench, copy: Any, there: torch.dtype | torch.device, back: torch.dtype | torch.device
) -> Tensor:
    """The logits of a copy in another dtype or on another device; it is moved back."""
    with suppress_output():  # TransformerLens reports moves
        move(copy, there)
        try:
            return bench.run(copy)
        finally:
            move(copy, back)


def _result(name: str, change: Tensor, plain: Tensor, tolerance: float, summary: str) -> Check:
    """A check whose difference is reported but is not a fault."""
    difference, scale = float(change.abs().max()), float(plain.abs().max())
    check = measured("invariance", name, difference, tolerance, scale, NOISE_BASIS)
    if check.answer != "failed":
        return check
    return Check("invariance", name, "differs", summary, difference, tolerance, NOISE_BASIS)
