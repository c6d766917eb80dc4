"""Models in which one or several heads do the work: diluted, shared, redundant, beside decoys.

A model does the task of a `Layout` with n *work heads*. Their attention is set exactly: the
fraction `attention` goes to the layout's target, and the rest to a sink (BOS, or the head's own
position if prompts begin with a label) or uniformly to all other keys. Their outputs add up to a
logit of GAIN for the answer:

- "sum": each writes GAIN / n, so that all are needed
- "redundant": each writes GAIN, so that one is enough
- "tokens": each writes GAIN for its own tokens (id modulo n) and nothing for others.

Further heads, if requested: *decoys* have the attention of work heads and write to dimensions that
nothing reads; *sinks* attend to the first position and write nothing that is read; *idle* heads
have random, sharp attention and write to dimensions that nothing reads; one *noise* head attends
uniformly and writes random logits for each token.

Implementation: `_Stream` assigns the dimensions of the residual stream (one for each token,
position and output). Heads that feed others (previous-token heads, an induction head for two hops)
are in the first layers, all others in later layers, at random places. Scores are exact: see
`_Writer`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from interp_studies.challenge.families.layouts import (
    BOS,
    CONTENT,
    MARK,
    MIXED_TURN,
    RELATIONS,
    Layout,
)
from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Head
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.hand_set.heads import Axes, copy_axes, head_weights, look_back, match
from interp_toolkit.toys.zeros import zeros

SCORE = 20.0  # of what a head looks for: the rest of the row gets less than 1e-6
REST = 10.0  # of the sink, where all attention goes to a target if there is one
STEP = 6.0  # of the score, from one token id to the next, for a head that looks for the largest
GAIN = 10.0  # of the answer's logit
IDLE_SCORE = 3.0  # standard deviation of an idle head's scores: its attention is sharp
FED_LAYERS = {"induction": 1, "lookup": 1, "k-hop": 2}  # layers that feed the work heads

Sharing = Literal["sum", "redundant", "tokens"]
Dilution = Literal["sink", "uniform"]


@dataclass(frozen=True)
class Work:
    """The heads of a model.

    Attributes:
        layout: layout of the prompts.
        n: number of work heads.
        sharing: how the work heads' outputs add up (see the module).
        attention: fraction of each work head's attention on its target; None: 1 / n for "sum", else
            1.
        dilution: where the remaining attention goes.
        across: whether each work head has its own layer.
        decoys, sinks, idle: number of such heads.
        noise: standard deviation of the noise head's logits, as a fraction of GAIN.
        seed: random seed of the places of heads and of random weights.
    """

    layout: Layout
    n: int = 1
    sharing: Sharing = "sum"
    attention: float | None = None
    dilution: Dilution = "sink"
    across: bool = False
    decoys: int = 0
    sinks: int = 0
    idle: int = 0
    noise: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n < 1 or not 0 < self.share <= 1:
            raise InputError(f"{self.n} heads with {self.attention} of attention each cannot work")
        if self.share >= 1:
            return
        name = self.layout.name
        no_sink = name == "mixed" or not (self.layout.has_bos or name == "first-token")
        if name == "max" or (no_sink and self.dilution == "sink"):
            raise InputError(
                f"{name}: these rows have no attention sink, which dilution='sink' needs"
            )

    @property
    def share(self) -> float:
        """Fraction of each work head's attention that goes to its target."""
        if self.attention is not None:
            return self.attention
        return 1 / max(self.n, 1) if self.sharing == "sum" else 1.0

    @property
    def gain(self) -> float:
        """Logit that each work head writes for the answer."""
        return GAIN / self.share / (self.n if self.sharing == "sum" else 1)

    @property
    def fed(self) -> int:
        """Number of layers before those of the work heads."""
        return FED_LAYERS.get(self.layout.name, 0)


@dataclass(frozen=True)
class WorkDone:
    """The truth about a model.

    Attributes:
        work: the requested heads.
        true: (attention pattern, layer, head) of every work head, and of heads that feed it.
        attends: (attention pattern, layer, head) of every head with that pattern, including decoys
            and sinks.
    """

    work: Work
    true: frozenset[tuple[str, int, int]]
    attends: frozenset[tuple[str, int, int]]


