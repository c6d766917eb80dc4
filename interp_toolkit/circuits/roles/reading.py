"""Attention and direct effects of heads at answer positions, recorded in one pass over the prompts.

Each answer of each prompt is one *query*, with the earlier positions of the prompt, which the model
has read by then.

For each query the pass records every head's attention, values and `hook_z`, the residual stream
before each layer and after the last, and for each source position the norm of the head's output if
it attended there alone. Attention times values is compared with the model's own `hook_z`; a layer
where they differ (gates; a norm over all heads' outputs) is left out, as is one without heads.

Direct effects, in logits, are a head's output times the unembedding, through the final norm, and
one behind attention, with their scales frozen at their values in the intact pass (centering and
weights are linear): the direct logit attribution of Wang et al. 2023, "Interpretability in the
Wild". Logits are taken before a soft cap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.circuits.heads.patterns import pattern_points
from interp_toolkit.circuits.metrics.prompts import Prompts
from interp_toolkit.circuits.metrics.replacement import hook_z
from interp_toolkit.circuits.weights.token_scores import read_through
from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import StopForwardError, by_head, run
from interp_toolkit.models.running.hooks import hook_points
from interp_toolkit.models.running.layers import layer_parts
from interp_toolkit.models.running.memory import (
    bytes_per_row,
    itemsize_of,
    parse_memory,
    rows_that_fit,
)
from interp_toolkit.models.running.restart import entry
from interp_toolkit.models.weights.parts import OutputWeights
from interp_toolkit.models.weights.precision import agrees, at_least_single
from interp_toolkit.models.weights.view import ModelWeights

FEWEST_ROWS = 6  # with five, no sign-flip p-value is below 0.05


@dataclass(frozen=True, eq=False)
class Queries:
    """Answer positions and answers; queries of one prompt are adjacent.

    Attributes:
        tokens: tokens of the prompt.
        position: the answer position.
        answer: the correct next token.
        wrong: the wrong answer, or None.
        slots: number of answers of a prompt.

    Examples:
        >>> tokens, position = np.array([[3, 4, 3, 5]]), np.array([3])
        >>> Queries(tokens, position, np.array([4]), np.array([3]), 1).last_repeat(np.array([3]))
        array([[False, False,  True, False]])
    """

    tokens: Int[np.ndarray, "query pos"]
    position: Int[np.ndarray, " query"]
    answer: Int[np.ndarray, " query"]
    wrong: Int[np.ndarray, " query"] | None
    slots: int

    def __len__(self) -> int:
        return len(self.position)

    @property
    def at_hand(self) -> Int[np.ndarray, " token"]:
        """Tokens that are the answer or the wrong answer of some prompt."""
        both = self.answer if self.wrong is None else np.concatenate([self.answer, self.wrong])
        ids: np.ndarray = np.unique(both)
        return ids

    @property
    def earlier(self) -> Bool[np.ndarray, "query pos"]:
        """Positions before the answer position."""
        before: np.ndarray = np.arange(self.tokens.shape[1]) < self.position[:, None]
        return before

    def holding(self, ids: Int[np.ndarray, " query"]) -> Bool[np.ndarray, "query pos"]:
        """Positions before the answer position that have each query's token of `ids`."""
        held: np.ndarray = self.earlier & (self.tokens == ids[:, None])
        return held

    def last_repeat(self, ids: Int[np.ndarray, " query"]) -> Bool[np.ndarray, "query pos"]:
        """The last such position (see `holding`), if there are two or more."""
        held = self.holding(ids)
        last = np.zeros_like(held)
        number = np.flatnonzero(held.sum(1) > 1)
        last[number, held.shape[1] - 1 - held[number, ::-1].argmax(1)] = True
        return last

    def first(self) -> Bool[np.ndarray, "query pos"]:
        """The first position, if it is before the answer position."""
        at_first: np.ndarray = self.earlier & (np.arange(self.tokens.shape[1]) == 0)
        return at_first

    def by_row(self, values: Float[np.ndarray, "*some query"]) -> Float[np.ndarray, "*some row"]:
        """The mean over each prompt's answers, without NaN."""
        slots = values.reshape(*values.shape[:-1], -1, self.slots)
        if self.slots == 1:
            return slots[..., 0]
        filled = ~np.isnan(slots)
        with np.errstate(invalid="ignore"):
            mean: np.ndarray = np.where(filled, slots, 0).sum(-1) / filled.sum(-1)
        return mean


