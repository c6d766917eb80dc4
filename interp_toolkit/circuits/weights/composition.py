"""Q-, K- and V-composition of all pairs of heads.

TransformerLens multiplies as `x @ W`: an earlier head writes `x W_V W_O`, and a later head scores
`x_q W_Q W_K^T x_k^T`. The scores are (Elhage et al. 2021, "A Mathematical Framework for
Transformer Circuits", section "Three kinds of composition")

    Q: ||W_OV W_QK|| / (||W_OV|| ||W_QK||)        K: ||W_OV W_QK^T|| / (||W_OV|| ||W_QK||)
    V: ||W_OV W_OV'|| / (||W_OV|| ||W_OV'||)      W_OV = W_V W_O, W_QK = W_Q W_K^T, Frobenius norms.

The linear part of each norm is folded into the weights (see `weights.token_scores`). The scores are
therefore those of the model after TransformerLens's `fold_ln` and `center_writing_weights`, whether
or not these were applied. Positive scale factors cancel in the ratios and are left out: the
attention scale, and the division in a norm. Rotary heads are compared without their rotation, which
depends on the distance: W_QK is that of distance 0. With grouped-query attention, each query head
is scored separately.

Null: each pair is compared with the same two heads after a random permutation and random sign flips
of the reader's residual coordinates (see `weights.permutations`). The z-scores and one-sided
p-values are those of `tr((L^T L)^1/2 (M M^T)^1/2)`, where L is the writer's output matrix and M the
reader's input matrix. This statistic weights a direction by its singular value. The score weights
it by the square, so that one large direction hides the others. In a model without norms, each
coordinate is measured in units of the writes of embeddings, heads and MLPs to it, so that rescaling
coordinates does not change z and p. P-values are adjusted over all pairs and all three modes:
Holm (family-wise error rate), and Benjamini and Hochberg (false discovery rate). The baseline of
the score is 1/sqrt(d), where d counts the residual dimensions that are written and that the reader
sees.

Composition above chance means that the reader reads the subspace that the writer writes to. Only
an intervention can show that the model uses it.

Implementation: all matrices have rank d_head. With the QR decompositions `W_V = Q R` and
`Y = Q' R'`, the norm of `W_V W_O X Y^T` is that of `(R W_O) (X R'^T)`, [d_head d_head]. No
[d_model d_model] matrix is formed.
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
from interp_toolkit.circuits.weights.qk import folded_note
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
ROUNDING = 1e-13  # squared singular values below this fraction of the largest count as zero
Pairs = Float[np.ndarray, "mode writer_layer writer_head reader_layer reader_head"]


@dataclass(frozen=True, eq=False)
class CompositionScores:
    """Composition scores of every head with every later head; see the module.

    Arrays are [mode, writer layer, writer head, reader layer, reader head], with modes in the order
    of `MODES`. Entries are NaN if the writer is not in an earlier layer, if a layer could not be
    read, or if a head's weights are zero.

    Attributes:
        score: ratio of Frobenius norms, 0 to 1.
        baseline: root mean square of the score under permutations of coordinates, 1/sqrt(d).
        z: z-score of the overlap of writer and reader under such permutations.
        p_value: probability of at least this overlap under such permutations.
        p_adjusted: Holm-adjusted p-values, over all scored pairs and modes.
        q_value: Benjamini-Hochberg q-values, over the same.
        z_most: z-score of the largest overlap that a writer and a reader with these singular values
            can have.
        notes: layers that were left out, and approximations.
    """

    score: Pairs
    baseline: Pairs
    z: Pairs
    p_value: Pairs
    p_adjusted: Pairs
    q_value: Pairs
    z_most: Pairs
    notes: Sequence[str]

    def mode(self, mode: str) -> Float[np.ndarray, "layer head layer head"]:
        """Scores of one mode, [writer layer, writer head, reader layer, reader head].

        Raises:
            InputError: the mode is not Q, K or V.
        """
        _check_mode(mode)
        scores: np.ndarray = self.score[MODES.index(mode)]
        return scores

    def to_frame(self) -> pd.DataFrame:
        """Table with one row per pair and mode that has a score, sorted by p-value."""
        import pandas as pd

        where = np.nonzero(~np.isnan(self.score))
        columns: dict[str, Any] = {"mode": np.array(MODES)[where[0]]}
        names = ("writer_layer", "writer_head", "reader_layer", "reader_head")
        columns |= dict(zip(names, where[1:], strict=True))
        for name in ("score", "baseline", "z", "p_value", "p_adjusted", "q_value"):
            columns[name] = getattr(self, name)[where]
        frame = pd.DataFrame(columns)
        return frame.sort_values(["p_value", "z"], ascending=[True, False], ignore_index=True)


def _check_mode(mode: str) -> None:
    if mode not in MODES:
        raise InputError(f"composition must be Q, K or V, not {mode!r}")


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
    """Q-, K- and V-composition scores of all pairs of heads, with a permutation null.

    Args:
        model: any TransformerLens model with two layers or more.
        memory: memory limit beside the weights, such as "4GiB".
        reader_layers: layers whose heads are scored as readers; None: all. Others are NaN.
        modes: modes to compute; scores of others are NaN.
        null: whether to compare scores with permuted coordinates; if not, z and p are NaN.
        view: `weights(model)`, if already computed.

    Raises:
        InputError: the model has fewer than two layers whose attention weights can be read, or
            lacks one of the reader layers; or a mode is not Q, K or V.

    Examples:
        >>> import interp_toolkit as it
        >>> composition_scores(it.load("toy:induction")).score.shape
        (3, 2, 2, 2, 2)
    """
    modes = tuple(dict.fromkeys(modes))
    for name in modes:
        _check_mode(name)
    view, limit = weights(model) if view is None else view, parse_memory(memory)
    notes, norms = composable_layers(view)
    readable = list(norms)
    shape = (len(MODES), view.n_layers, view.n_heads, view.n_layers, view.n_heads)
    score, baseline, z, p_value, z_most = (np.full(shape, np.nan) for _ in range(5))
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
            w = view.layer(layer).folded()
            d = read_dimensions(w.norm, view.d_model) if scale is None else int((scale > 0).sum())
            readers = _readers(w, _centered_after(view, norms, layer), scale, modes)
            for earlier in (writer for writer in block if writer < layer):
                writer = writers[earlier].normalized_by(w.norm)
                for mode, reader in readers.items():
                    at = (MODES.index(mode), earlier, slice(None), layer)
                    product = _products(writer.factor, reader.factor, limit // 2)
                    with np.errstate(invalid="ignore", divide="ignore"):
                        score[at] = np.sqrt(product / np.outer(writer.size, reader.size))
                    baseline[at] = np.where(np.isnan(score[at]), np.nan, max(d, 1) ** -0.5)
                    if null and d > 2:
                        overlap = _products(writer.root, reader.root, limit // 2)
                        z[at], p_value[at], z_most[at] = _against_permutations(
                            overlap, writer, reader, d, n_pairs, view.n_heads
                        )
    adjusted, q = holm(p_value.ravel()), benjamini_hochberg(p_value.ravel())
    return CompositionScores(
        score, baseline, z, p_value, adjusted.reshape(shape), q.reshape(shape), z_most, notes
    )


@dataclass(frozen=True, eq=False)
class _Side:
    """One layer's heads as writers or as readers of the residual stream.

    Attributes:
        factor: `R W_O` of a writer, or `R X^T` of a reader (see the module), which has the norm of
            the head's whole circuit.
        in_units: the factor with coordinates in their units; None if the units are 1.
        size: squared Frobenius norm of the factor.
        root: `S^1/2 V^T` of the singular value decomposition of `in_units`, or of `factor` if that
            is None.
        moments: moments of the root, for the null.
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
    def singular_values(self) -> Float[np.ndarray, "head k"]:
        """Singular values of the factor in units, largest first: the squares of the root's."""
        values: np.ndarray = torch.linalg.svdvals(self.root).double().square().cpu().numpy()
        return values

    @cached_property
    def moments(self) -> OverlapMoments:
        return overlap_moments(self.root)


