"""Description of every head's attention by named patterns and an unexplained rest.

Detectors test for known types of heads; a description covers every head. The patterns are those of
the detectors, attention to the query itself, to positions a few steps back or ahead, to each
position of a short prompt, and to token ids that occur in most prompts (separators). Patterns are
selected greedily: the next is the one with most attention beyond uniform, over pairs that no
earlier pattern covers. Selection stops when the next pattern would add less than LEAST. The result
describes these prompts and is not a test: it has no p-value. Attention that belongs to two patterns
(such as a separator at the first position) counts for the one selected first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp_toolkit.circuits.heads.controls import targets_of
from interp_toolkit.circuits.heads.detectors import Detector
from interp_toolkit.circuits.heads.patterns import pattern_points
from interp_toolkit.circuits.metrics.prompts import Prompts
from interp_toolkit.formatting import percent
from interp_toolkit.models.loading.formats.headless import NoLogitsError
from interp_toolkit.models.model import Head, Model
from interp_toolkit.models.running.forward import run
from interp_toolkit.models.weights.parts import visible_pairs
from interp_toolkit.models.weights.read import visibility

LEAST = 0.05  # smallest fraction of the attention beyond uniform of a reported pattern
MOST_PATTERNS = 4
ROWS, MOST_PAIRS = 32, 200_000  # prompts, and pairs of query and key in all of them, at most
MOST_POSITIONS = 24  # prompt length up to which each position is a pattern
COMMON = 0.9  # fraction of prompts that contain an id, from which it may be a separator
MOST_IDS = 4
ROUNDING = 1e-9  # of the attention: gains that differ by less are equal
NEAR = 3  # largest distance that is a pattern

Mask = Bool[np.ndarray, "row query key"]


@dataclass(frozen=True)
class Explained:
    """A named pattern and the attention that it explains.

    Attributes:
        relation: name of the pattern.
        share: fraction of the head's attention on pairs that no earlier pattern covers.
        uniform: that fraction under uniform attention.
    """

    relation: str
    share: float
    uniform: float


@dataclass(frozen=True)
class Described:
    """The attention of one head, split into named patterns.

    Attributes:
        head: layer and index of the head.
        shares: patterns in the order of selection, with their fractions of the attention.
        rest: fraction of the attention that no pattern explains.
    """

    head: Head
    shares: Sequence[Explained]
    rest: float

    def phrase(self) -> str:
        """Text such as "previous-token 80 %, rest 20 %"."""
        patterns = [f"{s.relation} {percent(s.share)}" for s in self.shares]
        return (
            ", ".join([*patterns, f"rest {percent(self.rest)}"])
            if patterns
            else "none of the named patterns"
        )


class Descriptions:
    """Descriptions of heads, collected layer by layer.

    Args:
        model: any TransformerLens model whose attention patterns can be read.
        prompts: prompts, of which the first ROWS are used, or fewer long ones.
        detectors: detectors whose patterns are included under their names.
        causal: whether later keys are hidden.

    Attributes:
        n_rows: number of prompts used, from the first on.
        queries: query positions used; a regular subset in long prompts, to save time.
    """

    def __init__(
        self, model: Model, prompts: Prompts, detectors: Sequence[Detector], *, causal: bool
    ):
        self._model, self._prompts = model, prompts
        self.n_rows = min(len(prompts), max(2, min(ROWS, MOST_PAIRS // prompts.n_pos**2)))
        rows = torch.arange(self.n_rows)
        step = math.ceil(self.n_rows * prompts.n_pos**2 / MOST_PAIRS)
        self.queries = slice(step - 1, None, step)
        self._relations = [
            (name, mask[:, self.queries])
            for name, mask in _relations(prompts, detectors, rows, causal=causal)
        ]
        self._masks = np.array([mask.ravel() for _, mask in self._relations], dtype=float)
        self._descriptions: list[Described] = []

    def look(self, pattern: Float[Tensor, "row head query key"], layer: int) -> None:
        """Describe a layer's heads by their patterns on the first prompts, if these are enough."""
        if len(pattern) < self.n_rows:
            return
        values = pattern[: self.n_rows, :, self.queries].double().cpu().numpy()
        visible = visible_pairs(*visibility(self._model, layer), self._prompts.n_pos).numpy()
        visible = visible[self.queries]
        self._descriptions += [
            _described(Head(layer, head), values[:, head], self._relations, self._masks, visible)
            for head in range(values.shape[1])
        ]

    def of_all(self, progress: Callable[[str], None] = lambda step: None) -> list[Described]:
        """Descriptions of every head in order; runs the model if `look` had too few prompts."""

        def hook(layer: int) -> Callable[..., None]:
            # mixing that does not depend on the input has one row
            return lambda value, hook: self.look(
                value.detach().expand(self.n_rows, -1, -1, -1), layer
            )

        if not self._descriptions:
            progress("attention patterns of heads")
            points = pattern_points(self._model)
            with suppress(NoLogitsError):  # all layers have run
                run(
                    self._model,
                    self._prompts.tokens[: self.n_rows],
                    [(point, hook(layer)) for layer, point in points.items()],
                )
        return sorted(self._descriptions, key=lambda described: described.head)


