"""A forward pass edge by edge: for any reader, the output of any earlier node can be replaced.

The pass is computed from the checked view of the weights: the arithmetic of attention, MLP and
unembedding, with one addition. A node's input is the sum of the earlier nodes' outputs; where an
edge is ablated, the source's ablation value replaces its output on this prompt, for that reader and
channel only, and norms are computed from the altered sum. With one edge ablated this is path
patching (Goldowsky-Dill et al. 2023, arXiv 2304.05969); with all except a circuit's it is the
circuit (Conmy et al. 2023, arXiv 2304.14997).

`input` is what enters the first block, positions included. The output bias of an attention layer
belongs to no head and is never ablated; an MLP's belongs to the MLP, and cancels against the same
bias in a mean. With no edge ablated the logits are the model's own, which `PatchedModel` checks on
its first tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.circuits.edges.wiring import CHANNELS, Edge, Node, Wiring
from interp_toolkit.errors import InputError
from interp_toolkit.models.running.forward import StopForwardError, probe_tokens, run
from interp_toolkit.models.running.hooks import hook_points
from interp_toolkit.models.weights.parts import (
    LayerWeights,
    MLPWeights,
    Parts,
    converted,
    mixed,
    neurons,
    plain_activation,
    projected,
    soft_capped,
)
from interp_toolkit.models.weights.precision import agrees, at_least_single
from interp_toolkit.models.weights.view import weights

Stream = Float[Tensor, "row pos d_model"]
#: queries, keys and values, before any turn
Projected = tuple[
    Float[Tensor, "row pos head d_head"],
    Float[Tensor, "row pos head d_head"],
    Float[Tensor, "row pos head d_head"],
]


@dataclass(frozen=True, eq=False)
class Change:
    """A change of the input of some readers of a stage.

    Attributes:
        readers: their indices among the stage's readers: for attention the query inputs of all
            heads, then the key inputs, then the value inputs; ascending, each once.
        delta: the change of each reader's input.
    """

    readers: Int[Tensor, " n"]
    delta: Float[Tensor, "n row pos d_model"]


class Blocks:
    """The nodes' computations.

    Raises InputError for a part that the view of the weights cannot give, for layers that
    normalize the sum over their heads (Gemma 2) or the residual stream behind each addition
    (BERT), and for an unknown activation function.

    Attributes:
        n_layers, n_heads, d_model: sizes.
        layers: attention weights, at least float32.
        mlps: MLP weights, None where a layer has none.
        W_U: the unembedding.
    """

    def __init__(self, model: Any):
        view = weights(model)
        self.n_layers, self.n_heads, self.d_model = view.n_layers, view.n_heads, view.d_model
        self.layers = [_wide(_additive(view.layer(i), i)) for i in range(view.n_layers)]
        self.mlps = [_usable(view.mlp(i), i) for i in range(view.n_layers)]
        self._final = _wide(view.final_norm)
        self.W_U, self._b_U = _wide_tensor(view.W_U), _wide_tensor(view.b_U)
        self._cap = view.logit_soft_cap

    def projected(self, layer: int, x: Stream) -> Projected:
        """Queries, keys and values of every head, with nothing added."""
        w = self.layers[layer]
        x = w.norm(x)
        q, k, v = (projected(x, W, b) for W, b in w.projections)
        return q, k, v

    def heads(
        self, layer: int, x: Stream, plain: Projected, change: Change | None, *, apart: bool
    ) -> list[Stream]:
        """The output of each head, without the layer's output bias.

        Args:
            layer: the layer.
            x: the residual stream that the layer reads.
            plain: `projected(layer, x)`.
            change: the change of x for some readers.
            apart: whether to keep the heads apart; False: their sum.
        """
        w = self.layers[layer]
        q, k, v = plain if change is None else self._altered(w, x, plain, change)
        if apart:
            return list(self.attend(layer, q, k, v).unbind(0))
        z = _attended(w, q, k, v, None)
        return [z.flatten(-2) @ w.W_O.flatten(0, 1)]

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, heads: list[int] | None = None
    ) -> Float[Tensor, "head row pos d_model"]:
        """Outputs of the given heads from their queries, keys and values (None: all heads)."""
        w = self.layers[layer]
        z = _attended(w, q, k, v, heads)
        W_O = w.W_O if heads is None else w.W_O[heads]
        return torch.stack([z[:, :, i] @ W for i, W in enumerate(W_O)])

    def project(
        self, layer: int, channel: int, x: Float[Tensor, "n row pos d_model"], heads: list[int]
    ) -> Float[Tensor, "row pos n d_head"]:
        """Queries (channel 0), keys (1) or values (2) of some heads, each from its own input."""
        w = self.layers[layer]
        W, b = w.projections[channel]
        return torch.einsum("nbpm,nmd->bpnd", w.norm(x), W[heads]) + b[heads]

    def _altered(self, w: LayerWeights, x: Stream, plain: Projected, change: Change) -> Projected:
        """The projections, with those of the changed readers made again."""
        altered = []
        for c, ((W, b), out) in enumerate(zip(w.projections, plain, strict=True)):
            here = (change.readers >= c * len(W)) & (change.readers < (c + 1) * len(W))
            if bool(here.any()):
                heads = change.readers[here] - c * len(W)
                normalized = w.norm(x + change.delta[here])
                normalized = torch.einsum("nbpm,nmd->bpnd", normalized, W[heads]) + b[heads]
                out = out.index_copy(2, heads, normalized)
            altered.append(out)
        q, k, v = altered
        return q, k, v

    def mlp(self, layer: int, x: Stream, change: Change | None) -> Stream:
        """The output of an MLP, its output bias included."""
        w = self.mlps[layer]
        assert w is not None
        x = w.norm(x if change is None else x + change.delta[0])
        return w.post_norm(neurons(w, x) @ w.W_out + w.b_out)

    def largest_logit(self, x: Stream) -> float:
        """An upper bound of the size of any logit, without biases and before cancellation."""
        read = torch.linalg.vector_norm(self._final(x), dim=-1).max()
        return float(read * torch.linalg.vector_norm(self.W_U, dim=0).max())

    def unembed(self, x: Stream) -> Float[Tensor, "row pos d_vocab"]:
        """The logits."""
        logits = self._final(x) @ self.W_U + self._b_U
        return soft_capped(logits, self._cap)


def _attended(
    w: LayerWeights, q: Tensor, k: Tensor, v: Tensor, heads: list[int] | None
) -> Float[Tensor, "row pos head d_head"]:
    return mixed(w.pattern(w.scores(q, k, heads)), v)


def _additive(layer: LayerWeights, number: int) -> LayerWeights:
    if layer.post_norm.kind is not None:
        raise InputError(
            f"layer {number} normalizes the sum over its heads, so the output of a single head "
            "is not defined and its edges cannot be ablated"
        )
    if layer.residual_norm.kind is not None:
        raise InputError(
            f"layer {number} normalizes the residual stream after each addition, so a node's "
            "input is not the sum of earlier outputs and edges cannot be ablated"
        )
    return layer


def _usable(mlp: MLPWeights | None, number: int) -> MLPWeights | None:
    if mlp is None:
        return None
    if plain_activation(mlp.act_fn) is None:
        raise InputError(
            f"the activation function of layer {number}, {mlp.act_fn}, is not supported by edge "
            "ablation"
        )
    return _wide(mlp)


def _wide(parts: Parts) -> Parts:
    """The same weights in float32 or float64: sums over edges lose too much in half precision."""
    return converted(parts, _wide_tensor)


def _wide_tensor(values: Tensor) -> Tensor:
    """The values detached, in at least single precision."""
    return at_least_single(values).detach()


#: what stands in for each writer, in the wiring's order: one row for all, or one for each
Reference = Sequence[Float[Tensor, "*row pos d_model"]]


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

    Raises InputError for a model whose computation the view of its weights does not give, naming
    the part; for layers that normalize the sum over their heads (Gemma 2): what one head writes is
    not defined there; and where the residual stream is no sum (BERT).

    Attributes:
        wiring: the nodes and edges.
        blocks: the nodes' computations.
    """

    def __init__(self, model: Any):
        self._model = model
        self.blocks = Blocks(model)
        self.wiring = Wiring(
            n_layers=self.blocks.n_layers,
            n_heads=self.blocks.n_heads,
            d_model=self.blocks.d_model,
            mlps=tuple(mlp is not None for mlp in self.blocks.mlps),
            parallel=any(layer.parallel for layer in self.blocks.layers),
        )
        self._check()

    @property
    def hidden(self) -> int:
        """Numbers per position that a pass stores for gradients in MLPs and the unembedding."""
        inside = sum(4 * mlp.W_in.shape[1] for mlp in self.blocks.mlps if mlp is not None)
        return int(inside + 6 * self.blocks.W_U.shape[1])

    @property
    def widest(self) -> int:
        """Numbers per position in the widest MLP or the unembedding."""
        inside = [3 * mlp.W_in.shape[1] for mlp in self.blocks.mlps if mlp is not None]
        return int(max([*inside, 2 * self.blocks.W_U.shape[1]]))

    @torch.no_grad()
    def whole(
        self, tokens: Int[Tensor, "row pos"], positions: Int[Tensor, "row position"] | None = None
    ) -> Pass:
        """The pass with no edge ablated; logits at these positions (None: at every position)."""
        trace = Trace([self.embedded(tokens)])
        start = trace.writes[0]
        return Pass(trace, self._go_on(trace, 0, start, start, positions=positions))

    @torch.no_grad()
    def logits(
        self,
        whole: Pass,
        reference: Reference,
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
        index, trace = self.wiring.index[node], whole.trace
        change = reference[index] - trace.writes[index]
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
        ablated: tuple[Mapping[int, Collection[Edge]], Reference] | None = None,
        positions: Int[Tensor, "row position"] | None = None,
    ) -> Tensor:
        """The logits, from a stage on; adds to `trace` the activations that later ablations need.

        Without a trace nothing is stored, and nothing can be ablated.
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
            if stage.kind == "mlp":
                writes = [self.blocks.mlp(stage.layer, read, change)]
            else:
                plain = None if trace is None else trace.projected.get(stage.layer)
                plain = self.blocks.projected(stage.layer, read) if plain is None else plain
                if trace is not None:
                    trace.projected[stage.layer] = plain
                writes = self.blocks.heads(stage.layer, read, plain, change, apart=i < last)
                total = total + self.blocks.layers[stage.layer].b_O
            if trace is not None:
                trace.writes.extend(writes)
            total = total + (writes[0] if len(writes) == 1 else torch.stack(writes).sum(0))
        raise AssertionError("the last stage is the logits")

    def _change(self, trace: Trace, edges: Collection[Edge], reference: Reference) -> Change:
        """The change of the readers' inputs at a stage when these edges are ablated."""
        slots = [self._slot(edge) for edge in edges]
        sources = [self.wiring.index[edge.source] for edge in edges]
        readers, used = sorted(set(slots)), sorted(set(sources))
        row, column = {s: i for i, s in enumerate(readers)}, {s: i for i, s in enumerate(used)}
        changes = torch.stack([reference[s] - trace.writes[s] for s in used])
        mask = changes.new_zeros(len(readers), len(used))
        mask[[row[s] for s in slots], [column[s] for s in sources]] = 1
        delta = torch.einsum("nu,ubpm->nbpm", mask, changes)
        return Change(torch.tensor(readers, device=delta.device), delta)

    def _slot(self, edge: Edge) -> int:
        """The reader's index in its stage (see `Wiring.readers`)."""
        if edge.channel is None or edge.target.head is None:
            return 0
        return CHANNELS.index(edge.channel) * self.wiring.n_heads + edge.target.head

    def _check(self) -> None:
        """Raise InputError if the engine's logits are not the model's own."""
        tokens = probe_tokens(self._model)
        whole = self.whole(tokens)
        for i, stage in enumerate(self.wiring.stages):
            if stage.kind != "attention":
                continue
            actual = self._residual(tokens, stage.layer)
            if not agrees(whole.trace.totals[i], actual):
                raise InputError(
                    f"the output of layer {stage.layer - 1} cannot be computed from its weights "
                    f"({self._words(stage.layer - 1)}), so its edges cannot be ablated"
                )
        logits = run(self._model, tokens)
        terms = self.blocks.largest_logit(whole.trace.totals[-1])
        if logits is None or not agrees(whole.logits, logits, summed=terms):
            raise InputError(
                f"the output of this {type(self._model).__name__} cannot be computed from its "
                f"weights ({self._words(self.wiring.n_layers - 1)}), so its edges cannot be "
                "ablated"
            )

    def _words(self, layer: int) -> str:
        mlp = self.blocks.mlps[layer]
        return "attention only" if mlp is None else f"activation {mlp.act_fn}"

    def embedded(self, tokens: Int[Tensor, "row pos"]) -> Float[Tensor, "row pos d_model"]:
        """The output of the input node."""
        return at_least_single(self._residual(tokens, 0))

    def _residual(self, tokens: Tensor, layer: int) -> Tensor:
        """The model's own residual stream before a layer."""
        name, recorded = f"blocks.{layer}.hook_resid_pre", list[Tensor]()

        def keep(value: Any, hook: Any) -> None:
            recorded.append(value.detach().clone())
            raise StopForwardError

        run(self._model, tokens, [(hook_points(self._model)[name], keep)])
        return recorded[0]


def at_positions(
    x: Float[Tensor, "row pos d_model"], positions: Int[Tensor, "row position"] | None
) -> Float[Tensor, "row place_or_pos d_model"]:
    """The residual stream at these positions of each row; all of it for None."""
    if positions is None:
        return x
    return x[torch.arange(len(x), device=x.device)[:, None], positions.to(x.device)]
