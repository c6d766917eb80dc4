"""Q-, K- and V-composition of all pairs of heads.

With `x @ W` as everywhere in TransformerLens, an earlier head writes `x W_V W_O` and a later head
scores `x_q W_Q W_K^T x_k^T`, so that (Elhage et al. 2021, "A Mathematical Framework for Transformer
Circuits", section "Three kinds of composition")

    Q: ||W_OV W_QK|| / (||W_OV|| ||W_QK||)        K: ||W_OV W_QK^T|| / (||W_OV|| ||W_QK||)
    V: ||W_OV W_OV'|| / (||W_OV|| ||W_OV'||)      W_OV = W_V W_O, W_QK = W_Q W_K^T, Frobenius norms.

Norms are folded in where they are linear (see `weights.token_scores`): scores are those of the
model after TransformerLens's `fold_ln` and `center_writing_weights`, whether or not that was done.
Scales are left out, which no such ratio sees: the attention scale, and a norm's division. Rotary
heads are taken without the turn, which depends on the distance: W_QK is then that of distance 0.
Grouped-query heads are taken per query head.

Each pair is compared with the same two heads where the reader has the residual coordinates in
random order and with random signs (see `weights.permutations`): z-scores and one-sided p-values of
`tr((L^T L)^1/2 (M M^T)^1/2)`, with L what the writer writes and M what the reader reads. There a
direction counts by its singular value; in the score it counts by the square, and one large
direction hides the others. In a model without norms each coordinate is measured in units of what
embeddings, heads and MLPs write to it, so that rescaled coordinates leave z and p as they are.
P-values are adjusted over all pairs and all three kinds of the model: Holm (the chance of any
false one), and Benjamini and Hochberg. The score's baseline is 1/sqrt(d), d the dimensions of the
stream that are written and that the reader sees.
That a pair composes more than chance says that the reader looks where the writer writes; whether
the model makes use of it, only an intervention can say.

Steps: all matrices are of rank d_head, so that with `W_V = Q R` and `Y = Q' R'` (QR) the norm of
`W_V W_O X Y^T` is that of `(R W_O) (X R'^T)`, [d_head d_head]; no [d_model d_model] is ever made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.circuits.weights.permutations import (
    WORK,
    OverlapMoments,
    coordinate_units,
    held_against_draws,
    overlap_moments,
    overlap_null,
    reciprocal,
)
from interp_toolkit.circuits.weights.token_scores import (
    normalized_by,
    read_dimensions,
    read_through,
    written_through,
)
from interp_toolkit.errors import InputError, takes
from interp_toolkit.models.model import Model, check_model
from interp_toolkit.models.running.memory import parse_memory
from interp_toolkit.models.weights.parts import LayerWeights, NormWeights
from interp_toolkit.models.weights.view import ModelWeights, checked_layer, weights
from interp_toolkit.stats import benjamini_hochberg, holm

if TYPE_CHECKING:
    import pandas as pd

MODES = ("Q", "K", "V")
ROUNDING = 1e-13  # of the largest squared singular value: smaller ones are none
Pairs = Float[np.ndarray, "mode writer_layer writer_head reader_layer reader_head"]


@dataclass(frozen=True, eq=False)
class CompositionScores:
    """Composition of every head with every later head; see the module.

    Arrays are [mode, writer layer, writer head, reader layer, reader head], modes in the order of
    `MODES`; NaN where the writer is not in an earlier layer, where a layer could not be read, and
    where a head is zero.

    Attributes:
        score: the Frobenius ratio, 0 to 1.
        baseline: root mean square of the score under permutations of coordinates, 1/sqrt(d).
        z: of the overlap of writer and reader, in standard deviations under such permutations.
        p_value: the chance that such a permutation overlaps as much.
        p_adjusted: Holm's, over all pairs and modes.
        q_value: Benjamini and Hochberg's, over all pairs and modes.
        notes: layers that were left out, and what is approximate.
    """

    score: Pairs
    baseline: Pairs
    z: Pairs
    p_value: Pairs
    p_adjusted: Pairs
    q_value: Pairs
    notes: Sequence[str]

    def mode(self, mode: str) -> Float[np.ndarray, "layer head layer head"]:
        """The scores of one mode, [writer layer, writer head, reader layer, reader head].

        Raises:
            InputError: a mode that is not Q, K or V.
        """
        if mode not in MODES:
            raise InputError(f"composition must be Q, K or V, not {mode!r}")
        scores: np.ndarray = self.score[MODES.index(mode)]
        return scores

    def to_frame(self) -> pd.DataFrame:
        """One row per pair and mode that has a score, the smallest p-values first."""
        import pandas as pd

        where = np.nonzero(~np.isnan(self.score))
        columns: dict[str, Any] = {"mode": np.array(MODES)[where[0]]}
        names = ("writer_layer", "writer_head", "reader_layer", "reader_head")
        columns |= dict(zip(names, where[1:], strict=True))
        for name in ("score", "baseline", "z", "p_value", "p_adjusted", "q_value"):
            columns[name] = getattr(self, name)[where]
        frame = pd.DataFrame(columns)
        return frame.sort_values(["p_value", "z"], ascending=[True, False], ignore_index=True)


@takes(model=check_model)
@torch.no_grad()
def composition_scores(
    model: Model,
    memory: int | str | None = None,
    reader_layers: Collection[int] | None = None,
    *,
    modes: Collection[str] = MODES,
    null: bool = True,
    view: ModelWeights | None = None,
) -> CompositionScores:
    """Q-, K- and V-composition of all pairs of heads, against permuted coordinates.

    Args:
        model: any TransformerLens model with two layers or more.
        memory: bound on what is held at once beside the weights, such as "4GiB".
        reader_layers: whose heads are taken as readers; None: all. Scores of others are NaN.
        modes: those that are computed; scores of others are NaN.
        null: whether scores are compared with permuted coordinates; z and p are NaN otherwise.
        view: `weights(model)`, if it is at hand.

    Raises:
        InputError: fewer than two layers whose attention weights can be read; a reader layer that
            the model does not have.

    Examples:
        >>> import interp_toolkit as it
        >>> composition_scores(it.load("toy:induction")).score.shape
        (3, 2, 2, 2, 2)
    """
    view, limit = weights(model) if view is None else view, parse_memory(memory)
    notes, norms = composable_layers(view)
    readable = list(norms)
    shape = (len(MODES), view.n_layers, view.n_heads, view.n_layers, view.n_heads)
    score, baseline, z, p_value = (np.full(shape, np.nan) for _ in range(4))
    scale = _units(view, norms)
    chosen = None if reader_layers is None else {checked_layer(model, n) for n in reader_layers}
    reading = [layer for layer in readable if chosen is None or layer in chosen]
    writing = [layer for layer in readable if layer < max(reading, default=0)]
    n_pairs = len(modes) * sum(writer < reader for writer in writing for reader in reading)
    for block in _blocks(view, writing, limit // 2):
        writers = {layer: _Writer(view.layer(layer), scale) for layer in block}
        for layer in reading:
            if layer <= block[0]:
                continue
            w = view.layer(layer)
            d = read_dimensions(w.norm, view.d_model) if scale is None else int((scale > 0).sum())
            readers = _readers(w, _centred_after(view, norms, layer), scale)
            for earlier in (writer for writer in block if writer < layer):
                writer = writers[earlier].normalized_by(w.norm)
                for mode, reader in enumerate(readers):
                    if MODES[mode] not in modes:
                        continue
                    at = (mode, earlier, slice(None), layer)
                    product = _products(writer.factor, reader.factor, limit // 2)
                    with np.errstate(invalid="ignore", divide="ignore"):
                        score[at] = np.sqrt(product / np.outer(writer.size, reader.size))
                    baseline[at] = np.where(np.isnan(score[at]), np.nan, max(d, 1) ** -0.5)
                    if null and d > 2:
                        overlap = _products(writer.root, reader.root, limit // 2)
                        z[at], p_value[at] = _against_permutations(
                            overlap, writer, reader, d, n_pairs, view.n_heads
                        )
    adjusted, q = holm(p_value.ravel()), benjamini_hochberg(p_value.ravel())
    return CompositionScores(
        score, baseline, z, p_value, adjusted.reshape(shape), q.reshape(shape), notes
    )


@dataclass(frozen=True, eq=False)
class _Side:
    """One layer's heads as writers or as readers of the residual stream.

    Attributes:
        factor: what they write, or transposed what they read.
        in_units: the same in the coordinates' units; None: the factor.
        size: its squared norm.
        root: `S^1/2 V^T` of its singular value decomposition, with coordinates in their units.
        moments: of the root, for the null.
    """

    factor: Float[Tensor, "head k d_model"]
    in_units: Float[Tensor, "head k d"] | None

    @cached_property
    def size(self) -> Float[np.ndarray, " head"]:
        size: np.ndarray = self.factor.double().square().sum((1, 2)).cpu().numpy()
        return size

    @cached_property
    def root(self) -> Float[Tensor, "head k d"]:
        return _root(self.factor if self.in_units is None else self.in_units)

    @cached_property
    def moments(self) -> OverlapMoments:
        return overlap_moments(self.root)


def _root(factor: Float[Tensor, "head k d"]) -> Float[Tensor, "head k d"]:
    """`S^1/2 V^T` with the factor `U S V^T`, from the eigenvectors U of the small Gram matrix."""
    squares, U = torch.linalg.eigh(factor.double() @ factor.double().mT)
    positive = squares > ROUNDING * squares[:, -1:]
    scale = torch.where(positive, squares.clamp(min=0) ** -0.25, 0)
    root: Tensor = (scale[..., None] * U.mT).to(factor.dtype) @ factor
    return root


def _units(
    view: ModelWeights, norms: Mapping[int, NormWeights]
) -> Float[Tensor, " d_model"] | None:
    """Units of the coordinates by what is written to them; None where a norm sets their scale."""
    if any(norm.kind is not None for norm in norms.values()):
        return None
    written = [view.W_E, view.W_pos]
    for layer in range(view.n_layers):
        with suppress(InputError):
            written.append(view.ov(layer).W_O.flatten(0, 1))
        with suppress(InputError):
            mlp = view.mlp(layer)
            written.append(None if mlp is None else mlp.W_out)
    squares = [part.double().square().sum(0) for part in written if part is not None]
    return coordinate_units(torch.stack(squares).sum(0))


def _against_permutations(
    overlap: Float[np.ndarray, "writer reader"],
    writer: _Side,
    reader: _Side,
    d: int,
    n_pairs: int,
    n_heads: int,
) -> tuple[Float[np.ndarray, "writer reader"], Float[np.ndarray, "writer reader"]]:
    """Z and p of the overlaps of two layers."""
    null = overlap_null(writer.moments.column(), reader.moments, d)
    L, M = writer.root, reader.root
    coordinates = L.shape[2]

    def null_scores(pairs: np.ndarray, order: Tensor, sign: Tensor) -> np.ndarray:
        writers, readers = np.divmod(pairs, n_heads)
        permuted = M[..., order.to(M.device)] * sign.to(M)
        product = L[writers] @ permuted[readers].mT
        values: np.ndarray = product.square().sum((1, 2)).cpu().numpy()
        return values

    p = held_against_draws(
        null.p_value(overlap).ravel(),
        overlap.ravel() * d / coordinates,
        null_scores,
        coordinates,
        n_tests=n_pairs * n_heads**2,
        work=WORK / n_pairs,
        cost=L.shape[1] * M.shape[1] * coordinates,
    )
    return null.z(overlap), p.reshape(overlap.shape)


def composable_layers(view: ModelWeights) -> tuple[list[str], dict[int, NormWeights]]:
    """Notes, and the layers that composition can be asked of, with the norms they read through.

    Raises:
        InputError: fewer than two layers.
    """
    notes: list[str] = []
    norms: dict[int, NormWeights] = {}
    rotary, after = False, list[int]()
    for layer in range(view.n_layers):
        try:
            w = view.layer(layer)
            if w.residual_norm.kind is not None:
                raise InputError("a norm after the addition rescales the whole residual stream")
        except InputError as error:
            notes.append(f"layer {layer} is left out: {error}")
            continue
        norms[layer] = w.norm
        rotary = rotary or w.rotary is not None
        after += [layer] if w.post_norm.kind is not None else []
    if len(norms) < 2:
        reason = f" ({notes[0]})" if notes else ""
        raise InputError(
            f"composition needs two layers with attention that can be read; this model has "
            f"{len(norms)} of {view.n_layers}{reason}"
        )
    if rotary:
        notes.append("rotary heads are compared without rotation: W_QK at distance 0")
    if after:
        notes.append(
            f"layers {', '.join(map(str, after))} have a norm after attention: its weights are "
            "folded into W_O, its division is left out"
        )
    return notes, norms


def _blocks(view: ModelWeights, layers: Sequence[int], memory: int) -> Iterator[Sequence[int]]:
    """Runs of layers whose writers fit in memory together, at least one a run."""
    size = view.n_heads * view.d_head * view.d_model * max(view.W_E.element_size(), 4)
    count = max(memory // size, 1)
    for start in range(0, len(layers), count):
        yield layers[start : start + count]


class _Writer:
    """`R W_O` with `W_V = Q R`: all that a later head's norm and weights see of `W_V W_O`."""

    def __init__(self, w: LayerWeights, scale: Float[Tensor, " d_model"] | None):
        W_V, W_O = read_through(w.norm, w.W_V), written_through(w.post_norm, w.W_O)
        self._factor = _factor(W_V, W_O)
        self._in_units = None
        if scale is not None:
            self._in_units = _factor(_read(W_V, scale), _written(W_O, scale))[..., scale > 0]
        self._sides: dict[str | None, _Side] = {}

    def normalized_by(self, norm: NormWeights) -> _Side:
        """The writer through the reader's norm."""
        if norm.kind not in self._sides:
            self._sides[norm.kind] = _Side(normalized_by(norm, self._factor), self._in_units)
        return self._sides[norm.kind]


