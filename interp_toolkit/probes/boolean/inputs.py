"""Inputs of the analysis of a boolean function: prompts, labels, hook points, positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from interp_toolkit.data import FeatureData, truth_table
from interp_toolkit.errors import InputError
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.features.samples import equal_inputs, equal_up_to, joined
from interp_toolkit.options import Position
from interp_toolkit.probes.boolean.sites import SAMPLED_FROM, function_name
from interp_toolkit.probes.estimators.truth_tables import check_table, truth_values

DEFAULT_HOOKS = ("blocks.*.hook_resid_mid", "blocks.*.hook_resid_post")


def prompts_for(
    model: Any,
    table: str,
    data: FeatureData | None,
    tokens: Mapping[str, int] | None,
    layout: Sequence[str] | None,
) -> FeatureData:
    """The prompts to analyze: the data, or the truth table of the tokens or of the model's task.

    Raises InputError if there are none, or if both data and tokens are present.
    """
    if data is not None:
        if tokens is not None or layout is not None:
            raise InputError("--tokens and --layout make prompts; leave them out with --data")
        return data
    task = record_of(model).task
    if tokens is None and task is None:
        raise InputError(
            "no data: this model records no task, so give the prompt's token ids "
            "(--tokens 0=5,1=7,query=9) or a file of labeled prompts (--data FILE)"
        )
    chosen: dict[str, Any] = {"tokens": tokens} if tokens is not None else dict(task or {})
    if layout is not None:
        chosen["layout"] = list(layout)
    elif "layout" not in chosen and len(table) != 4:
        n_features = len(table).bit_length() - 1
        chosen["layout"] = [*"abcdefghijklmnop"[:n_features], "query"]
    return truth_table(chosen, d_vocab=getattr(model.cfg, "d_vocab", None))


def labels_of(
    table: str, features: Bool[np.ndarray, "n k"], data: FeatureData
) -> Bool[np.ndarray, " n"]:
    """The value of the function on each row.

    Raises InputError if the number of columns is not the table's, or all rows have one value.
    """
    n_features = check_table(table)
    if not features.shape[1]:
        raise InputError(
            f"{data.source}: there is no feature column, and {function_name(table)} takes "
            f"{n_features}"
        )
    if features.shape[1] != n_features:
        raise InputError(
            f"{function_name(table)} takes {n_features} features; {data.source} has "
            f"{features.shape[1]} ({', '.join(data.names)}): choose with --column, once for each"
        )
    y = truth_values(table, features)
    if y.all() or not y.any():
        raise InputError(
            f"{function_name(table)} is {'true' if y.all() else 'false'} on all {len(y)} rows of "
            f"{data.source}: a probe needs rows of both classes"
        )
    return y


def groups_of(data: FeatureData) -> Any:
    """The rows' groups; raises InputError if there is only one, which cannot be held out."""
    if data.groups is None:
        return None
    groups = np.asarray(data.groups)
    if len(np.unique(groups)) == 1:
        raise InputError(
            f"{data.source}: all rows are of one group, so no group can be held out; leave out "
            "the group column to split by rows"
        )
    return groups


def equal_inputs_at(
    model: Any, data: FeatureData, position: int | None, X: Float[np.ndarray, "n d"]
) -> Int[np.ndarray, " n"]:
    """Groups of rows that a site at this position cannot distinguish by their tokens.

    Rows of equal activations are joined too, provided that enough groups remain to hold some out.
    If fewer remain, the model may have merged different prompts, which is itself a finding.
    """
    own = np.full(len(data), -1) if data.positions is None else data.positions
    causal = getattr(model.cfg, "attention_dir", "causal") != "bidirectional"
    positions = own if position is None else np.full(len(data), position)
    equal = equal_up_to(list(data.tokens), positions, causal=causal)
    merged = joined(equal, equal_inputs(X))
    return merged if merged.max() + 1 >= SAMPLED_FROM else equal


def groups_with(equal: Int[np.ndarray, " n"], groups: Any) -> Any:
    """The data's groups joined with equal inputs; None if there are no groups and no equal rows."""
    if len(np.unique(equal)) == len(equal):
        return groups
    return equal if groups is None else joined(equal, np.unique(groups, return_inverse=True)[1])


def readable_hooks(hooks: list[str], requested: str | Sequence[str] | None) -> list[str]:
    """Drop attention scores matched only by a pattern: they are -inf where masked."""
    named = [requested] if isinstance(requested, str) else list(requested or ())
    readable = [h for h in hooks if not h.endswith("hook_attn_scores") or h in named]
    return readable or hooks


def default_hooks(model: Any) -> list[str]:
    """The residual stream after each attention and block, as far as the model has these hooks."""
    hooks = list(model.hook_dict)
    mids = [h for h in hooks if h.startswith("blocks.") and h.endswith(".hook_resid_mid")]
    return list(DEFAULT_HOOKS) if mids else [DEFAULT_HOOKS[1]]


def positions_of(data: FeatureData, position: Position | None) -> list[int | None]:
    """Positions as columns of tokens; None stands for each row's own position if they differ."""
    lengths = set(data.lengths.tolist())
    if position == "all":
        if len(lengths) != 1:
            raise InputError("--position all needs prompts of one length; give one position")
        return list(range(lengths.pop()))
    if position is not None:
        shortest = min(lengths)
        if not -shortest <= position < shortest:
            raise InputError(
                f"position {position} is outside the shortest prompt, which has {shortest} tokens"
            )
        return [position % shortest if len(lengths) == 1 else position]
    if data.positions is not None:
        chosen = {int(p) for p in data.positions}
        return [chosen.pop()] if len(chosen) == 1 else [None]
    return [lengths.pop() - 1] if len(lengths) == 1 else [None]
