"""Measures of every head on every prompt: attention beyond controls, and what the head writes.

The measures have the names that `kinds` uses. Attention is a fraction of the query's attention,
direct effects are in logits (see `reading`), and `quiet` is 1 minus a ratio of norms.

Attention to target positions is compared with two controls:
- like: other earlier positions of the same prompt within `NEAR` of the targets (all others, where
  none is so near), except the first position, where attention is often parked;
- displaced: the target positions of the *other* prompts. A head that attends by position alone
  attends equally to these. Where all prompts have their targets at the same positions, there is no
  such control, and positions and tokens are confounded.

A contrast is the attention paid to the targets, less the control's mean attention per position
times the number of targets; 0 means no preference.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.circuits.roles.permuted import asked_alone, permuted_means
from interp_toolkit.circuits.roles.reading import (
    Queries,
    Reading,
    Writing,
    mean_of_others,
    preference,
    preferred,
)
from interp_toolkit.circuits.roles.token_lists import Successions

NEAR = 3  # steps

Attention = Float[np.ndarray, "*some query pos"]


def against_like(
    attention: Attention, queries: Queries, targets: Bool[np.ndarray, "query pos"]
) -> Float[np.ndarray, "*some query"]:
    """Attention to the targets beyond attention to similar positions; NaN if a set is empty."""
    others = queries.earlier & ~targets
    others[:, 0] = False
    near = np.zeros_like(targets)
    for step in range(1, NEAR + 1):
        near[:, step:] |= targets[:, :-step]
        near[:, :-step] |= targets[:, step:]
    near &= others
    control = np.where(near.any(1, keepdims=True), near, others)
    return against(attention, targets, control.astype(float))


def against_displaced(
    attention: Attention, queries: Queries, targets: Bool[np.ndarray, "query pos"]
) -> Float[np.ndarray, "*some query"]:
    """Attention to the targets beyond attention to other prompts' targets; NaN without targets."""
    slot = np.arange(len(queries)) % queries.slots
    row = np.arange(len(queries)) // queries.slots
    control = np.zeros(targets.shape)
    for query in range(len(queries)):
        displaced = targets[(slot == slot[query]) & (row != row[query])]
        moved = displaced & ~targets[query] & queries.earlier[query]
        moved = moved[moved.any(1)]
        if len(moved):
            control[query] = (moved / moved.sum(1, keepdims=True)).mean(0)
    return against(attention, targets, control)


def against(
    attention: Attention,
    targets: Bool[np.ndarray, "query pos"],
    control: Float[np.ndarray, "query pos"],
) -> Float[np.ndarray, "*some query"]:
    """Attention to the targets minus their number times the control's mean; NaN if one is empty."""
    count, size = targets.sum(1), control.sum(1)
    defined = (count > 0) & (size > 0)
    weight = targets - control * (count / np.where(size > 0, size, 1))[:, None]
    difference: np.ndarray = np.einsum("...ap,ap->...a", attention, weight)
    return np.where(defined, difference, np.nan)


OfRows = Float[np.ndarray, "layer head row"]
Permuted = tuple[Float[np.ndarray, "*some head order"], float]


@dataclass(frozen=True, eq=False)
class HeadMeasures:
    """All measures of all heads.

    Attributes:
        of_rows: one number per prompt for each measure; NaN where it is undefined.
        permuted: means with permuted answers, and the smallest p-value that these can give, for
            measures of what depends on the answer.
        difference: the model's logit difference, answer minus wrong answer.
    """

    of_rows: Mapping[str, OfRows]
    permuted: Mapping[str, Permuted]
    difference: Float[np.ndarray, " row"]


def answer_sources(queries: Queries) -> Bool[np.ndarray, "source query pos"]:
    """Positions whose values are read: those of the answer, and of the wrong answer."""
    wrong = (
        np.zeros_like(queries.earlier) if queries.wrong is None else queries.holding(queries.wrong)
    )
    return np.stack([queries.holding(queries.answer), wrong])