def shared_work(work: Work, dtype: torch.dtype = torch.float64) -> Transformer:
    """The model; its `ground_truth` is a `WorkDone`.

    Args:
        work: the requested heads.
        dtype: dtype of the parameters.

    Examples:
        >>> model = shared_work(Work(Layout("pointer", 5, 8), n=2, attention=0.5))
        >>> sorted(model.ground_truth.true)[0][0]
        'answer'
    """
    return _Writer(work, dtype).written()


@dataclass(frozen=True)
class _Stream(Axes):
    """Dimensions of the residual stream, with the first hop's output and unread ones."""

    hop: range
    aside: range


class _Writer:
    """Sets the weights of a model's heads, which are at random places within their layers."""

    def __init__(self, work: Work, dtype: torch.dtype):
        self.work, self.layout = work, work.layout
        self.rng = np.random.default_rng([work.seed, 1])
        self.per_layer = self._places()
        self.n_tokens, self.n_pos = self.layout.d_vocab, self.layout.n_ctx
        sizes = [self.n_tokens] * 3 + [self.n_pos] + [self.n_tokens] * 2
        starts = [0, *itertools.accumulate(sizes)]
        self.axes = _Stream(*(range(a, b) for a, b in itertools.pairwise(starts)))
        self.model = self._blank(starts[-1], dtype)
        self.true: set[tuple[str, int, int]] = set()
        self.attends: set[tuple[str, int, int]] = set()

    def written(self) -> Transformer:
        """The complete model."""
        self._write_feeders()
        for number, head in enumerate(self.roles["work"]):
            self._look(head)
            tokens = range(self.n_tokens)
            if self.work.sharing == "tokens":
                tokens = range(number, self.n_tokens, self.work.n)
            self._copy(head, tokens, self.axes.output, self.work.gain)
            self._record(head, true=True)
        for head in self.roles["decoy"]:
            self._look(head)
            self._copy(head, range(self.n_tokens), self.axes.aside, self.work.gain)
            self._record(head, true=False)
        for head in self.roles["sink"]:
            self._find_place(head, 0, SCORE)
            self._copy(head, range(self.n_tokens), self.axes.aside, 1.0)
            self.attends.add(("first-token", *head))
        for head in self.roles["idle"]:
            self._idle(head)
        for head in self.roles["noise"]:
            self._noise(head)
        self._write_priors()
        self.model.ground_truth = WorkDone(
            self.work, frozenset(self.true), frozenset(self.attends | self.true)
        )
        return self.model

    def _places(self) -> int:
        """Draw the place of every head; returns the number of heads per layer."""
        work = self.work
        wanted = {"work": work.n, "decoy": work.decoys, "sink": work.sinks, "idle": work.idle}
        wanted["noise"] = int(work.noise > 0)
        free = work.n if work.across else 1  # layers after those that feed
        self.n_layers = work.fed + free
        kinds: list[list[str]] = [["feed"] for _ in range(work.fed)] + [[] for _ in range(free)]
        for kind, count in wanted.items():
            for i in range(count):
                first = work.fed if kind in ("work", "decoy", "noise") else 0
                spread = kind == "work" and work.across
                layer = work.fed + i if spread else int(self.rng.integers(first, self.n_layers))
                kinds[layer].append(kind)
        per_layer = max(2, *(len(k) for k in kinds))
        self.roles: dict[str, list[Head]] = {kind: [] for kind in ("feed", *wanted)}
        for layer, here in enumerate(kinds):
            order = self.rng.permutation(per_layer)
            for kind, head in zip(here, order, strict=False):
                self.roles[kind].append(Head(layer, int(head)))
        return per_layer

    def _blank(self, d_model: int, dtype: torch.dtype) -> Transformer:
        config = TransformerConfig(
            n_layers=self.n_layers,
            d_model=d_model,
            n_ctx=self.n_pos,
            d_head=self.n_tokens + self.n_pos + 2,
            n_heads=self.per_layer,
            d_vocab=self.n_tokens,
            attn_only=True,
            normalization_type=None,
            positional_embedding_type="standard",
            biases=False,
            dtype=dtype,
        )
        model = zeros(config)
        model.eval()
        model.embed.W_E.data[:, list(self.axes.tokens)] = torch.eye(self.n_tokens, dtype=dtype)
        model.unembed.W_U.data[list(self.axes.output)] = torch.eye(self.n_tokens, dtype=dtype)
        places = torch.eye(self.n_pos, dtype=dtype)
        model.pos_embed.W_pos.data[:, list(self.axes.positions)] = places
        return model

    def _write_feeders(self) -> None:
        """Write a previous-token head and, for two hops, an induction head that reads it."""
        heads = self.roles["feed"]
        if heads:
            look_back(self.model, heads[0], self.axes, SCORE)
            copy_axes(self.model, heads[0], self.axes.tokens, self.axes.previous)
            self.true.add(("previous-token", *heads[0]))
        if len(heads) > 1:
            self._look_after(heads[1], self.axes.tokens, SCORE)
            self._find_token(heads[1], BOS, REST)
            copy_axes(self.model, heads[1], self.axes.tokens, self.axes.hop)
            self.true.add(("induction", *heads[1]))

    def _look(self, head: Head) -> None:
        """Set the head's queries and keys to the attention of a work head."""
        score, name = self._score(), self.layout.name
        if name == "induction":
            self._look_after(head, self.axes.tokens, score)
        elif name == "k-hop":
            self._look_after(head, self.axes.hop, score)
        elif name in ("previous-token", "mixed"):
            look_back(self.model, head, self.axes, score)
        elif name == "duplicate-token":
            self._look_alike(head, score)
        elif name == "lookup":
            self._look_up(head, score)
        elif name == "pointer":
            self._follow(head, score)
        elif name == "max":
            self._look_for_largest(head)
        if name in ("first-token", "mixed"):
            self._find_place(head, 0, score)
        self._dilute(head, score)

    def _score(self) -> float:
        """Score of the target that gives it the requested attention, if all other scores are 0."""
        share, name = self.work.share, self.layout.name
        if self.work.dilution == "sink" or share >= 1:
            return SCORE
        targets = 2 if name == "mixed" else 1
        return math.log(share / (1 - share) * (self.n_pos - targets) / targets)

    def _dilute(self, head: Head, score: float) -> None:
        """Direct the remaining attention to a sink, or leave it uniform over all other keys."""
        share, name = self.work.share, self.layout.name
        if self.work.dilution == "uniform" and share < 1:
            return
        rest = REST if share >= 1 else score + math.log((1 - share) / share)
        if name == "first-token" and share < 1:
            match(self.model, head, self.axes.positions, self.axes.positions, self._by_place, rest)
        elif self.layout.has_bos and name != "max":
            self._find_token(head, BOS, rest)

    @property
    def _by_token(self) -> range:
        """Dimensions of a head in which tokens are matched."""
        return range(self.n_tokens)

    @property
    def _by_place(self) -> range:
        """Dimensions of a head in which positions are matched."""
        return range(self.n_tokens, self.n_tokens + self.n_pos)

    def _look_after(self, head: Head, sought: range, score: float) -> None:
        """Score keys whose previous token is the query's token, except the mark."""
        match(self.model, head, sought, self.axes.previous, self._by_token, score)
        head_weights(self.model, head, "W_K")[self.axes.tokens[MARK], list(self._by_token)] = -1.0

    def _look_alike(self, head: Head, score: float) -> None:
        """Score other positions with the query's token."""
        axes = self.axes
        match(self.model, head, axes.tokens, axes.tokens, self._by_token, score)
        match(self.model, head, axes.positions, axes.positions, self._by_place, -2 * SCORE)

    def _look_up(self, head: Head, score: float) -> None:
        """Score keys whose previous token is the key token that the query token asks for."""
        roles, axes = self.layout.roles, self.axes
        queries = axes.tokens[roles.start : roles.stop]
        keys = axes.previous[CONTENT : CONTENT + len(roles)]
        match(self.model, head, queries, keys, self._by_token, score)

    def _follow(self, head: Head, score: float) -> None:
        """Score the position that a pointer token names."""
        roles = self.layout.roles
        queries = self.axes.tokens[roles.start : roles.stop]
        match(self.model, head, queries, self.axes.positions, self._by_place, score)

    def _look_for_largest(self, head: Head) -> None:
        """At the mark, score each content token by its id."""
        dim = self.n_tokens + self.n_pos
        scale = self.model.cfg.attn_scale
        head_weights(self.model, head, "W_Q")[self.axes.tokens[MARK], dim] = STEP * scale
        for rank, token in enumerate(self.layout.content):
            head_weights(self.model, head, "W_K")[self.axes.tokens[token], dim] = float(rank)

    def _find_token(self, head: Head, token: int, score: float) -> None:
        self._always(head, self.axes.tokens[token], score)

    def _find_place(self, head: Head, place: int, score: float) -> None:
        self._always(head, self.axes.positions[place], score)

    def _always(self, head: Head, axis: int, score: float) -> None:
        """Score this dimension of the keys, for every query."""
        dim = self.n_tokens + self.n_pos + 1
        scaled = score * self.model.cfg.attn_scale
        head_weights(self.model, head, "W_Q")[list(self.axes.tokens), dim] = scaled
        head_weights(self.model, head, "W_K")[axis, dim] = 1.0

    def _copy(self, head: Head, tokens: Sequence[int], target: range, gain: float) -> None:
        """Copy the attended token to the output.

        Labels are copied if they are answers; BOS, marks and pointers are never copied.
        """
        answers = set(self.layout.content)
        if self.layout.name in ("first-token", "mixed"):
            answers |= set(self.layout.roles)
        if self.layout.name == "first-token":
            answers = set(self.layout.roles)
        for token in answers & set(tokens):
            head_weights(self.model, head, "W_V")[self.axes.tokens[token], token] = 1.0
            head_weights(self.model, head, "W_O")[token, target[token]] = gain

    def _idle(self, head: Head) -> None:
        """Random scores between tokens and positions, and outputs that nothing reads."""
        read = [*self.axes.tokens, *self.axes.positions]
        for name in ("W_Q", "W_K"):
            weights = head_weights(self.model, head, name)
            drawn = self.rng.normal(size=(len(read), weights.shape[1]))
            weights[read] = torch.from_numpy(drawn).to(weights)
        dims = self.model.cfg.d_head
        # a query and a key are each the sum of two rows: their product has variance 4 * dims
        factor = IDLE_SCORE * self.model.cfg.attn_scale / (2 * math.sqrt(dims))
        head_weights(self.model, head, "W_Q").mul_(factor)
        copy_axes(self.model, head, self.axes.tokens, self.axes.aside, GAIN)

    def _noise(self, head: Head) -> None:
        """Uniform attention that writes random logits for each token."""
        size = self.work.noise * GAIN * math.sqrt(self.n_pos)
        drawn = size * self.rng.normal(size=(self.n_tokens, self.n_tokens))
        copy_axes(self.model, head, self.axes.tokens, self.axes.output)
        written = head_weights(self.model, head, "W_O")
        written[: self.n_tokens, list(self.axes.output)] = torch.from_numpy(drawn).to(written)

    def _write_priors(self) -> None:
        """The prior logits of a query: "not seen", or labels at every second position."""
        work = self.work
        if self.layout.name == "duplicate-token":
            parts = 1 if work.sharing == "redundant" else work.n
            prior = GAIN * (1 - 1 / (2 * parts))
            embed = self.model.embed.W_E.data
            embed[list(self.layout.content), self.axes.output[MARK]] = prior
        if self.layout.name == "mixed":
            labels = [self.axes.output[t] for t in self.layout.roles]
            for place in range(self.n_pos):
                sign = 1 if place % MIXED_TURN else -1
                self.model.pos_embed.W_pos.data[place, labels] = sign * GAIN / 8

    def _record(self, head: Head, *, true: bool) -> None:
        kinds = {RELATIONS[self.layout.name]}
        kinds |= {"first-token"} if self.layout.name == "mixed" else set()
        for kind in kinds:
            (self.true if true else self.attends).add((kind, *head))