def _readers(
    w: LayerWeights, centred_after: bool, scale: Float[Tensor, " d_model"] | None
) -> list[_Side]:
    """Reader factors `R X^T` for Q, K and V, where the reader is `X Y^T` and `Y = Q R`."""
    W_Q, W_K, W_V = (read_through(w.norm, W) for W in (w.W_Q, w.W_K, w.W_V))
    W_O = written_through(w.post_norm, w.W_O)
    W_O = W_O - W_O.mean(-1, keepdim=True) if centred_after else W_O
    factors = [_factor(W_K, W_Q.mT), _factor(W_Q, W_K.mT), _factor(W_O.mT, W_V.mT)]
    if scale is None:
        return [_Side(factor, None) for factor in factors]
    W_Q, W_K, W_V = (_read(W, scale) for W in (W_Q, W_K, W_V))
    W_O = _written(W_O, scale)
    in_units = [_factor(W_K, W_Q.mT), _factor(W_Q, W_K.mT), _factor(W_O.mT, W_V.mT)]
    return [
        _Side(factor, other[..., scale > 0])
        for factor, other in zip(factors, in_units, strict=True)
    ]


def _factor(
    Y: Float[Tensor, "head d_model d_head"], X: Float[Tensor, "head d_head d_model"]
) -> Float[Tensor, "head k d_model"]:
    """`R X` with `Y = Q R`, of the same norm and row space as `Y X`."""
    R: Tensor = torch.linalg.qr(Y, mode="r").R
    return R @ X