def measured(
    writing: Writing,
    follows: Successions,
    delimiters: Bool[np.ndarray, "query pos"] | None,
    seed: int = 0,
) -> HeadMeasures:
    """All measures that are defined on these prompts; `seed` is that of the permutations."""
    queries, reading = writing.queries, writing.reading
    of_queries = _attention(queries, reading, follows, delimiters)
    parts: dict[str, list[np.ndarray]] = {}
    dealt: dict[str, list[Permuted]] = {}
    for layer in range(writing.view.n_layers):
        measures, permuted = _of_layer(writing, follows, layer, seed)
        for name, values in measures.items():
            parts.setdefault(name, []).append(values)
        for name, means in permuted.items():
            dealt.setdefault(name, []).append(means)
    of_queries |= {name: np.stack(values) for name, values in parts.items()}
    of_rows = {name: queries.by_row(values) for name, values in of_queries.items()}
    whole = {
        name: (np.stack([means for means, _ in layers]), max(smallest for _, smallest in layers))
        for name, layers in dealt.items()
    }
    return HeadMeasures(of_rows, whole, queries.by_row(writing.difference()))


def _attention(
    queries: Queries,
    reading: Reading,
    follows: Successions,
    delimiters: Bool[np.ndarray, "query pos"] | None,
) -> dict[str, Float[np.ndarray, "layer head query"]]:
    attention = {}
    targets = {"answer": queries.holding(queries.answer)}
    if queries.wrong is not None:
        targets["repeat"] = queries.last_repeat(queries.wrong)
    if follows.is_successor.any():
        targets["before"] = queries.holding(follows.before)
    if delimiters is not None:
        targets["delimiter"] = delimiters
    for name, positions in targets.items():
        attention[f"{name}: attention"] = against_like(reading.attention, queries, positions)
        attention[f"{name}: attention, displaced"] = against_displaced(
            reading.attention, queries, positions
        )
    first = queries.first()
    others = (queries.earlier & ~first).astype(float)
    attention["first: attention"] = against(reading.attention, first, others)
    for name, parked in (("first", first), ("delimiter", delimiters)):
        if parked is not None:
            attention[f"{name}: quiet"] = _quiet(queries, reading, parked)
    return attention


def _quiet(
    queries: Queries, reading: Reading, positions: Bool[np.ndarray, "query pos"]
) -> Float[np.ndarray, "layer head query"]:
    """1 minus (norm of the output from these positions / norm from other positions)."""
    visible = np.arange(positions.shape[1]) <= queries.position[:, None]
    others = visible & ~positions
    paid = np.einsum("...ap,...ap,ap->...a", reading.attention, reading.reach, positions)
    with np.errstate(invalid="ignore", divide="ignore"):
        elsewhere = np.einsum("...ap,ap->...a", reading.reach, others) / others.sum(1)
        quiet: np.ndarray = np.where(positions.any(1), 1 - paid / elsewhere, np.nan)
    return np.where(np.isfinite(quiet), quiet, np.nan)


def _of_layer(
    writing: Writing, follows: Successions, layer: int, seed: int
) -> tuple[dict[str, Float[np.ndarray, "head query"]], dict[str, Permuted]]:
    queries, reading, hand = writing.queries, writing.reading, writing.queries.at_hand
    written = writing.of_heads(layer, reading.z[layer])
    on_hand = writing.on(written, hand)
    measures = {
        "direct": preference(on_hand, hand, queries).T,
        "copies": _copies(writing, layer).T,
    }
    if follows.is_successor.any():
        for name, values in _next(writing, follows, written).items():
            measures[name] = values.T
    suppressed, tokens, predicted = _suppressed(writing, layer, written)
    asked = {
        "direct, displaced": (on_hand, preferred(hand, queries)),
        "predicted: written, displaced": (writing.on(written, tokens), predicted),
    }
    permuted = {}
    for name, (logits, weights) in asked.items():
        effects = logits * writing.common_scale[:, None, None], weights, queries.slots
        measures[name] = asked_alone(*effects).T
        permuted[name] = permuted_means(*effects, seed)
    return measures | suppressed, permuted