def queries_of(prompts: Prompts) -> Queries:
    """The queries of these prompts.

    Raises InputError for prompts without answers, too few of them, or all with the same answer.
    """
    if prompts.answers is None or prompts.answer_positions is None:
        raise InputError(
            "these prompts have no answers, which the roles analysis needs; give --task, or "
            "--data with an answer column (and a wrong one beside it)"
        )
    rows, slots = prompts.answers.shape
    if rows < FEWEST_ROWS:
        raise InputError(f"too few prompts ({rows}) to classify heads: give at least {FEWEST_ROWS}")
    wrong = None if prompts.wrong is None else prompts.wrong.numpy().reshape(-1)
    queries = Queries(
        tokens=prompts.tokens.numpy().repeat(slots, axis=0),
        position=prompts.answer_positions.numpy().reshape(-1),
        answer=prompts.answers.numpy().reshape(-1),
        wrong=wrong,
        slots=slots,
    )
    if len(queries.at_hand) < 2:
        raise InputError("all prompts have the same answer; give prompts with different answers")
    return queries


@dataclass(frozen=True, eq=False)
class Reading:
    """Activations that the pass recorded, on the CPU, in single precision or better.

    Attributes:
        attention: attention from the answer position to each position.
        reach: norm of the head's output if all its attention were on one position.
        z: head outputs at `hook_z` at the answer position.
        sources: mean value over some positions (see `read`); zero where there are none.
        ahead: the residual stream before each layer, at the answer position.
        final: the residual stream after the last layer.
        outputs: what the layers that were read make of their heads' outputs.
        left_out: layer -> why its heads were not read; their activations are zero.
    """

    attention: Float[np.ndarray, "layer head query pos"]
    reach: Float[np.ndarray, "layer head query pos"]
    z: Float[Tensor, "layer query head d_head"]
    sources: Float[Tensor, "source layer query head d_head"]
    ahead: Float[Tensor, "layer query d_model"]
    final: Float[Tensor, "query d_model"]
    outputs: Mapping[int, OutputWeights]
    left_out: Mapping[int, str]