def _root(factor: Float[Tensor, "head k d"]) -> Float[Tensor, "head k d"]:
    """`S^1/2 V^T` of the factor `U S V^T`, from the eigenvectors U of its [k k] Gram matrix."""
    squares, U = torch.linalg.eigh(factor.double() @ factor.double().mT)
    positive = squares > ROUNDING * squares[:, -1:]
    scale = torch.where(positive, squares.clamp(min=0) ** -0.25, 0)
    root: Tensor = (scale[..., None] * U.mT).to(factor.dtype) @ factor
    return root


def _units(
    view: ModelWeights, norms: Mapping[int, NormWeights]
) -> Float[Tensor, " d_model"] | None:
    """Units of the coordinates from all writes to them; None if a norm sets their scale."""
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
) -> tuple[
    Float[np.ndarray, "writer reader"],
    Float[np.ndarray, "writer reader"],
    Float[np.ndarray, "writer reader"],
]:
    """Z-scores, p-values and largest z-scores of the overlaps between the heads of two layers."""
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
    k = min(L.shape[1], M.shape[1])
    most = writer.singular_values[:, :k] @ reader.singular_values[:, :k].T
    return null.z(overlap), p.reshape(overlap.shape), null.z(most)


def composable_layers(view: ModelWeights) -> tuple[list[str], dict[int, NormWeights]]:
    """Layers whose composition can be scored, with their input norms, and notes on the others.

    Returns:
        The notes, and the norm before attention of each such layer.

    Raises:
        InputError: fewer than two layers can be scored.
    """
    notes: list[str] = []
    norms: dict[int, NormWeights] = {}
    rotary, after = False, list[int]()
    for layer in range(view.n_layers):
        try:
            w = view.layer(layer)
            if w.residual_norm.kind is not None:
                raise InputError(
                    "a norm rescales the residual stream after the heads' output is added to it "
                    "(post-norm, as in BERT)"
                )
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
    notes += folded_note(view, norms)
    if after:
        notes.append(
            f"layers {', '.join(map(str, after))} have a norm after attention: its weights are "
            "folded into W_O, and its division is left out"
        )
    return notes, norms


