"""All hook points are there, and nothing is on them before the doctor comes.

Both are read off the model and a fresh copy of it, without a pass: a name that the copy lists and
the model does not, and a hook that is on the model and not on the copy (some bridges put hooks on
their own hook points).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interp_toolkit.diagnosis.checks import Check, listed
from interp_toolkit.models.running.hooks import hook_points, one_name_each

FREE = "no hook was there before"
THERE = "every hook point is there"


def hooks_on(points: Mapping[str, Any]) -> dict[str, int]:
    """The number of hooks on each hook point that has any, of TransformerLens or of PyTorch."""
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
    """Was anything on the hook points before?

    A fault where the model shows other values than a fresh copy, which has no such hooks.

    Args:
        left: what was on the model's and is not on a fresh copy's.
        asked_fresh: whether there is a copy.
        same: whether the copy shows the same values and gives the same logits.
    """
    if not left:
        return Check("hooks", FREE, "passed", "nothing is on any hook point")
    count, names = sum(left.values()), list(left)
    text = (
        f"{count} hook{'s were' if count > 1 else ' was'} already on the model at {listed(names)}"
    )
    instead = "model.reset_hooks(including_permanent=True)"
    if not asked_fresh:
        reason = f"{text}; no fresh copy could be asked whether the class puts them there"
        return Check("hooks", FREE, "undecided", reason, places=names, instead=instead)
    if same:
        text = f"{text}, which changes nothing on the probe"
        return Check("hooks", FREE, "differs", text, places=names, instead=instead)
    text = f"{text}; a fresh copy without shows other values"
    return Check("hooks", FREE, "failed", text, places=names, instead=instead)


def check_there(model: Any, fresh: Any) -> Check:
    """Does the model list every hook point, under every name, that a fresh copy of it lists?"""
    own, in_copy = hook_points(model), hook_points(fresh)
    usual = one_name_each(in_copy)
    missing = [name for name in dict.fromkeys([*usual, *in_copy]) if name not in own]
    if missing:
        text = f"not in hook_dict, in a fresh copy they are: {listed(missing)}"
        return Check("hooks", THERE, "failed", text, places=missing)
    return Check("hooks", THERE, "passed", f"the {len(usual)} of a fresh copy")
