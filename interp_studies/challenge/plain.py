"""A separate forward pass that ablates heads and patches single edges, to measure the truth.

It uses no hooks and no analysis of the toolkit, so that the truth is independent of the tools that
are scored. For models without norms, grouped-query attention and rotary positions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.data import FeatureData
from interp_toolkit.models.model import Head
from interp_toolkit.models.transformer.transformer import Transformer

#: of the whole difference between clean and corrupted rows: an edge that moves less does nothing,
#: one that moves more matters; in between it is not clear
NOTHING, CLEARLY = 0.001, 0.02

Edge = tuple[str, str]  # writer, reader with its channel, as EAP-IG names them
Writes = dict[str, Tensor]


class PlainPass:
    """A model's forward pass, computed from its weights alone."""

    def __init__(self, model: Transformer):
        self.cfg = model.cfg
        self.w = {name: value.detach() for name, value in model.state_dict().items()}

    def __call__(
        self,
        tokens: Int[Tensor, "row pos"],
        *,
        cut: Mapping[Head, Tensor] | None = None,
        patched: Collection[Edge] = (),
        there: Writes | None = None,
        writes: Writes | None = None,
    ) -> Float[Tensor, "row pos d_vocab"]:
        """Logits.

        Args:
            tokens: prompts of one length.
            cut: by head: its replaced output, [pos d_model] or [row pos d_model].
            patched: edges whose readers receive the writer's output in `there`.
            there: outputs of nodes on other prompts.
            writes: filled with the output of every node.
        """
        here: Writes = {"input": self._embedded(tokens)}
        stream, cut = here["input"], cut or {}
        for layer in range(self.cfg.n_layers):
            written = []
            for head in range(self.cfg.n_heads):
                name = f"a{layer}.h{head}"
                parts = {c: self._seen(stream, f"{name}<{c}>", here, patched, there) for c in "qkv"}
                out = self._head(parts, layer, head)
                out = cut[Head(layer, head)].expand_as(out) if (layer, head) in cut else out
                written.append((name, out))
            for name, out in written:
                here[name], stream = out, stream + out
            stream = stream + self._get(f"blocks.{layer}.attn.b_O")
            if not self.cfg.attn_only:
                here[f"m{layer}"] = self._mlp(
                    self._seen(stream, f"m{layer}", here, patched, there), layer
                )
                stream = stream + here[f"m{layer}"]
        if writes is not None:
            writes.update(here)
        last = self._seen(stream, "logits", here, patched, there)
        logits: Tensor = last @ self.w["unembed.W_U"] + self._get("unembed.b_U")
        return logits

    def _get(self, name: str) -> Tensor:
        found: Tensor = self.w.get(name, torch.zeros((), dtype=self.cfg.dtype))
        return found

    def _embedded(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.w["embed.W_E"][tokens]
        if "pos_embed.W_pos" in self.w:
            x = x + self.w["pos_embed.W_pos"][: tokens.shape[1]]
        return x

    @staticmethod
    def _seen(
        stream: Tensor, reader: str, here: Writes, patched: Collection[Edge], there: Writes | None
    ) -> Tensor:
        for source, target in patched:
            if target == reader and there is not None:
                stream = stream + there[source] - here[source]
        return stream

    def _head(self, parts: Mapping[str, Tensor], layer: int, head: int) -> Tensor:
        at = f"blocks.{layer}.attn."
        q, k, v = (
            parts[c] @ self.w[f"{at}W_{c.upper()}"][head] + self._bias(f"{at}b_{c.upper()}", head)
            for c in "qkv"
        )
        scores = q @ k.transpose(-1, -2) / (self.cfg.attn_scale if self.cfg.use_attn_scale else 1.0)
        if self.cfg.attention_dir == "causal":
            hidden = torch.ones_like(scores[0], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, -torch.inf)
        out: Tensor = scores.softmax(-1) @ v @ self.w[f"{at}W_O"][head]
        return out

    def _bias(self, name: str, head: int) -> Tensor:
        return self.w[name][head] if name in self.w else self._get(name)

    def _mlp(self, x: Tensor, layer: int) -> Tensor:
        at = f"blocks.{layer}.mlp."
        hidden = (x @ self.w[f"{at}W_in"] + self._get(f"{at}b_in")).relu()
        out: Tensor = hidden @ self.w[f"{at}W_out"] + self._get(f"{at}b_out")
        return out


def accuracy(logits: Float[Tensor, "row pos d_vocab"], data: FeatureData) -> float:
    """Fraction of the answers that have the largest logit."""
    answers, places = _asked(data)
    found = logits[torch.arange(len(logits))[:, None], places].argmax(-1)
    return float((found == answers).double().mean())


def advantage(logits: Float[Tensor, "row pos d_vocab"], data: FeatureData) -> Float[Tensor, " row"]:
    """Mean logit difference between answers and wrong answers, for each prompt."""
    answers, places = _asked(data)
    assert data.wrong is not None
    rows = torch.arange(len(logits))[:, None]
    wrong = torch.from_numpy(data.wrong)
    return (logits[rows, places, answers] - logits[rows, places, wrong]).mean(1)


def without_heads(
    plain: PlainPass, data: FeatureData, heads: Collection[Head]
) -> Float[Tensor, "row pos d_vocab"]:
    """Logits with the outputs of these heads replaced by their mean at each position."""
    tokens = torch.from_numpy(data.token_matrix())
    writes: Writes = {}
    plain(tokens, writes=writes)
    means = {h: writes[f"a{h.layer}.h{h.head}"].mean(0) for h in heads}
    return plain(tokens, cut=means)


@torch.no_grad()
def measured_edges(
    model: Transformer, data: FeatureData, nodes: Collection[str], rows: int = 64
) -> frozenset[str] | None:
    """The edges among these nodes that matter, each patched alone from the corrupted prompts.

    An edge matters if patching it changes the mean logit difference by at least CLEARLY times the
    change from patching everything.

    Args:
        model: the model.
        data: prompts with wrong answers and corrupted prompts.
        nodes: writers in EAP-IG's names, including the input; heads and MLPs are also readers.
        rows: number of prompts to use.

    Returns:
        Names of edges; None if the effect of some edge is neither clearly zero nor clearly large.
    """
    plain, some = PlainPass(model), data.at(np.arange(min(rows, len(data))))
    tokens = torch.from_numpy(some.token_matrix())
    assert some.corrupted is not None
    there: Writes = {}
    corrupted = plain(torch.from_numpy(np.stack(list(some.corrupted))), writes=there)
    clean = advantage(plain(tokens), some)
    whole = float((clean - advantage(corrupted, some)).abs().mean())
    found = set()
    for source, target in edges_among(nodes):
        moved = advantage(plain(tokens, patched=[(source, target)], there=there), some)
        effect = float((clean - moved).abs().mean()) / whole
        if NOTHING < effect < CLEARLY:
            return None
        if effect >= CLEARLY:
            found.add(f"{source}->{target}")
    return frozenset(found)


def edges_among(nodes: Collection[str]) -> list[Edge]:
    """Edges from each of these nodes to each later one, and to the logits."""
    ordered = sorted({*nodes, "input"}, key=_stage)
    edges: list[Edge] = []
    for source in ordered:
        for target in ordered:
            if _stage(source) < _stage(target):
                ends = [f"{target}<{c}>" for c in "qkv"] if target[0] == "a" else [target]
                edges += [(source, end) for end in ends]
        edges.append((source, "logits"))
    return edges


def paired(rows: FeatureData, others: Sequence[FeatureData]) -> FeatureData:
    """Prompts with counterparts: the first of `others` with different answers at the positions.

    The answers of the counterpart become the wrong answers. Prompts without a counterpart are
    dropped.
    """
    found: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for other in others:
        assert rows.answers is not None
        assert other.answers is not None
        assert rows.answer_positions is not None
        assert other.answer_positions is not None
        apart = (rows.answers != other.answers).all(1)
        apart &= (rows.answer_positions == other.answer_positions).all(1)
        for i in np.flatnonzero(apart).tolist():
            found.setdefault(i, (other.tokens[i], other.answers[i]))
    kept = rows.at(np.array(sorted(found)))
    return FeatureData(
        kept.tokens,
        kept.features,
        kept.names,
        kept.positions,
        kept.groups,
        kept.source,
        kept.answers,
        kept.answer_positions,
        np.array([found[i][1] for i in sorted(found)]),
        [found[i][0] for i in sorted(found)],
    )


def _asked(data: FeatureData) -> tuple[Tensor, Tensor]:
    assert data.answers is not None
    assert data.answer_positions is not None
    return torch.from_numpy(data.answers), torch.from_numpy(data.answer_positions)


def _stage(node: str) -> tuple[int, int]:
    if node == "input":
        return (-1, 0)
    return (int(node[1:].partition(".")[0]), int(node[0] == "m"))