def _read(W: Float[Tensor, "head d_model d_head"], scale: Float[Tensor, " d_model"]) -> Tensor:
    read: Tensor = W * scale[:, None].to(W)
    return read


def _written(W: Float[Tensor, "head d_head d_model"], scale: Float[Tensor, " d_model"]) -> Tensor:
    written: Tensor = W * reciprocal(scale).to(W)
    return written


def _centred_after(view: ModelWeights, norms: Mapping[int, NormWeights], layer: int) -> bool:
    """Whether the mean over the stream of what a layer writes is lost on all that reads it."""
    later = [norm for at, norm in norms.items() if at > layer]
    try:
        return all(norm.kind == "LN" for norm in (*later, view.final_norm))
    except InputError:
        return False


def _products(
    L: Float[Tensor, "writer i d_model"], M: Float[Tensor, "reader j d_model"], memory: int
) -> Float[np.ndarray, "writer reader"]:
    """`||L_w M_r^T||^2` of all pairs, as many writers at once as fit."""
    together = M.reshape(-1, M.shape[2]).T
    per_writer = 2 * L.shape[1] * together.shape[1] * L.element_size()
    rows = []
    for chunk in torch.split(L, max(memory // per_writer, 1)):
        product = (chunk.reshape(-1, L.shape[2]) @ together).square_()
        product = product.reshape(len(chunk), L.shape[1], len(M), M.shape[1])
        rows.append(product.sum((1, 3), dtype=torch.float64))
    squares: np.ndarray = torch.cat(rows).cpu().numpy()
    return squares
