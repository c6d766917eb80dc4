"""Names of hook points: one name for each, for every kind of model.

A `TransformerBridge` lists one hook point under several names (`blocks.0.hook_in`,
`blocks.0.hook_resid_pre`). Here each has one, the usual TransformerLens name: the alias that is not
a plain `hook_in`/`hook_out`, then the shortest path.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor, nn

from interp_toolkit.errors import InputError, a_kind
from interp_toolkit.models.model import Model, check_model

#: hook points that fire only if a setting of the model is on
GATES = {
    "hook_result": "use_attn_result",
    "hook_q_input": "use_split_qkv_input",
    "hook_k_input": "use_split_qkv_input",
    "hook_v_input": "use_split_qkv_input",
    "hook_attn_in": "use_attn_in",
    "hook_mlp_in": "use_hook_mlp_in",
}


#: the order of a block's hook points in a forward pass, by the start or end of their names
_ORDER = (
    *("hook_resid_pre", "ln1.", "hook_attn_in", "hook_q_input", "hook_k_input", "hook_v_input"),
    *("hook_q", "hook_k", "hook_v", "hook_rot_q", "hook_rot_k", "hook_attn_scores"),
    *("hook_pattern", "hook_z", "hook_result", "ln1_post.", "hook_attn_out", "hook_resid_mid"),
    *("ln2.", "hook_mlp_in", "hook_pre", "hook_pre_linear", "hook_mid", "hook_post", "ln2_post."),
    *("hook_mlp_out", "hook_resid_post"),
)


def has_hooks(point: nn.Module) -> bool:
    """Whether anything is attached to a hook point, by TransformerLens or by PyTorch."""
    return bool(
        point._forward_hooks
        or point._backward_hooks
        or point._forward_pre_hooks
        or point._backward_pre_hooks
    )


def store_in(values: dict[str, Tensor], name: str) -> Callable[..., None]:
    """A hook that stores a copy of the value, if it is a tensor."""

    def keep(value: Any, hook: Any) -> None:
        if isinstance(value, Tensor):
            values[name] = value.detach().clone()

    return keep


def hook_points(model: Model) -> Mapping[str, Any]:
    """Every name of the model's hook points, aliases included.

    Raises InputError for an object without hook points.
    """
    check_model(model)
    points = model.hook_dict
    if not isinstance(points, Mapping) or not points:
        raise InputError(
            f"{a_kind(model)} has no hook points; give a HookedTransformer, a "
            "TransformerBridge or a model that interp_toolkit.load returned"
        )
    return points


def expand_hooks(model: Model, patterns: str | Iterable[str]) -> list[str]:
    """The hook points that match any of the patterns, each once, in the order of a forward pass.

    A pattern is a name (`blocks.0.hook_resid_post`; an alias is kept as written), a shell
    pattern (`blocks.*.hook_resid_post`), or a bare name (`resid_post`: that hook in every layer).
    Patterns do not match hook points that a setting of the model silences.

    Raises:
        InputError: a pattern matches nothing, or names a silenced hook point.
    """
    points = hook_points(model)
    names = one_name_each(points)
    patterns = [patterns] if isinstance(patterns, str) else list(patterns)
    chosen: dict[int, str] = {}
    for pattern in patterns:
        if pattern in points:
            _refuse_silenced(model, pattern)
            matches = [pattern]
        else:
            matches = [n for n in names if _matches(n, pattern) and silencer(model, n) is None]
        if not matches:
            raise InputError(_no_match(pattern, names))
        for name in matches:
            chosen.setdefault(id(points[name]), name)
    if not chosen:
        raise InputError("give at least one hook")
    order = {id(points[name]): rank for rank, name in enumerate(names)}
    return [chosen[point] for point in sorted(chosen, key=order.__getitem__)]


def layer_of(hook: str) -> int | None:
    """The layer a hook point belongs to; None for those outside the blocks."""
    match = re.match(r"blocks\.(\d+)\.", hook)
    return int(match[1]) if match else None


def silencer(model: Model, hook: str) -> str | None:
    """The setting of the model that keeps this hook point from firing; None if it fires."""
    gate = GATES.get(hook.rpartition(".")[2])
    if gate is None or not hasattr(model.cfg, gate):
        return None
    return None if getattr(model.cfg, gate) else gate


def one_name_each(points: Mapping[str, Any]) -> list[str]:
    """The usual name of each hook point, in the order of a forward pass."""
    best: dict[int, str] = {}
    first_names: dict[int, int] = {}
    for rank, (name, point) in enumerate(points.items()):
        first_names.setdefault(id(point), rank)
        if id(point) not in best or _preference(name) < _preference(best[id(point)]):
            best[id(point)] = name
    ordered = sorted(best, key=lambda p: (_depth(best[p]), _stage(best[p]), first_names[p]))
    return [best[point] for point in ordered]


def _depth(name: str) -> float:
    """A hook point's position in the model: embeddings, blocks by layer, then the end."""
    layer = layer_of(name)
    if layer is not None:
        return float(layer)
    return float("inf") if re.match(r"ln_final|unembed|hook_unembed", name) else -1.0


def _stage(name: str) -> int:
    """A hook point's place in its block; those of bridges not in _ORDER have that of `hook_q`."""
    if layer_of(name) is None:
        return 0
    _, _, *path, last = name.split(".")
    keys = [last, *(f"{part}." for part in path)]
    return next((_ORDER.index(key) for key in keys if key in _ORDER), _ORDER.index("hook_q"))


def _preference(name: str) -> tuple[bool, int, str]:
    return name.rpartition(".")[2] in ("hook_in", "hook_out"), name.count("."), name


def _matches(name: str, pattern: str) -> bool:
    last = name.rpartition(".")[2]
    return fnmatchcase(name, pattern) or last in (pattern, f"hook_{pattern}")


def _refuse_silenced(model: Model, hook: str) -> None:
    setting = silencer(model, hook)
    if setting is not None:
        raise InputError(f"hook {hook} does not fire until model.set_{setting}(True) is called")


def _no_match(pattern: str, names: list[str]) -> str:
    bare = {n.rpartition(".")[2].removeprefix("hook_") for n in names}
    near = difflib.get_close_matches(pattern, [*names, *sorted(bare)], n=3, cutoff=0.5)
    hint = f"; did you mean {', '.join(near)}?" if near else f"; this model has {names[0]} ..."
    return f"no hook matches {pattern!r}{hint}"
