"""Hook points exist, fire with the shape their name promises, and edits reach the logits.

Two checks compare the model with a fresh copy, without a pass: hook points that only the copy
lists, and hooks that are attached only to the model (some bridges attach hooks to their own hook
points).

One pass records all hook points and returns a copy of every value (a zero edit). One backward pass
through two rows tests at every hook point at once whether the logits depend on the value that a
hook returned there. Then each kind of hook point gets NaN in one row of the batch; edits of that
kind reach the logits if that row's logits change. Silent hook points and ignored edits are also
tested on a fresh copy. Behavior that the copy shares counts as by design, except at kinds of hook
point that must work in every model; other behavior is a fault of this model.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from interp_toolkit.diagnosis.bench import ROWS, Bench, Recorded
from interp_toolkit.diagnosis.checks import Answer, Check, listed
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import attached, device_of, evaluating
from interp_toolkit.models.running.hooks import hook_points, one_name_each, silencer
from interp_toolkit.models.transformer.transformer import Transformer

FREE = "no hooks before the checks"
THERE = "all hook points exist"
RUNS = "the model runs with hooks"


def hooks_on(points: Mapping[str, Any]) -> dict[str, int]:
    """The number of hooks, TransformerLens's or PyTorch's, on each hook point that has any."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    counts = {
        name: sum(len(getattr(point, kind)) for kind in kinds) for name, point in points.items()
    }
    return {name: count for name, count in counts.items() if count}


