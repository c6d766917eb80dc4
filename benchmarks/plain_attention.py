"""An oracle in plain torch: what attention-only models lose when a relation of attention is cut.

No part of the toolkit is used: the forward pass, the relations and the cut are written again here,
for models without norms, biases and MLPs that know absolute positions. A relation is cut in a head
by taking its attention to the relation's keys away, and giving the head's mean value (over rows and
positions of the intact model) in its place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

Heads = Collection[tuple[int, int]]
ROLLED = 7  # rows by which the displaced control is moved: other tokens stand there


@dataclass(frozen=True)
class Cost:
    """Of cutting a relation in a head, as a share of the behavior (accuracy above chance).

    Attributes:
        alone: lost with this head cut.
        restored: what it alone brings back where the relation is cut in its layer, or in all heads;
            the larger.
        joint: lost with the relation cut in its whole layer, or in all heads; the larger.
        control: as `joint`, at the same places of other rows.
    """

    alone: float
    restored: float
    joint: float
    control: float

    @property
    def largest(self) -> float:
        """Alone or restored."""
        return max(self.alone, self.restored)


def relation_mask(
    name: str, tokens: np.ndarray, answers: np.ndarray, places: np.ndarray
) -> np.ndarray:
    """Where a query sees a target, [row query key], by the words of each relation's definition."""
    n_rows, n_pos = tokens.shape
    held = np.zeros((n_rows, n_pos, n_pos), dtype=bool)
    for row in range(n_rows):
        t = tokens[row]
        asked = dict(zip(places[row].tolist(), answers[row].tolist(), strict=True))
        for q in range(n_pos):
            for k in keys_of(name, t, q, asked.get(q)):
                held[row, q, k] = True
    return held


def keys_of(name: str, t: np.ndarray, q: int, answer: int | None) -> list[int]:
    """A query's targets."""
    alike = [k for k in range(q) if t[k] == t[q]]
    after = [k + 1 for k in alike if k + 1 < q]
    if name == "previous-token":
        return [q - 1] if q else []
    if name == "first-token":
        return [0] if q else []
    if name == "duplicate-token":
        return alike
    if name == "induction":
        return after
    if name == "answer":
        return [k for k in range(q) if t[k] == answer]
    if name == "k-hop":
        if not alike:
            return []
        hop = alike[-1] + 1
        earlier = [k for k in range(hop) if t[k] == t[hop]]
        found = [earlier[-1] + 1] if earlier else []
        return [k for k in found if k < q and k not in alike + after]
    raise ValueError(name)


class PlainModel:
    """An attention-only model, from its weights."""

    def __init__(self, weights: Mapping[str, Tensor], n_layers: int):
        self.w = {name: value.detach() for name, value in weights.items()}
        self.n_layers = n_layers
        self.n_heads = len(self.w["blocks.0.attn.W_Q"])

    def logits(
        self,
        tokens: Tensor,
        heads: Heads = (),
        mask: Tensor | None = None,
        means: list[Tensor] | None = None,
        seen: list[Tensor] | None = None,
        patterns: list[Tensor] | None = None,
    ) -> Tensor:
        """[row pos d_vocab]; `heads` with the attention at `mask` replaced by mean values.

        `seen` is given each layer's mean values, `patterns` its attention.
        """
        n_pos = tokens.shape[1]
        x = self.w["embed.W_E"][tokens] + self.w["pos_embed.W_pos"][:n_pos]
        causal = torch.ones(n_pos, n_pos, dtype=torch.bool).tril()
        for layer in range(self.n_layers):
            part = {m: self.w[f"blocks.{layer}.attn.W_{m}"] for m in "QKVO"}
            q, k, v = (torch.einsum("bpm,hmd->bhpd", x, part[m]) for m in "QKV")
            scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
            pattern = scores.masked_fill(~causal, -torch.inf).softmax(-1)
            if seen is not None:
                seen.append(v.mean(dim=(0, 2)))
            if patterns is not None:
                patterns.append(pattern)
            z = pattern @ v
            for at, head in heads:
                if at == layer and mask is not None and means is not None:
                    left = pattern[:, head].masked_fill(mask, 0.0)
                    taken = (pattern[:, head] - left).sum(-1, keepdim=True)
                    z[:, head] = left @ v[:, head] + taken * means[layer][head]
            x = x + torch.einsum("bhpd,hdm->bpm", z, part["O"])
        return x @ self.w["unembed.W_U"]

    def attention(self, tokens: np.ndarray, mask: np.ndarray) -> dict[tuple[int, int], float]:
        """What each head pays to the places at `mask`, mean over the queries that have some."""
        patterns: list[Tensor] = []
        self.logits(torch.from_numpy(tokens), patterns=patterns)
        held = torch.from_numpy(mask)
        queries = max(int(held.any(-1).sum()), 1)
        paid = [(p * held[:, None]).sum(dim=(0, 2, 3)) / queries for p in patterns]
        return {(n, h): float(x) for n, layer in enumerate(paid) for h, x in enumerate(layer)}