def _described(
    head: Head,
    pattern: Float[np.ndarray, "row query key"],
    relations: Sequence[tuple[str, Mask]],
    masks: Float[np.ndarray, "relation row_query_key"],
    visible: Bool[np.ndarray, "query key"],
) -> Described:
    """Description of one head by greedy selection of patterns; see the module."""
    flat = visible / visible.sum(-1, keepdims=True)
    n_queries = pattern.shape[0] * int((visible.sum(-1) > 1).sum())
    beyond = np.where((visible.sum(-1) > 1)[None, :, None], pattern - flat, 0.0)
    weight = np.where((visible.sum(-1) > 1)[None, :, None], pattern, 0.0)
    free = np.ones(pattern.shape, dtype=bool)
    shares: list[Explained] = []
    while len(shares) < MOST_PATTERNS and n_queries:
        gains = masks @ (beyond * free).ravel() / n_queries
        best = int(np.argmax(gains >= gains.max() - ROUNDING))  # of equal patterns the first
        if gains[best] < LEAST:
            break
        name, mask = relations[best]
        held = mask & free
        share = float((weight * held).sum()) / n_queries
        shares.append(Explained(name, share, share - float(gains[best])))
        free &= ~mask
    rest = float((weight * free).sum()) / max(n_queries, 1)
    return Described(head, tuple(shares), rest)


def _relations(
    prompts: Prompts, detectors: Sequence[Detector], rows: torch.Tensor, *, causal: bool
) -> list[tuple[str, Mask]]:
    """All patterns by name; ties are resolved for the first, so detectors come first."""
    n_pos, tokens = prompts.n_pos, prompts.tokens[rows].numpy()
    visible = visible_pairs("causal" if causal else "bidirectional", None, n_pos).numpy()
    shape = (len(tokens), n_pos, n_pos)
    relations = [(d.name, targets_of(d, prompts, rows, causal=causal)) for d in detectors]
    relations.append(("itself", np.broadcast_to(np.eye(n_pos, dtype=bool), shape)))
    for step in range(1, NEAR + 1):
        relations.append(
            (f"{step} back", np.broadcast_to(np.eye(n_pos, k=-step, dtype=bool), shape))
        )
        if not causal:
            ahead = np.eye(n_pos, k=step, dtype=bool)
            relations.append((f"{step} ahead", np.broadcast_to(ahead, shape)))
    for position in range(n_pos) if n_pos <= MOST_POSITIONS else ():
        held = np.zeros((n_pos, n_pos), dtype=bool)
        held[:, position] = True
        relations.append((f"position {position}", np.broadcast_to(held & visible, shape)))
    ids, counts = np.unique(np.concatenate([np.unique(row) for row in tokens]), return_counts=True)
    common = ids[np.argsort(-counts, kind="stable")][:MOST_IDS]
    for token in common[np.isin(common, ids[counts >= COMMON * len(tokens)])]:
        held = np.broadcast_to((tokens == token)[:, None, :], shape) & visible
        relations.append((f"token {token}", held))
    return relations