@torch.no_grad()
def read(
    model: Model,
    view: ModelWeights,
    queries: Queries,
    sources: Bool[np.ndarray, "source query pos"],
    *,
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> Reading:
    """Record attention and head outputs in one pass; the result does not depend on batching.

    Args:
        model: any TransformerLens model.
        view: its weights.
        queries: the queries; a prompt with several answers is run once for each.
        sources: sets of positions whose mean values are stored.
        memory: bound for a batch.
        progress: called with a description of each step.

    Raises:
        InputError: missing or silent hook points, no layer whose heads can be read, a residual
            stream that is normalized after each addition.
    """
    outputs, left_out = readable(model, view)
    n_asks, n_pos = queries.tokens.shape
    recorder = _Recorder(view, outputs, queries, sources)
    points, patterns = hook_points(model), pattern_points(model)
    last = f"blocks.{view.n_layers - 1}.hook_resid_post"
    for name in [*map(entry, range(view.n_layers)), last]:
        if name not in points:
            raise InputError(f"the model has no hook point {name}, so its heads cannot be read")
    itemsize = itemsize_of(model)
    of_values = 2 * n_pos * view.n_heads * recorder.z.shape[-1]
    row = bytes_per_row(model.cfg, n_pos, itemsize, logits=False, n_stored=of_values)
    size = rows_that_fit(parse_memory(memory), row, n_pos)
    for start in range(0, n_asks, size):
        progress(f"attention and direct effects, prompt {start + 1} of {n_asks}")
        batch = slice(start, min(start + size, n_asks))
        recorder.hooks_read.clear()
        hooks: list[tuple[Any, Callable[..., Any]]] = []
        for n in range(view.n_layers):
            hooks.append((points[entry(n)], partial(recorder.residual, layer=n, at=batch)))
            if n in outputs:
                v = points[f"blocks.{n}.attn.hook_v"]
                hooks += [
                    (v, partial(recorder.value, layer=n, at=batch)),
                    (patterns[n], partial(recorder.pattern, layer=n, at=batch)),
                    (points[hook_z(n)], partial(recorder.heads, layer=n, at=batch)),
                ]
        hooks.append((points[last], partial(recorder.end, at=batch)))
        run(model, torch.from_numpy(queries.tokens[batch]), hooks)
        recorder.check_hooks()
    left_out |= recorder.disagreeing()
    if len(left_out) == view.n_layers:
        raise InputError(f"no head can be read: layer 0 is left out: {left_out[0]}")
    return recorder.reading(left_out)


def readable(model: Model, view: ModelWeights) -> tuple[dict[int, OutputWeights], dict[int, str]]:
    """What layers make of their heads' outputs, and why the others' heads cannot be read.

    Raises InputError if the residual stream is normalized after each addition.
    """
    points, parts = hook_points(model), layer_parts(model)
    outputs, left_out = dict[int, OutputWeights](), dict[int, str]()
    for layer in range(view.n_layers):
        silent = f"blocks.{layer}.attn.hook_v" not in points
        if not parts[layer].heads or silent:
            left_out[layer] = f"layer {layer} shows no {'values' if silent else 'heads'}"
            continue
        try:
            w = view.outputs(layer)
        except InputError as error:
            left_out[layer] = str(error)
            continue
        if w.residual_norm.kind is not None:
            raise InputError(
                f"layer {layer} normalizes the residual stream it adds to, so a head has no "
                "direct effect and no role can be tested"
            )
        if parts[layer].factor is None:
            left_out[layer] = f"layer {layer} does not add its heads' outputs as they are"
        else:
            outputs[layer] = w
    if not outputs:
        raise InputError(f"no head can be read: layer 0 is left out: {left_out[0]}")
    return outputs, left_out


class _Recorder:
    """Records a `Reading` batch by batch."""

    def __init__(
        self,
        view: ModelWeights,
        outputs: dict[int, OutputWeights],
        queries: Queries,
        sources: Bool[np.ndarray, "source query pos"],
    ):
        L, H = view.n_layers, view.n_heads
        D = max(w.W_O.shape[1] for w in outputs.values())
        n, n_pos = queries.tokens.shape
        self.outputs, self.position = outputs, torch.from_numpy(queries.position)
        self.dtype = at_least_single(next(iter(outputs.values())).W_O[:0]).dtype
        zeros = partial(torch.zeros, dtype=self.dtype)
        self.attention, self.reach = zeros(L, n, H, n_pos), zeros(L, n, H, n_pos)
        self.z, self.summed = zeros(L, n, H, D), zeros(L, n, H, D)
        self.sources = zeros(len(sources), L, n, H, D)
        self.ahead, self.final = zeros(L, n, view.d_model), zeros(n, view.d_model)
        share = sources / np.maximum(sources.sum(-1, keepdims=True), 1)
        self.share = torch.from_numpy(share).to(self.dtype)
        self.values: dict[int, Tensor] = {}
        self.hooks_read: set[str] = set()

    def _at(self, value: Tensor, at: slice) -> Tensor:
        rows = torch.arange(len(value), device=value.device)
        return value[rows, self.position[at].to(value.device)].detach()

    def residual(self, value: Tensor, hook: Any, *, layer: int, at: slice) -> None:
        """Record the residual stream before a layer."""
        self.ahead[layer, at] = self._at(value, at).to(self.ahead)
        self.hooks_read.add(f"{layer} residual")

    def value(self, value: Tensor, hook: Any, *, layer: int, at: slice) -> None:
        """Record what the heads would write from each position, and the sources' mean values."""
        W_O = at_least_single(_in_stream(self.outputs[layer]))
        v = at_least_single(by_head(value.detach(), value.shape[2]).to(W_O))
        v = v.repeat_interleave(len(W_O) // v.shape[2], dim=2)  # shared by query heads
        gram = W_O @ W_O.mT  # squared norms of v W_O without forming it
        squared = torch.einsum("nphd,hde,nphe->nhp", v, gram.to(v), v)
        self.reach[layer, at] = squared.clamp(min=0).sqrt().to(self.reach)
        share, d = self.share[:, at].to(v), v.shape[-1]
        mean = torch.einsum("snp,nphd->snhd", share, v)
        self.sources[:, layer, at, :, :d] = mean.to(self.sources)
        self.values[layer] = v
        self._sum(layer, at)
        self.hooks_read.add(f"{layer} value")

    def pattern(self, value: Tensor, hook: Any, *, layer: int, at: slice) -> None:
        """Record attention from the answer position."""
        if not isinstance(value, Tensor) or value.ndim != 4:
            raise InputError(f"layer {layer} shows no attention pattern [batch head query key]")
        n = at.stop - at.start
        value = value.expand(n, -1, -1, -1) if len(value) == 1 else value
        self.attention[layer, at] = self._at(value.movedim(2, 1), at).to(self.attention)
        self.hooks_read.add(f"{layer} pattern")
        self._sum(layer, at)

    def _sum(self, layer: int, at: slice) -> None:
        """Sum attention times values, once both are recorded."""
        if layer in self.values and f"{layer} pattern" in self.hooks_read:
            v = self.values.pop(layer)
            paid = torch.einsum("nhp,nphd->nhd", self.attention[layer, at].to(v), v)
            self.summed[layer, at, :, : v.shape[-1]] = paid.to(self.summed)

    def heads(self, value: Tensor, hook: Any, *, layer: int, at: slice) -> None:
        """Record the heads' outputs."""
        z = by_head(value, self.z.shape[2])
        self.z[layer, at, :, : z.shape[-1]] = self._at(z, at).to(self.z)
        self.hooks_read.add(f"{layer} z")

    def end(self, value: Tensor, hook: Any, *, at: slice) -> None:
        """Record the residual stream after the last layer, and stop the pass."""
        self.final[at] = self._at(value, at).to(self.final)
        if not bool(self.final[at].isfinite().all()):
            raise InputError(
                "the model's residual stream has NaN or infinite values on these prompts"
            )
        if len(self.hooks_read) >= len(self.ahead) + 3 * len(self.outputs):
            raise StopForwardError

    def check_hooks(self) -> None:
        for layer in self.outputs:
            for what in ("value", "pattern", "z"):
                if f"{layer} {what}" not in self.hooks_read:
                    raise InputError(
                        f"layer {layer} shows no {what}: fused attention hides it; load the model "
                        "with interp_toolkit.load, or with attn_implementation='eager'"
                    )

    def disagreeing(self) -> dict[int, str]:
        """Layers where attention times values is not `hook_z`."""
        return {
            layer: f"layer {layer}: attention times values differs from hook_z, so head outputs "
            "cannot be traced to source positions"
            for layer, w in self.outputs.items()
            if not agrees(self.summed[layer], self.z[layer], w.W_O.dtype)
        }

    def reading(self, left_out: Mapping[int, str]) -> Reading:
        """The recorded activations, with layer and head as the first axes."""
        for values in (self.attention, self.reach, self.z):
            values[list(left_out)] = 0
        self.sources[:, list(left_out)] = 0
        attention, reach = (t.movedim(2, 1).numpy() for t in (self.attention, self.reach))
        outputs = {n: w for n, w in self.outputs.items() if n not in left_out}
        return Reading(
            attention, reach, self.z, self.sources, self.ahead, self.final, outputs, left_out
        )


def _in_stream(w: OutputWeights) -> Float[Tensor, "head d_head d_model"]:
    """W_O with the weights (and centering) of a norm behind it, without that norm's scale."""
    return w.post_norm.of_part(w.W_O, w.W_O.new_ones(w.W_O.shape[:2]))


class Writing:
    """Direct effects on logits.

    Args:
        view: the model's weights.
        reading: the recorded activations.
        queries: the queries.
    """

    def __init__(self, view: ModelWeights, reading: Reading, queries: Queries):
        self.view, self.reading, self.queries = view, reading, queries
        ids = np.unique(np.concatenate([queries.tokens.ravel(), queries.at_hand]))
        self.ids = ids[ids < view.W_U.shape[1]]
        self.U, self.b_U = readout(view, self.ids)
        self.scale = view.final_norm.scale(reading.final)
        self._written = {n: self._in_stream(n, w) for n, w in reading.outputs.items()}

    def _in_stream(
        self, layer: int, w: OutputWeights
    ) -> tuple[Float[Tensor, "head d_head d_model"], Float[Tensor, " query"]]:
        """What a head's output is multiplied with, and what that is divided by for each query."""
        W_O, z = at_least_single(w.W_O).cpu(), self.reading.z[layer]
        scale = torch.ones(len(z), dtype=W_O.dtype)
        if w.post_norm.kind is not None:
            summed = torch.einsum("nhd,hdm->nm", z[..., : W_O.shape[1]].to(W_O), W_O)
            scale = w.post_norm.scale((summed + w.b_O.cpu()).to(w.W_O)).cpu().to(W_O)
        return at_least_single(_in_stream(w)).cpu(), scale

    def columns(self, tokens: Int[np.ndarray, "..."]) -> Int[Tensor, "..."]:
        """The indices of tokens among `ids`."""
        return torch.from_numpy(np.searchsorted(self.ids, tokens).clip(max=len(self.ids) - 1))

    def of_heads(
        self, layer: int, z: Float[Tensor, "query head d_head"]
    ) -> Float[Tensor, "query head d_model"]:
        """Contributions of heads with these outputs, divided by the final norm's scale."""
        if layer in self.reading.left_out:
            return z.new_zeros(*z.shape[:2], self.view.d_model)
        W_O, behind = self._written[layer]
        written = torch.einsum("nhd,hdm->nhm", z[..., : W_O.shape[1]].to(W_O), W_O)
        return written / (self.scale * behind)[:, None, None]

    @property
    def common_scale(self) -> Float[np.ndarray, " query"]:
        """Factors that replace each query's norm scale by that of all queries (harmonic mean).

        The scale varies with all that is written, so under it even a constant output may vary.
        """
        factors: np.ndarray = (self.scale * (1 / self.scale).mean()).numpy()
        return factors

    def on(
        self, written: Float[Tensor, "query head d_model"], tokens: Int[np.ndarray, " token"]
    ) -> Float[np.ndarray, "query head token"]:
        """Direct effects on the logits of some tokens, the same tokens for all queries."""
        logits: np.ndarray = (written @ self.U[:, self.columns(tokens)].to(written)).numpy()
        return logits

    def on_own(
        self, written: Float[Tensor, "query head d_model"], tokens: Int[np.ndarray, "query token"]
    ) -> Float[np.ndarray, "query head token"]:
        """Direct effects on the logits of each query's own tokens."""
        own = self.U.T[self.columns(tokens)].to(written)  # query token d_model
        logits: np.ndarray = torch.einsum("nhm,ntm->nht", written, own).numpy()
        return logits

    def lens(self, layer: int) -> Float[np.ndarray, "query pos"]:
        """The logit lens before a layer at the answer position, for the prompt's own tokens."""
        stream = self.reading.ahead[layer]
        read = stream / self.view.final_norm.scale(stream)[:, None]
        columns = self.columns(self.queries.tokens)
        U = self.U.T[columns].to(read)
        logits = torch.einsum("nm,npm->np", read, U) + self.b_U[columns].to(read)
        values: np.ndarray = logits.numpy()
        return values

    def difference(self) -> Float[np.ndarray, " query"]:
        """The model's preference for the answer, in logits."""
        return self.difference_of(self.reading.final, slice(0, len(self.queries)))

    def difference_of(
        self, final: Float[Tensor, "some d_model"], at: slice
    ) -> Float[np.ndarray, " some"]:
        """The preference for another final residual stream, for some of the queries."""
        read = final.double() / self.view.final_norm.scale(final.double())[:, None]
        columns = self.columns(self.queries.at_hand)
        logits = read @ self.U[:, columns].to(read) + self.b_U[columns].to(read)
        difference: np.ndarray = (
            logits.numpy() * preferred(self.queries.at_hand, self.queries)[at]
        ).sum(1)
        return difference


def readout(
    view: ModelWeights, ids: Int[np.ndarray, " token"]
) -> tuple[Float[Tensor, "d_model token"], Float[Tensor, " token"]]:
    """U and b of some tokens, on the CPU: logits before a soft cap are `x / scale @ U + b`.

    The final norm's centering and weights are in U, its bias in b; its scale is `norm.scale(x)`.
    """
    norm, W_U = view.final_norm, at_least_single(view.W_U[:, ids])
    constant = at_least_single(view.b_U[ids])
    if norm.b is not None:
        constant = constant + at_least_single(norm.b) @ W_U
    return read_through(norm, W_U).detach().cpu(), constant.detach().cpu()


def preference(
    logits: Float[np.ndarray, "query some token"],
    tokens: Int[np.ndarray, " token"],
    queries: Queries,
) -> Float[np.ndarray, "query some"]:
    """The answer's logit minus the wrong answer's, or minus the mean logit of other answers."""
    preferences: np.ndarray = np.einsum("ast,at->as", logits, preferred(tokens, queries))
    return preferences


def preferred(
    tokens: Int[np.ndarray, " token"], queries: Queries
) -> Float[np.ndarray, "query token"]:
    """Weights of the preference: 1 at the answer, in total -1 at the alternatives."""
    own: np.ndarray = tokens == queries.answer[:, None]
    against: np.ndarray = ~own / (~own).sum(1, keepdims=True)
    if queries.wrong is not None:
        against = (tokens == queries.wrong[:, None]).astype(float)
    preferred: np.ndarray = own - against
    return preferred


def mean_of_others(
    values: Float[np.ndarray, "query some token"],
    left_out: Sequence[Int[np.ndarray, " query"]],
    tokens: Int[np.ndarray, " token"],
) -> Float[np.ndarray, "query some"]:
    """Mean over tokens except those in `left_out`; NaN if no token is left."""
    included = np.ones((len(values), len(tokens)), dtype=bool)
    for ids in left_out:
        included &= tokens != ids[:, None]
    with np.errstate(invalid="ignore"):
        mean: np.ndarray = np.einsum("ast,at->as", values, included) / included.sum(1)[:, None]
    return mean