def more(after: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """The numbers of additional hooks, by hook point."""
    gained = {name: count - before.get(name, 0) for name, count in after.items()}
    return {name: count for name, count in gained.items() if count > 0}


def check_free(left: Mapping[str, int], asked_fresh: bool, same: bool) -> Check:
    """Were the hook points free of hooks before?

    It is a fault if the model gives other values than a fresh copy, which has no such hooks.

    Args:
        left: hooks on the model that are not on a fresh copy.
        asked_fresh: whether there is a copy.
        same: whether the copy gives the same values and logits.
    """
    if not left:
        return Check("hooks", FREE, "passed", "no hook point has a hook")
    count, names = sum(left.values()), list(left)
    text = (
        f"{count} hook{'s were' if count > 1 else ' was'} already on the model at {listed(names)}"
    )
    instead = "model.reset_hooks(including_permanent=True)"
    if not asked_fresh:
        reason = f"{text}; without a fresh copy it is unknown whether the class puts them there"
        return Check("hooks", FREE, "undecided", reason, locations=names, instead=instead)
    if same:
        text = f"{text}, which changes nothing on the probe"
        return Check("hooks", FREE, "differs", text, locations=names, instead=instead)
    text = f"{text}; a fresh copy without them gives other values"
    return Check("hooks", FREE, "failed", text, locations=names, instead=instead)


def check_there(model: Any, fresh: Any) -> Check:
    """Does the model list every hook point, under every name, that a fresh copy lists?"""
    own, in_copy = hook_points(model), hook_points(fresh)
    usual = one_name_each(in_copy)
    missing = [name for name in dict.fromkeys([*usual, *in_copy]) if name not in own]
    if missing:
        text = f"not in hook_dict, unlike in a fresh copy: {listed(missing)}"
        return Check("hooks", THERE, "failed", text, locations=missing)
    return Check("hooks", THERE, "passed", f"the {len(usual)} of a fresh copy")


#: kinds of hook points that must fire and be editable in every model that has them
CORE = (
    *("hook_embed", "hook_resid_pre", "hook_resid_mid", "hook_resid_post"),
    *("hook_attn_out", "hook_mlp_out", "hook_q", "hook_k", "hook_v", "hook_z"),
)
#: replacements for kinds that are silent or whose edits are ignored
INSTEAD = {
    "hook_pattern": "hook_z",
    "hook_attn_scores": "hook_q and hook_k, or hook_z",
    "hook_rot_q": "hook_q",
    "hook_rot_k": "hook_k",
    "hook_hidden_states": "hook_attn_out",
    "hook_result": "hook_z",
    "hook_mlp_in": "hook_resid_mid",
    "hook_attn_in": "hook_resid_pre",
    "hook_pos_embed": "hook_q and hook_k",
    "qkv.hook_in": "hook_resid_pre",
    "qkv.hook_out": "hook_q, hook_k and hook_v",
    "mlp.hook_in": "hook_resid_mid",
    "mlp.hook_out": "hook_mlp_out",
    "hook_z": "hook_attn_out",
}


def kind_of(name: str) -> str:
    """A hook point's name without its layer."""
    return re.sub(r"^blocks\.\d+\.", "", name)


@dataclass(frozen=True)
class Links:
    """Gradients of one backward pass at every hook point that fires.

    Attributes:
        joined: whether the logits depend on the value that a hook returns there.
        felt: for each axis but the first, the entries (positions, heads, ...) with any gradient.
    """

    joined: Mapping[str, bool]
    felt: Mapping[str, tuple[Tensor, ...]]


def links(bench: Bench, model: Any, points: Mapping[str, Any]) -> Links:
    """The dependence of the logits on the value that hooks return, by hook point."""
    tokens = bench.tokens[:2]
    leaves: dict[str, list[Tensor]] = {}

    def tap(name: str) -> Callable[..., Any]:
        def add(value: Any, hook: Any) -> Any:
            if not isinstance(value, Tensor) or not value.is_floating_point():
                return None
            leaves.setdefault(name, []).append(torch.zeros_like(value, requires_grad=True))
            return value + leaves[name][-1]

        return add

    bench.count(tokens, backward=True)
    taps = [(point, tap(name)) for name, point in points.items()]
    with torch.enable_grad(), evaluating(model), attached(model, taps), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        output = model(tokens.to(device_of(model)))
        logits = getattr(output, "logits", output)
        flat = [leaf for each in leaves.values() for leaf in each]
        gradients: Iterable[Any] = [None] * len(flat)
        if flat and logits.requires_grad:
            generator = torch.Generator().manual_seed(2)
            weights = torch.randn(logits.shape, generator=generator).to(logits.device)
            total = (logits.float() * weights).sum()
            gradients = torch.autograd.grad(total, flat, allow_unused=True)
    gradient_iter = iter(gradients)
    by_name = {name: [next(gradient_iter) for _ in each] for name, each in leaves.items()}
    return Links(
        {name: all(g is not None for g in each) for name, each in by_name.items()},
        {name: _felt(each[-1]) for name, each in by_name.items() if each[-1] is not None},
    )


def _felt(gradient: Tensor) -> tuple[Tensor, ...]:
    some = (gradient != 0).cpu()
    axes = range(some.ndim)
    return tuple(
        some.movedim(axis, 0).reshape(some.shape[axis], -1).any(-1) for axis in axes if axis
    )


def check_whole(own: Links, in_copy: Links) -> Iterator[Check]:
    """Do edits reach the logits from every position and head from which a fresh copy's do?"""
    lost = []
    for name, felt in own.felt.items():
        other = in_copy.felt.get(name, ())
        same = len(other) == len(felt) and all(
            a.shape == b.shape for a, b in zip(felt, other, strict=True)
        )
        if same and any(bool((b & ~a).any()) for a, b in zip(felt, other, strict=True)):
            lost.append(name)
    name = "edits of every position and head reach the logits"
    if lost:
        text = f"edits of some entries are ignored, unlike in a fresh copy: {listed(lost)}"
        yield Check("hooks", name, "failed", text, locations=lost)
    else:
        yield Check("hooks", name, "passed", "as many as in a fresh copy")


def edited_rows(
    bench: Bench,
    model: Any,
    points: Mapping[str, Any],
    recorded: Recorded,
    plain: Tensor,
    tolerance: float,
) -> dict[str, bool]:
    """Whether edits reach the logits, for each kind of hook point that has an axis of rows.

    One row of the batch is assigned to each kind; there all hook points of the kind get NaN. Kinds
    without effect then get large numbers. Values that are not floating-point are skipped.
    """
    kinds: dict[str, list[str]] = {}
    for name, value in recorded.values.items():
        rowwise = value.ndim > 0 and len(value) == len(bench.tokens)
        if name in points and rowwise and value.is_floating_point():
            kinds.setdefault(kind_of(name), []).append(name)
    reached: dict[str, bool] = {}
    for spoil in (_to_nan, _to_large):  # some models replace NaN by zero
        names = [kind for kind in kinds if not reached.get(kind)]
        for start in range(0, len(names), ROWS):
            group = names[start : start + ROWS]
            at = [
                (points[name], _in_row(row, spoil))
                for row, kind in enumerate(group)
                for name in kinds[kind]
            ]
            logits = bench.run(model, at=at)
            for row, kind in enumerate(group):
                reached[kind] = not bool((logits[row] - plain[row]).abs().max() <= tolerance)
    return reached


def _to_nan(value: Tensor) -> Tensor:
    return torch.full_like(value, torch.nan)


def _to_large(value: Tensor) -> Tensor:
    """Numbers of alternating sign, ten times as large as any in the value."""
    signs = torch.ones(value.numel(), device=value.device)
    signs[::2] = -1
    finite = value.nan_to_num(posinf=0, neginf=0)
    size = 10 * finite.abs().max().clamp_min(1)
    return value + (size * signs.reshape(value.shape)).to(value.dtype)


def _in_row(row: int, spoil: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    def edit(value: Any, hook: Any) -> Any:
        if not isinstance(value, Tensor):
            return None
        value = value.clone()
        value[row] = spoil(value[row])
        return value

    return edit


def _promised(model: Model, name: str, tokens: Tensor) -> tuple[tuple[int | None, ...], ...]:
    """The shapes that a hook point's name implies; empty if it implies none."""
    cfg, last = model.cfg, name.rpartition(".")[2]
    batch, pos = tokens.shape
    d_model, d_head, heads = int(cfg.d_model), int(cfg.d_head), int(cfg.n_heads)
    few = int(getattr(cfg, "n_key_value_heads", None) or heads)
    if re.fullmatch(r"hook_(embed|resid_(pre|mid|post)|attn_out|mlp_out)", last):
        return ((batch, pos, d_model),)
    if ".attn.hook_" not in name:
        return ()
    if last in ("hook_q", "hook_z"):
        return ((batch, pos, heads, d_head),)
    if last in ("hook_k", "hook_v"):
        return ((batch, pos, few, d_head), (batch, pos, heads, d_head))
    if last in ("hook_pattern", "hook_attn_scores"):
        return ((batch, heads, pos, pos),)
    return ()


def check_firing(
    model: Model,
    points: Mapping[str, Any],
    recorded: Recorded,
    fresh: Recorded | None,
    tokens: Tensor,
) -> Iterator[Check]:
    """Do all hook points fire, once per pass, and with the shapes that their names imply?"""
    gated: dict[str, list[str]] = {}
    silent = [name for name in points if name not in recorded.fired]
    for name in silent:
        gate = silencer(model, name)
        if gate is not None:
            gated.setdefault(gate, []).append(name)
    shut = {name for names in gated.values() for name in names}
    for gate, names in gated.items():
        yield Check(
            "hooks",
            f"{kind_of(names[0])} fires",
            "differs",
            f"silent until model.set_{gate}(True)",
            locations=names,
            instead=INSTEAD.get(names[0].rpartition(".")[2]),
        )
    if "hook_pos_embed" in silent and _positions_elsewhere(model):
        shut.add("hook_pos_embed")
        yield Check(
            "hooks",
            "hook_pos_embed fires",
            "differs",
            "silent: positions are not added to the residual stream",
            locations=["hook_pos_embed"],
            instead="hook_q and hook_k",
        )
    rest = [name for name in silent if name not in shut]
    also = None if fresh is None else [n for n in rest if n not in fresh.fired]
    yield from _by_kind(
        model, rest, also, "fires", "never fires", [n for n in points if n in recorded.fired]
    )
    yield from _once(model, points, recorded, fresh)
    yield _shapes(model, recorded, fresh, tokens)


def _once(
    model: Model, points: Mapping[str, Any], recorded: Recorded, fresh: Recorded | None
) -> Iterator[Check]:
    """Does a hook point that fires do so once per pass, so that an edit is made once?"""
    in_copy = {} if fresh is None else fresh.fired
    fired = {name: recorded.fired[name] for name in points if name in recorded.fired}
    bad = [name for name, times in fired.items() if not times == in_copy.get(name, times) == 1]
    also = None if fresh is None else [name for name in bad if in_copy.get(name) == fired[name]]
    counts = sorted({fired[name] for name in bad})
    fault = f"fires {' or '.join(map(str, counts))} times a pass, an edit is made each time"
    yield from _by_kind(model, bad, also, "fires once", fault, [n for n in fired if n not in bad])


def _positions_elsewhere(model: Model) -> bool:
    kind = getattr(model.cfg, "positional_embedding_type", "standard")
    return kind in ("rotary", "alibi", "none", "relative_positional_bias")


def _by_kind(
    model: Model,
    bad: list[str],
    also: list[str] | None,
    requirement: str,
    fault: str,
    good: list[str],
) -> Iterator[Check]:
    """The hook points that fail a requirement, a check per kind; one check for all others."""
    kinds: dict[str, list[str]] = {}
    for name in bad:
        kinds.setdefault(kind_of(name), []).append(name)
    for kind, names in kinds.items():
        last = kind.rpartition(".")[2]
        instead = INSTEAD.get(kind) or INSTEAD.get(last)
        own = [name for name in names if also is not None and name not in also]
        no_mlp = last == "hook_mlp_out" and getattr(model.cfg, "attn_only", False)
        of_attention = kind.startswith(("attn.", "mlp.")) or kind == last
        core = last in CORE and not no_mlp and of_attention  # others' may be the library's design
        core = core and (also is None or not hasattr(model, "original_model"))
        answer: Answer = "differs"
        text, where = f"{fault}, in a fresh copy of this model too", names
        if own or core or isinstance(model, Transformer):
            answer, where = "failed", own or names
            text = f"{fault}: {listed(where)}"
        elif also is None:
            answer = "undecided"
            text = f"{fault}; without a fresh copy it is unknown whether that is by design"
        name = f"{kind} {requirement}"
        yield Check("hooks", name, answer, text, locations=where, instead=instead)
    words = {"fires": "fire", "fires once": "fire once", "reaches": "are connected to the logits"}
    word = words[requirement]
    if good:
        yield Check("hooks", f"hook points {word}", "passed", f"{len(good)} {word}")


def _shapes(model: Model, recorded: Recorded, fresh: Recorded | None, tokens: Tensor) -> Check:
    wrong, different = [], []
    for name, value in recorded.values.items():
        promised = _promised(model, name, tokens)
        if promised and tuple(value.shape) not in promised:
            wrong.append(name)
        other = None if fresh is None else fresh.values.get(name)
        if other is not None and other.shape != value.shape:
            different.append(name)
    bridge = hasattr(model, "original_model")
    faults = different or ([] if bridge and fresh is not None else wrong)
    if faults:
        shape = list(recorded.values[faults[0]].shape)
        return Check(
            "hooks",
            "activations have the documented shapes",
            "failed",
            f"{listed(faults)}: {shape}",
            locations=faults,
        )
    if wrong:
        return Check(
            "hooks",
            "activations have the documented shapes",
            "differs",
            f"{listed(wrong)}: {list(recorded.values[wrong[0]].shape)}, in a fresh copy too",
            locations=wrong,
        )
    return Check(
        "hooks",
        "activations have the documented shapes",
        "passed",
        f"{len(recorded.values)} tensors",
    )


def check_reach(
    model: Model,
    linked: Mapping[str, bool],
    linked_fresh: Mapping[str, bool] | None,
    rows: Mapping[str, bool],
) -> Iterator[Check]:
    """Do edits at every hook point reach the logits?

    Edits count as ignored at hook points from which no gradient reaches the logits. An exception is
    a kind of hook point of which none has such a gradient, if NaN or large values there changed the
    logits.
    """
    thrown = [n for n, joined in linked.items() if not joined and not rows.get(kind_of(n), False)]
    mixed = [n for n, joined in linked.items() if not joined and n not in thrown]
    alone = [n for n in mixed if not all(not linked[m] for m in linked if kind_of(m) == kind_of(n))]
    bad = thrown + alone  # an edit of this kind in another layer is no evidence for this layer
    also = None
    if linked_fresh is not None:
        also = [name for name in bad if not linked_fresh.get(name, False)]
    good = [name for name in linked if name not in bad]
    yield from _by_kind(model, bad, also, "reaches", "edits are ignored", good)
    unfelt = [
        kind
        for kind, felt in rows.items()
        if not felt and any(kind_of(name) == kind for name in good)
    ]
    if unfelt:
        reason = f"NaN and large numbers at {listed(unfelt)} change no logit of these rows"
        yield Check("hooks", "edits change the logits", "undecided", reason)
    made = sum(rows.values())
    if made:
        text = f"NaN or large values at {made} kinds of hook point, one kind per prompt"
        yield Check("hooks", "edits change the logits", "passed", text)