def _blocks(view: ModelWeights, layers: Sequence[int], memory: int) -> Iterator[Sequence[int]]:
    """Consecutive layers whose writers fit in memory together, at least one per block."""
    size = view.n_heads * view.d_head * view.d_model * max(view.W_E.element_size(), 4)
    count = max(memory // size, 1)
    for start in range(0, len(layers), count):
        yield layers[start : start + count]


class _Writer:
    """Output factor `R W_O` with `W_V = Q R`, which determines the norm of `W_V W_O X`."""

    def __init__(self, w: LayerWeights, scale: Float[Tensor, " d_model"] | None):
        W_V, W_O = read_through(w.norm, w.W_V), written_through(w.post_norm, w.W_O)
        self._factor = _factor(W_V, W_O)
        self._in_units = None
        if scale is not None:
            self._in_units = _factor(_read(W_V, scale), _written(W_O, scale))[..., scale > 0]
        self._sides: dict[str | None, _Side] = {}

    def normalized_by(self, norm: NormWeights) -> _Side:
        """Writer with the linear part of the reader's norm applied."""
        if norm.kind not in self._sides:
            self._sides[norm.kind] = _Side(normalized_by(norm, self._factor), self._in_units)
        return self._sides[norm.kind]


def _readers(
    w: LayerWeights,
    centered_after: bool,
    scale: Float[Tensor, " d_model"] | None,
    modes: Collection[str],
) -> dict[str, _Side]:
    """Reader factors `R X^T` by mode, where the reader is `X Y^T` and `Y = Q R`."""
    W_Q, W_K, W_V = (read_through(w.norm, W) for W in (w.W_Q, w.W_K, w.W_V))
    W_O = written_through(w.post_norm, w.W_O)
    W_O = W_O - W_O.mean(-1, keepdim=True) if centered_after else W_O

    def factors(W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> dict[str, Tensor]:
        parts = {"Q": (W_K, W_Q.mT), "K": (W_Q, W_K.mT), "V": (W_O.mT, W_V.mT)}
        return {mode: _factor(*parts[mode]) for mode in modes}

    plain = factors(W_Q, W_K, W_V, W_O)
    if scale is None:
        return {mode: _Side(factor, None) for mode, factor in plain.items()}
    W_Q, W_K, W_V = (_read(W, scale) for W in (W_Q, W_K, W_V))
    in_units = factors(W_Q, W_K, W_V, _written(W_O, scale))
    return {mode: _Side(factor, in_units[mode][..., scale > 0]) for mode, factor in plain.items()}


def _factor(
    Y: Float[Tensor, "head d_model d_head"], X: Float[Tensor, "head d_head d_model"]
) -> Float[Tensor, "head k d_model"]:
    """Product `R X` with `Y = Q R`, which has the norm and row space of `Y X`."""
    R: Tensor = torch.linalg.qr(Y, mode="r").R
    return R @ X


def _read(W: Float[Tensor, "head d_model d_head"], scale: Float[Tensor, " d_model"]) -> Tensor:
    read: Tensor = W * scale[:, None].to(W)
    return read


def _written(W: Float[Tensor, "head d_head d_model"], scale: Float[Tensor, " d_model"]) -> Tensor:
    written: Tensor = W * reciprocal(scale).to(W)
    return written


def _centered_after(view: ModelWeights, norms: Mapping[int, NormWeights], layer: int) -> bool:
    """Whether every later reader centers, and so ignores the mean of a layer's output."""
    later = [norm for at, norm in norms.items() if at > layer]
    try:
        return all(norm.kind == "LN" for norm in (*later, view.final_norm))
    except InputError:
        return False


def _products(
    L: Float[Tensor, "writer i d_model"], M: Float[Tensor, "reader j d_model"], memory: int
) -> Float[np.ndarray, "writer reader"]:
    """Squared norms `||L_w M_r^T||^2` of all pairs, in chunks of writers that fit in memory."""
    together = M.reshape(-1, M.shape[2]).T
    per_writer = 2 * L.shape[1] * together.shape[1] * L.element_size()
    rows = []
    for chunk in torch.split(L, max(memory // per_writer, 1)):
        product = (chunk.reshape(-1, L.shape[2]) @ together).square_()
        product = product.reshape(len(chunk), L.shape[1], len(M), M.shape[1])
        rows.append(product.sum((1, 3), dtype=torch.float64))
    squares: np.ndarray = torch.cat(rows).cpu().numpy()
    return squares
