"""A head's attention, split into named patterns and an unexplained rest.

Detectors test whether a head has a known pattern. Here every head is described by the patterns it
does have, so that heads of no known type are not passed over. The patterns are the detectors' own,
attention to the query itself, to positions a few steps back or ahead, to each position of a short
prompt, and to token ids that are in most prompts (separators). Greedily, the pattern that holds
most attention beyond uniform, over pairs that no earlier pattern covers, is reported with its
share, until the next would add less than LEAST. This describes these prompts and is not a test: it
has no p-value, and attention that two patterns share (the first position, where a separator
stands) counts for the one reported first.
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
from interp_toolkit.models.loading.formats.headless import NoLogitsError
from interp_toolkit.models.model import Head, Model
from interp_toolkit.models.running.forward import run
from interp_toolkit.models.weights.parts import visible_pairs
from interp_toolkit.models.weights.read import visibility

LEAST = 0.05  # of the attention: share beyond uniform of a relation that is told
MOST_PATTERNS = 4
ROWS, MOST_PAIRS = 32, 200_000  # rows that are looked at; pairs of query and key in all of them
MOST_POSITIONS = 24  # rows longer than this are not described place by place
COMMON = 0.9  # of the rows hold an id: it may be a separator
MOST_IDS = 4
NEAR = 3  # places back or ahead that are relations of their own

Mask = Bool[np.ndarray, "row query key"]


@dataclass(frozen=True)
class Explained:
    """A relation and the attention it explains.

    Attributes:
        relation: in words.
        share: of the head's attention, on places that no relation told before holds.
        uniform: what uniform attention would pay there.
    """

    relation: str
    share: float
    uniform: float


@dataclass(frozen=True)
class Described:
    """The attention of one head, split into named patterns.

    Attributes:
        head: which.
        shares: relations, the one that explains most first.
        rest: of the attention that none of them explains.
    """

    head: Head
    shares: Sequence[Explained]
    rest: float

    def phrase(self) -> str:
        """In a phrase."""
        patterns = [f"{s.relation} {s.share:.0%}" for s in self.shares]
        return (
            ", ".join([*patterns, f"rest {self.rest:.0%}"])
            if patterns
            else "none of the named patterns"
        )


def describe_heads(
    model: Model,
    prompts: Prompts,
    detectors: Sequence[Detector],
    *,
    causal: bool,
    progress: Callable[[str], None] = lambda step: None,
) -> list[Described]:
    """Split the attention of every head on these prompts into named patterns.

    Args:
        model: any TransformerLens model whose patterns can be seen.
        prompts: the rows; the first ROWS are looked at, fewer of long ones.
        detectors: kinds of head, whose relations are told by their names.
        causal: whether later keys are hidden.
        progress: told what is being done.
    """
    return Descriptions(model, prompts, detectors, causal=causal).of_all(progress)


class Descriptions:
    """Descriptions of heads whose patterns pass by; arguments as `describe_heads` takes them.

    Attributes:
        n_rows: how many of the prompts are looked at, the first.
        queries: which positions are; in long prompts every so many, as all pairs take minutes.
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
        self._descriptions: list[Described] = []

    def look(self, pattern: Float[Tensor, "row head query key"], layer: int) -> None:
        """Describe a layer's heads by their patterns on these prompts."""
        values = pattern[:, :, self.queries].double().cpu().numpy()
        values = np.broadcast_to(values, (self.n_rows, *values.shape[1:]))
        visible = visible_pairs(*visibility(self._model, layer), self._prompts.n_pos).numpy()
        visible = visible[self.queries]
        self._descriptions += [
            _described(Head(layer, head), values[:, head], self._relations, visible)
            for head in range(values.shape[1])
        ]

    def of_all(self, progress: Callable[[str], None] = lambda step: None) -> list[Described]:
        """Every head, in order; the model is run where no patterns were shown."""

        def hook(layer: int) -> Callable[..., None]:
            return lambda value, hook: self.look(value.detach(), layer)

        if not self._descriptions:
            progress("attention patterns of heads")
            points = pattern_points(self._model)
            with suppress(NoLogitsError):  # the layers have run all the same
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
    visible: Bool[np.ndarray, "query key"],
) -> Described:
    """Greedily, the relations that hold most attention beyond uniform."""
    flat = visible / visible.sum(-1, keepdims=True)
    n_queries = pattern.shape[0] * int((visible.sum(-1) > 1).sum())
    beyond = np.where((visible.sum(-1) > 1)[None, :, None], pattern - flat, 0.0)
    weight = np.where((visible.sum(-1) > 1)[None, :, None], pattern, 0.0)
    free = np.ones(pattern.shape, dtype=bool)
    shares: list[Explained] = []
    while len(shares) < MOST_PATTERNS and n_queries:
        gains = [float((beyond * (mask & free)).sum()) / n_queries for _, mask in relations]
        best = int(np.argmax(gains)) if gains else 0
        if not gains or gains[best] < LEAST:
            break
        name, mask = relations[best]
        held = mask & free
        share = float((weight * held).sum()) / n_queries
        shares.append(Explained(name, share, share - gains[best]))
        free &= ~mask
    rest = float((weight * free).sum()) / max(n_queries, 1)
    return Described(head, tuple(shares), rest)


def _relations(
    prompts: Prompts, detectors: Sequence[Detector], rows: torch.Tensor, *, causal: bool
) -> list[tuple[str, Mask]]:
    """Every relation by name; of two that explain as much the first is told, so detectors lead."""
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
        relations.append((f"place {position}", np.broadcast_to(held & visible, shape)))
    ids, counts = np.unique(np.concatenate([np.unique(row) for row in tokens]), return_counts=True)
    common = ids[np.argsort(-counts, kind="stable")][:MOST_IDS]
    for token in common[np.isin(common, ids[counts >= COMMON * len(tokens)])]:
        held = np.broadcast_to((tokens == token)[:, None, :], shape) & visible
        relations.append((f"token {token}", held))
    return relations