def _copies(writing: Writing, layer: int) -> Float[np.ndarray, "query head"]:
    """Effect of attending to the (wrong) answer on its own logit, relative to most other logits.

    The reference is the median, not the mean: a head that raises one *other* token lowers no token,
    and one that lowers another token copies none.
    """
    queries, hand = writing.queries, writing.queries.at_hand
    wrong = queries.answer if queries.wrong is None else queries.wrong
    parts = []
    for positions, values, own in zip(
        answer_sources(queries),
        writing.reading.sources[:, layer],
        (queries.answer, wrong),
        strict=True,
    ):
        on_hand = writing.on(writing.of_heads(layer, values), hand)
        column = np.searchsorted(hand, own)[:, None, None]
        others = np.where((hand == own[:, None])[:, None], np.nan, on_hand)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # no token may be left
            rise = np.take_along_axis(on_hand, column, 2)[..., 0] - np.nanmedian(others, axis=2)
        parts.append(np.where(positions.any(1)[:, None], rise, np.nan))
    stacked = np.stack(parts)
    defined = ~np.isnan(stacked)
    with np.errstate(invalid="ignore"):
        mean: np.ndarray = np.where(defined, stacked, 0).sum(0) / defined.sum(0)
    return mean


def _next(
    writing: Writing, follows: Successions, written: Float[Tensor, "query head d_model"]
) -> dict[str, Float[np.ndarray, "query head"]]:
    """Effect on the successor's logit, relative to its list and to the preceding token."""
    queries = writing.queries
    shape = (len(queries), writing.view.n_heads)
    on_list, on_before = (np.full(shape, np.nan) for _ in range(2))
    for number, members in enumerate(follows.lists):
        chosen = follows.which == number
        order = np.argsort(members)
        effects = writing.on(written[chosen], members)
        columns = [
            order[np.searchsorted(members, ids[chosen], sorter=order)]
            for ids in (queries.answer, follows.before)
        ]
        own, before = (np.take_along_axis(effects, c[:, None, None], 2)[..., 0] for c in columns)
        on_list[chosen] = own - mean_of_others(effects, [queries.answer[chosen]], members)
        on_before[chosen] = own - before
    return {"next, of its list": on_list, "next, over the one before": on_before}


def _suppressed(
    writing: Writing, layer: int, written: Float[Tensor, "query head d_model"]
) -> tuple[
    dict[str, Float[np.ndarray, "head query"]],
    Int[np.ndarray, " token"],
    Float[np.ndarray, "query token"],
]:
    """Attention to the token that the logit lens already predicts, and the effect on its logit.

    Also the tokens that are predicted in some prompt, and 1 at each query's own; NaN without one.
    """
    queries, reading = writing.queries, writing.reading
    number = np.arange(len(queries))
    candidates = candidate_positions(queries)
    lens = np.where(candidates, writing.lens(layer), -np.inf)
    top = np.where(candidates.any(1), queries.tokens[number, lens.argmax(1)], -1)
    positions = queries.holding(top) & candidates
    attention = reading.attention[layer]
    effects = writing.on_own(written, queries.tokens)
    others = candidates & ~positions
    measures = {
        "predicted: attention": against_like(attention, queries, positions),
        "predicted: attention, displaced": against_displaced(attention, queries, positions),
        "predicted: written": _mean_at(effects, positions) - _mean_at(effects, others),
    }
    tokens = np.unique(top[top >= 0])
    predicted = np.where((top >= 0)[:, None], tokens == top[:, None], np.nan)
    return measures, tokens, predicted


def candidate_positions(queries: Queries) -> Bool[np.ndarray, "query pos"]:
    """Earlier positions, without the first and without those of the query's own token."""
    own = queries.tokens[np.arange(len(queries)), queries.position]
    apart = (queries.tokens != own[:, None]) & (queries.tokens != queries.tokens[:, :1])
    candidates: np.ndarray = queries.earlier & apart
    return candidates


def _mean_at(
    values: Float[np.ndarray, "query head pos"], positions: Bool[np.ndarray, "query pos"]
) -> Float[np.ndarray, "head query"]:
    with np.errstate(invalid="ignore"):
        mean: np.ndarray = np.einsum("ahp,ap->ha", values, positions) / positions.sum(1)
    return mean
