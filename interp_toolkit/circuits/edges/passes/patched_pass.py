"""A forward pass edge by edge: for any reader, the output of any earlier node can be replaced.

A node's input is the residual stream: what enters the first block and what each layer adds,

    r = x_0 + sum over layers of (A_l + M_l),    A_l = P_l(u_l1 + ... + u_lH),

with M_l the output of an MLP (experts, or a mixer in place of attention; behind its norm, if it has
one), u_lh the output of head h and P_l what the layer does with the sum over its heads: adding the
output bias, a multiplier, a norm (Gemma 2, OLMo 2). Where an edge is ablated, the source's ablation
value replaces its output on this prompt, for that reader and channel only: a head's inside P_l,
together with those of other heads of its layer that are ablated for this reader. Norms are computed
from the altered sum. With one edge ablated this is path patching (Goldowsky-Dill et al. 2023, arXiv
2304.05969); with all except a circuit's it is the circuit (Conmy et al. 2023, arXiv 2304.14997).

`input` is what enters the first block, positions included. The output bias of an attention layer
belongs to no head and is never ablated; an MLP's belongs to the MLP, and cancels against the same
bias in a mean. With no edge ablated the logits are the model's own, which `PatchedModel` checks on
its first tokens.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.circuits.edges.passes.blocks import Blocks, Change
from interp_toolkit.circuits.edges.wiring import CHANNELS, Edge, Node, Stage, Wiring
from interp_toolkit.errors import InputError
from interp_toolkit.models.running.forward import StopForwardError, probe_tokens, run
from interp_toolkit.models.running.hooks import has_hooks, hook_points, store_in
from interp_toolkit.models.running.layers import Projected
from interp_toolkit.models.weights.precision import agrees, at_least_single
from interp_toolkit.models.weights.view import ModelWeights

#: what stands in for each writer, by its index in the wiring: one row for all, or one for each
Reference = Sequence[Float[Tensor, "*row pos d_model"]]
#: the same of some writers, by their index
SomeReferences = Reference | Mapping[int, Float[Tensor, "*row pos d_model"]]


@dataclass(frozen=True, eq=False)
class Trace:
    """Activations that a forward pass stores so that another can begin midway.

    Attributes:
        writes: what each writer wrote, in the wiring's order.
        reads: the residual stream that each stage reads.
        totals: everything written before each stage; differs from `reads` in parallel blocks.
        projected: queries, keys and values of each layer.
    """

    writes: list[Float[Tensor, "row pos d_model"]] = field(default_factory=list)
    reads: list[Float[Tensor, "row pos d_model"]] = field(default_factory=list)
    totals: list[Float[Tensor, "row pos d_model"]] = field(default_factory=list)
    projected: dict[int, Projected] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Pass:
    """A forward pass with no edge ablated.

    Attributes:
        trace: see `Trace`.
        logits: the output.
    """

    trace: Trace
    logits: Float[Tensor, "row position d_vocab"]


class PatchedModel:
    """The model as a circuit.

    Raises InputError for a model whose residual stream is no sum (BERT), or whose layers cannot be
    computed one by one, naming the part.

    Attributes:
        wiring: the nodes and edges.
        blocks: the nodes' computations.
        begin: the position at which passes begin; see `behind`.
    """

    def __init__(self, model: Any, view: ModelWeights | None = None):
        self._model, self._checked, self.begin = model, 0, 0
        self.blocks = Blocks(model, view)
        self.check_on(probe_tokens(model))

    @property
    def wiring(self) -> Wiring:
        """The nodes and edges."""
        return self.blocks.wiring

    @property
    def hidden(self) -> int:
        """Numbers per position that a pass stores for gradients in MLPs and the unembedding."""
        n_mlps = sum(self.wiring.mlps)
        return 4 * n_mlps * self.blocks.widest_mlp + 6 * self.blocks.d_vocab

    @property
    def widest(self) -> int:
        """Numbers per position in the widest MLP or the unembedding."""
        widest: int = max(3 * self.blocks.widest_mlp, 2 * self.blocks.d_vocab)
        return widest

    @torch.no_grad()
    def whole(
        self, tokens: Int[Tensor, "row pos"], positions: Int[Tensor, "row position"] | None = None
    ) -> Pass:
        """The pass with no edge ablated; logits at these positions (None: at every position)."""
        trace = Trace([self.embedded(tokens)])
        start = trace.writes[0]
        return Pass(trace, self._go_on(trace, 0, start, start, positions=positions))

    @torch.no_grad()
    def behind(self, tokens: Int[Tensor, "row pos"]) -> PatchedModel:
        """The engine for prompts that begin with these tokens in every pass.

        Its passes have the later positions alone; `blocks.sequential` says whether it is exact.
        """
        later, before = copy.copy(self), dict[int, Projected]()
        start = self.embedded(tokens)
        first = torch.zeros(len(tokens), 1, dtype=torch.long)
        self._go_on(None, 0, start, start, positions=first, projected=before)
        later.begin = tokens.shape[1]
        later.blocks = self.blocks.behind({layer: (k, v) for layer, (_, k, v) in before.items()})
        return later

    def at(self, rows: slice) -> PatchedModel:
        """The engine `behind` the tokens of some of its rows."""
        some = copy.copy(self)
        some.blocks = self.blocks.at(rows)
        return some

    def among(self, tokens: Int[Tensor, " token"]) -> PatchedModel | None:
        """The engine with the logits of these tokens alone; None where modules make logits."""
        blocks = self.blocks.among(tokens)
        if blocks is None:
            return None
        some = copy.copy(self)
        some.blocks = blocks
        return some

    @torch.no_grad()
    def logits(
        self,
        whole: Pass,
        reference: SomeReferences,
        edges: Collection[Edge],
        positions: Int[Tensor, "row position"] | None = None,
    ) -> Float[Tensor, "row position d_vocab"]:
        """The logits with these edges ablated.

        Args:
            whole: the pass of the same rows with no edge ablated; stages before the first
                ablated edge are not computed again.
            reference: the ablation value of each source.
            edges: the edges to ablate.
            positions: positions whose logits are returned, as in `whole`; None: all.
        """
        by_stage: dict[int, list[Edge]] = {}
        for edge in edges:
            by_stage.setdefault(self.wiring.stage_of(edge), []).append(edge)
        if not by_stage:
            return whole.logits
        first, cached = min(by_stage), whole.trace
        trace = Trace(cached.writes[: self.wiring.written_before(first)])
        layer = self.wiring.stages[first].layer
        if layer in cached.projected:  # what enters the first stage is as in the whole pass
            trace.projected[layer] = cached.projected[layer]
        return self._go_on(
            trace,
            first,
            cached.reads[first],
            cached.totals[first],
            (by_stage, reference),
            positions,
        )

    @torch.no_grad()
    def without(
        self,
        whole: Pass,
        reference: Reference,
        node: Node,
        positions: Int[Tensor, "row position"] | None = None,
    ) -> Float[Tensor, "row position d_vocab"]:
        """The logits with every edge from one node ablated.

        The result is that of `logits` with all these edges, at the cost of a pass from the node on.
        """
        trace, number = whole.trace, self.wiring.index[node]
        ablated = torch.ones(1, 1, dtype=torch.bool)
        change = self.changes(trace.writes, reference, [number], ablated)[0]
        first = 0 if node.kind == "input" else self.wiring.stage_at(node) + 1
        beside = self.wiring.beside_attention(self.wiring.stages[first])
        read = trace.reads[first] if beside else trace.reads[first] + change
        return self._go_on(None, first, read, trace.totals[first] + change, positions=positions)

    @torch.no_grad()
    def from_stream(
        self,
        stage: int,
        stream: Float[Tensor, "row pos d_model"],
        positions: Int[Tensor, "row position"] | None = None,
    ) -> Float[Tensor, "row position d_vocab"]:
        """The logits of a pass from an attention stage on, given the residual stream there."""
        return self._go_on(None, stage, stream, stream, positions=positions)

    def bytes_from_stream(self, n_pos: int) -> int:
        """Bytes per prompt of a pass that stores nothing."""
        wiring = self.wiring
        inside = 8 * wiring.d_model + 4 * n_pos * wiring.n_heads + self.widest
        return 4 * n_pos * inside

    def _go_on(
        self,
        trace: Trace | None,
        first: int,
        read: Tensor,
        total: Tensor,
        ablated: tuple[Mapping[int, Collection[Edge]], SomeReferences] | None = None,
        positions: Int[Tensor, "row position"] | None = None,
        projected: dict[int, Projected] | None = None,
    ) -> Tensor:
        """The logits, from a stage on; adds to `trace` the activations that later ablations need.

        Without a trace nothing is stored but `projected`, and nothing can be ablated.
        """
        last = -1 if trace is None else max(ablated[0]) if ablated else len(self.wiring.stages)
        for i, stage in enumerate(self.wiring.stages[first:], start=first):
            if not self.wiring.beside_attention(stage):
                read = total
            change = None
            if trace is not None:
                trace.reads.append(read)
                trace.totals.append(total)
                if ablated and i in ablated[0]:
                    change = self._change(trace, ablated[0][i], ablated[1])
            if stage.kind == "logits":
                return self.blocks.unembed(
                    at_positions(read + change.delta[0] if change else read, positions)
                )
            if stage.kind != "attention":
                writes = self.blocks.node(stage, read, change)[None]
            else:
                plain = None if trace is None else trace.projected.get(stage.layer)
                plain = self.blocks.projected(stage.layer, read) if plain is None else plain
                if trace is not None:
                    trace.projected[stage.layer] = plain
                if projected is not None:
                    projected[stage.layer] = plain
                writes = self.blocks.heads(stage.layer, read, plain, change, apart=i < last)
            if trace is not None:
                trace.writes.extend(writes.unbind(0))
            total = total + self.added(stage, writes)
        raise AssertionError("the last stage is the logits")

    def added(self, stage: Stage, writes: Float[Tensor, "node *row pos d_model"]) -> Tensor:
        """What a stage adds to the residual stream, from the outputs of its nodes."""
        summed = writes[0] if len(writes) == 1 else writes.sum(0)
        return self.blocks.added(stage.layer, summed) if stage.kind == "attention" else summed

    def _change(self, trace: Trace, edges: Collection[Edge], reference: SomeReferences) -> Change:
        """The change of the readers' inputs at a stage when these edges are ablated."""
        slots = [self._slot(edge) for edge in edges]
        sources = [self.wiring.index[edge.source] for edge in edges]
        readers, used = sorted(set(slots)), sorted(set(sources))
        row, column = {s: i for i, s in enumerate(readers)}, {s: i for i, s in enumerate(used)}
        ablated = torch.zeros(len(readers), len(used), dtype=torch.bool)
        ablated[[row[s] for s in slots], [column[s] for s in sources]] = True
        delta = self.changes(trace.writes, reference, used, ablated)
        return Change(readers, delta)

    def changes(
        self,
        own: Sequence[Tensor],
        other: SomeReferences,
        sources: Sequence[int],
        replaced: Bool[Tensor, "reader source"],
    ) -> Float[Tensor, "reader row pos d_model"]:
        """The change of each reader's input if outputs of some writers are replaced.

        Args:
            own: the output of each writer.
            other: what replaces it.
            sources: indices of writers.
            replaced: which of these are replaced for each reader.
        """
        weights = replaced.to(own[0])
        layers = [self.normed.get(source) for source in sources]
        plain = [i for i, layer in enumerate(layers) if layer is None]
        total = own[0].new_zeros(())
        if plain:
            total = torch.stack([other[sources[i]] - own[sources[i]] for i in plain])
            if not replaced[:, plain].equal(torch.eye(len(plain), dtype=torch.bool)):
                total = torch.einsum("nu,ubpm->nbpm", weights[:, plain].to(total), total)
        for layer in sorted({layer for layer in layers if layer is not None}):
            here = [i for i, of in enumerate(layers) if of == layer]
            moved = torch.stack([other[sources[i]] - own[sources[i]] for i in here])
            summed = torch.stack([own[i] for i, of in self.normed.items() if of == layer]).sum(0)
            inside = torch.einsum("nu,ubpm->nbpm", weights[:, here].to(moved), moved)
            added = self.blocks.added(layer, summed + inside)
            total = total + added - self.blocks.added(layer, summed)
        return total

    @cached_property
    def normed(self) -> dict[int, int]:
        """Writer -> its layer, of the heads whose sum is normalized."""
        heads = [
            (i, node.layer) for i, node in enumerate(self.wiring.writers) if node.head is not None
        ]
        return {i: layer for i, layer in heads if layer in self.blocks.normed}

    def _slot(self, edge: Edge) -> int:
        """The reader's index in its stage (see `Wiring.readers`)."""
        if edge.channel is None or edge.target.head is None:
            return 0
        return CHANNELS.index(edge.channel) * self.wiring.n_heads + edge.target.head

    def check_on(self, tokens: Int[Tensor, "row pos"]) -> None:
        """Check these tokens too, if they are longer than those checked first.

        Where the weights give something else there (a window that only long prompts reach), the
        model's own modules are used from now on. Raises InputError if these differ too.
        """
        if tokens.shape[1] <= self._checked:
            return
        while (wrong := self._wrong(tokens)) is not None:
            layer, reason = wrong
            view, whole = self.blocks.view, self.blocks.whole
            if not self.blocks.by_modules:
                self.blocks = Blocks(self._model, view, by_modules=True)
            elif layer in self.wiring.mixers or layer == self.wiring.n_layers:
                raise InputError(f"{reason}, so its edges cannot be ablated{self._hooked()}")
            else:
                self.blocks = Blocks(
                    self._model, view, by_modules=True, whole={**whole, layer: reason}
                )
        self._checked = tokens.shape[1]

    def _hooked(self) -> str:
        hooked = any(map(has_hooks, self._model.modules()))
        return "; hooks are attached to this model: remove them if they change it" if hooked else ""

    def _wrong(self, tokens: Int[Tensor, "row pos"]) -> tuple[int, str] | None:
        """The first layer whose output is not the model's own, and what is wrong; else None."""
        whole, (streams, logits) = self.whole(tokens), self._streams(tokens)
        for i, stage in enumerate(self.wiring.stages):
            if stage.kind == "mlp" or self.wiring.beside_attention(stage):
                continue
            if not agrees(whole.trace.totals[i], streams[stage.layer]):
                return stage.layer - 1, f"layer {stage.layer - 1} is not the sum of its parts"
        last = self.wiring.n_layers
        terms = self.blocks.largest_logit(whole.trace.totals[-1])
        if logits is None or not agrees(whole.logits, logits, summed=terms):
            return (
                last,
                f"the logits of this {type(self._model).__name__} are not made of its parts",
            )
        return None

    def embedded(self, tokens: Int[Tensor, "row pos"]) -> Float[Tensor, "row later d_model"]:
        """The output of the input node, at the engine's positions."""
        recorded = list[Tensor]()

        def keep(value: Any, hook: Any) -> None:
            recorded.append(value.detach().clone())
            raise StopForwardError

        run(self._model, tokens, [(self._points["blocks.0.hook_resid_pre"], keep)])
        return at_least_single(recorded[0])[:, self.begin :]

    def _streams(self, tokens: Tensor) -> tuple[list[Tensor], Tensor | None]:
        """The model's own residual stream before each layer and behind the last, and its logits."""
        last = self.wiring.n_layers
        names = [f"blocks.{layer}.hook_resid_pre" for layer in range(last)]
        names.append(f"blocks.{last - 1}.hook_resid_post")
        recorded: dict[str, Tensor] = {}
        hooks = [(self._points[name], store_in(recorded, name)) for name in names]
        logits = run(self._model, tokens, hooks)
        return [recorded[name] for name in names], logits

    @cached_property
    def _points(self) -> Mapping[str, Any]:
        return hook_points(self._model)


def at_positions(
    x: Float[Tensor, "row pos d_model"], positions: Int[Tensor, "row position"] | None
) -> Float[Tensor, "row place_or_pos d_model"]:
    """The residual stream at these positions of each row; all of it for None."""
    if positions is None:
        return x
    return x[torch.arange(len(x), device=x.device)[:, None], positions.to(x.device)]