class Oracle:
    """A model on rows with answers."""

    def __init__(self, model: PlainModel, data: object):
        self.model = model
        tokens, answers = data.token_matrix(), data.answers  # type: ignore[attr-defined]
        places = data.answer_positions  # type: ignore[attr-defined]
        self.tokens, self.arrays = torch.from_numpy(tokens), (tokens, answers, places)
        self.answers, self.places = torch.from_numpy(answers), torch.from_numpy(places)
        self.means: list[Tensor] = []
        self.intact = self._right(model.logits(self.tokens, seen=self.means))
        counts = [np.unique(c, return_counts=True)[1].max() / len(c) for c in answers.T]
        overall = np.unique(answers, return_counts=True)[1].max() / answers.size
        self.whole = self.intact - max(float(overall), float(np.mean(counts)))
        self._masks: dict[str, Tensor] = {}
        self._known: dict[tuple[str, frozenset[tuple[int, int]], bool], float] = {}

    def _right(self, logits: Tensor) -> float:
        asked = logits[torch.arange(len(logits))[:, None], self.places]
        return float((asked.argmax(-1) == self.answers).double().mean())

    def lost(self, relation: str, heads: Heads, *, control: bool = False) -> float:
        """Of the behavior, with the relation cut in these heads."""
        key = relation, frozenset(heads), control
        if key not in self._known:
            self._known[key] = self._measure(relation, heads, control) if heads else 0.0
        return self._known[key]

    def _measure(self, relation: str, heads: Heads, control: bool) -> float:
        if relation not in self._masks:
            self._masks[relation] = torch.from_numpy(relation_mask(relation, *self.arrays))
        mask = self._masks[relation]
        if control:
            mask = mask.roll(ROLLED, dims=0) & ~mask
        cut = self._right(self.model.logits(self.tokens, heads, mask, self.means))
        return (self.intact - cut) / self.whole

    def cost(self, relation: str, head: tuple[int, int], group: Heads = ()) -> Cost:
        """What this head's attention to the relation is worth.

        Args:
            relation: which.
            head: layer and number.
            group: further heads to take as all, beside the whole model and the head's layer.
        """
        everyone = {(n, h) for n in range(self.model.n_layers) for h in range(self.model.n_heads)}
        layer = {at for at in everyone if at[0] == head[0]}
        sets = [s for s in (everyone, layer, set(group)) if head in s]
        joint = [self.lost(relation, s) for s in sets]
        without = [self.lost(relation, s - {head}) for s in sets]
        return Cost(
            alone=self.lost(relation, [head]),
            restored=max(j - w for j, w in zip(joint, without, strict=True)),
            joint=max(joint),
            control=max(self.lost(relation, s, control=True) for s in sets),
        )
