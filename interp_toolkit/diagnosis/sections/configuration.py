"""What `cfg` says beside what the modules are: folded norms, eps, the base of rotary positions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from interp_toolkit.diagnosis.bench import eps_of
from interp_toolkit.diagnosis.checks import Check, listed
from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Model
from interp_toolkit.models.weights import read
from interp_toolkit.models.weights.parts import NormWeights
from interp_toolkit.models.weights.positions import rotary

#: a norm's weights closer to 1 than this, and biases closer to 0, were folded or never trained
IDENTITY_EPS = 4


def norms_of(model: Any) -> dict[str, NormWeights]:
    """The norms in front of attention, MLP and unembedding, by name."""
    found = {}
    for layer, block in enumerate(model.blocks):
        for name in ("ln1", "ln2"):
            if name in block._modules:
                found[f"blocks.{layer}.{name}"] = read.norm(block, name, model.cfg)
    if "ln_final" in model._modules:
        found["ln_final"] = read.norm(model, "ln_final", model.cfg)
    return {name: norm for name, norm in found.items() if norm.kind is not None}


def _identity(norm: NormWeights) -> bool:
    """Whether its weights do nothing."""
    eps = IDENTITY_EPS * (eps_of(norm.w.dtype) if norm.w is not None else 0.0)
    one = norm.w is None or bool((norm.w - 1).abs().max() <= eps)
    zero = norm.b is None or bool(norm.b.abs().max() <= eps)
    return one and zero


def check_folding(model: Any) -> Iterator[Check]:
    """Do the norms hold the weights that `cfg.normalization_type` says they hold?"""
    name = "norms are folded as told"
    said = getattr(model.cfg, "normalization_type", None)
    norms = norms_of(model)
    processed = bool(getattr(model, "compatibility_mode", False))
    if not norms:
        if said in (None, "none"):
            yield Check("told", name, "not_applicable", "no norms")
        else:
            yield Check("told", name, "failed", f"cfg says {said}, and there are no norms")
        return
    if said is None:
        yield Check(
            "told",
            name,
            "failed",
            f"cfg says no norms, and there are {listed(list(norms))}",
            places=list(norms),
        )
        return
    bare = [place for place, norm in norms.items() if norm.w is None and norm.b is None]
    working = [place for place, norm in norms.items() if not _identity(norm)]
    if str(said).endswith("Pre"):
        if working:
            yield Check(
                "told",
                name,
                "failed",
                f"cfg says {said} (folded), but weights are at work in {listed(working)}",
                places=working,
            )
        else:
            yield Check(
                "told", name, "passed", f"{said}: {len(norms)} norms without weights at work"
            )
        return
    if bare and (len(bare) < len(norms) or not _without_weights(model)):
        yield Check(
            "told",
            name,
            "failed",
            f"cfg says {said} (not folded), but {listed(bare)} hold no weights",
            places=bare,
        )
        return
    if working:
        yield Check(
            "told", name, "passed", f"{said}: weights are at work in {len(working)} of {len(norms)}"
        )
        return
    means = _means(model)
    if means is None:
        told = "all norm weights are 1: folded or never trained, which nothing in the model tells"
        yield Check("told", name, "undecided", told)
        return
    largest, tolerance, expected = means
    if largest <= tolerance:
        said_so = processed
        yield Check(
            "told",
            name,
            "differs" if said_so else "failed",
            f"cfg says {said} (not folded), but all norms are the identity and what reads them is "
            "centred: they were folded" + (", as compatibility_mode says" if said_so else ""),
            largest,
            tolerance,
            f"rounding of a mean; weights never folded have about {expected:.2g}",
        )
    else:
        yield Check(
            "told",
            name,
            "passed",
            f"{said}: all norm weights are 1, and what reads them is not centred: not folded",
            largest,
            tolerance,
            "rounding of a mean",
        )


def _without_weights(model: Any) -> bool:
    """Whether the architecture's norms never had weights (OLMo)."""
    return hasattr(model, "original_model")


def _means(model: Any) -> tuple[float, float, float] | None:
    """How far from 0 the columns' means are of what reads a LayerNorm; folding takes them away.

    With the tolerance, and what independent entries would have. None where no matrix can be read,
    or the norms do not take a mean away (then folding does not centre).
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
    said = getattr(model.cfg, "eps", None)
    norms = norms_of(model)
    if said is None or not norms:
        yield Check("told", "norms use cfg's eps", "not_applicable", "no norms, or cfg says no eps")
        return
    wrong = [name for name, n in norms.items() if abs(n.eps - float(said)) > 1e-3 * float(said)]
    if wrong:
        used = norms[wrong[0]].eps
        yield Check(
            "told",
            "norms use cfg's eps",
            "failed",
            f"cfg says {said:g}, {listed(wrong)} use {used:g}",
            abs(used - said),
            1e-3 * said,
            "a thousandth of it",
            wrong,
        )
    else:
        yield Check("told", "norms use cfg's eps", "passed", f"{said:g} in {len(norms)} norms")


def by_design(own: Iterator[Check], model: Any, fresh: Iterator[Check] | None) -> Iterator[Check]:
    """The checks of a bridge, where what a fresh copy says too differs by design."""
    theirs = {} if fresh is None else {check.name: check for check in fresh}
    for check in own:
        other = theirs.get(check.name)
        shared = other is not None and other.answer == check.answer == "failed"
        if shared and hasattr(model, "original_model") and other and other.said == check.said:
            check = replace(check, answer="differs", said=f"{check.said}, in a fresh copy too")
        yield check


def check_rotary(model: Model, n_pos: int) -> Iterator[Check]:
    """Are the rotary tables those of cfg's base (Su et al. 2021)?"""
    name = "rotary tables are those of cfg's base"
    cfg: Any = model.cfg
    base = getattr(cfg, "rotary_base", None)
    if getattr(cfg, "positional_embedding_type", "") != "rotary" or base is None:
        yield Check("told", name, "not_applicable", "no rotary positions, or cfg says no base")
        return
    scaled = _scaling(model)
    if scaled:
        yield Check("told", name, "not_applicable", f"the frequencies are scaled ({scaled})")
        return
    wrong, worst, tolerance = [], 0.0, 0.0
    for layer in range(int(cfg.n_layers)):
        found = rotary(model, model.blocks[layer].attn, cfg)  # type: ignore[attr-defined]
        assert found is not None
        cos, _ = found.tables(n_pos)
        half = torch.arange(found.dim // 2, dtype=torch.float64)
        angles = torch.arange(n_pos, dtype=torch.float64)[:, None] * float(base) ** (
            -2 * half / found.dim
        )
        ours = angles.cos()
        ours = ours.repeat_interleave(2, -1) if found.adjacent else torch.cat([ours, ours], -1)
        gap = float((cos.double().cpu() - ours).abs().max())
        tolerance = 4 * eps_of(cos.dtype) * max(n_pos, 1)
        worst = max(worst, gap)
        if not gap <= tolerance:
            wrong.append(f"blocks.{layer}.attn")
    basis = "4 eps times the largest position"
    if wrong:
        yield Check(
            "told",
            name,
            "failed",
            f"cfg says {base:g}; not so in {listed(wrong)}",
            worst,
            tolerance,
            basis,
            wrong,
        )
    else:
        yield Check("told", name, "passed", f"base {base:g}", worst, tolerance, basis)


def _scaling(model: Any) -> str:
    """What scales the frequencies of rotary positions, if anything does."""
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
