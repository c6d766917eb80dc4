"""How much later heads read what earlier heads write: Q-, K- and V-composition of all pairs.

With `x @ W` as everywhere in TransformerLens, an earlier head writes `x W_V W_O` and a later head
scores `x_q W_Q W_K^T x_k^T`, so that (Elhage et al. 2021, "A Mathematical Framework for Transformer
Circuits", section "Three kinds of composition")

    Q: ||W_OV W_QK|| / (||W_OV|| ||W_QK||)        K: ||W_OV W_QK^T|| / (||W_OV|| ||W_QK||)
    V: ||W_OV W_OV'|| / (||W_OV|| ||W_OV'||)      W_OV = W_V W_O, W_QK = W_Q W_K^T, Frobenius norms.

Norms are folded in where they are linear (see `folding`): scores are those of the model after
TransformerLens's `fold_ln` and `center_writing_weights`, whether or not that was done. Scales are
left out, which no such ratio sees: the attention scale, and a norm's division. Rotary heads are
taken without the turn, which depends on the distance: W_QK is then that of distance 0.
Grouped-query heads are taken per query head.

Each pair is set against a random rotation between writer and reader, with their own singular
values (see `haar`): the baseline 1/sqrt(d) for the score (d the stream's dimensions that the reader
sees), a z-score and a one-sided p-value for its square. P-values are adjusted over all pairs and
all three kinds of the model: Holm (the chance of any false one), and Benjamini and Hochberg.
That a pair composes more than chance says that the reader looks where the writer writes; whether
the model makes use of it, only an intervention can say.

Steps: all matrices are of rank d_head, so that with `W_V = Q R` and `Y = Q' R'` (QR) the norm of
`W_V W_O X Y^T` is that of `(R W_O) (X R'^T)`, [d_head d_head]; no [d_model d_model] is ever made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.circuits.weights.folding import (
    read_through,
    seen_by,
    seen_dimensions,
    written_through,
)
from interp_toolkit.circuits.weights.haar import Spectra, overlap_null, spectra
from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.memory import parse_memory
from interp_toolkit.models.weights.parts import LayerWeights, NormWeights
from interp_toolkit.models.weights.view import ModelWeights, weights
from interp_toolkit.stats import benjamini_hochberg, holm

if TYPE_CHECKING:
    import pandas as pd

MODES = ("Q", "K", "V")
Pairs = Float[np.ndarray, "mode writer_layer writer_head reader_layer reader_head"]


@dataclass(frozen=True, eq=False)
class CompositionScores:
    """Composition of every head with every later head; see the module.

    Arrays are [mode, writer layer, writer head, reader layer, reader head], modes in the order of
    `MODES`; NaN where the writer is not in an earlier layer, where a layer could not be read, and
    where a head is zero.

    Attributes:
        score: the Frobenius ratio, 0 to 1.
        baseline: root mean square of the score under random rotations.
        z: of the squared score, in standard deviations under random rotations.
        p_value: the chance that a random rotation scores as much.
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
            raise InputError(f"composition is Q, K or V, not {mode!r}")
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


@torch.no_grad()
def composition_scores(model: Model, memory: int | str | None = None) -> CompositionScores:
    """Q-, K- and V-composition of all pairs of heads, against random rotations.

    Args:
        model: any TransformerLens model with two layers or more.
        memory: bound on what is held at once beside the weights, such as "4GiB".

    Raises:
        InputError: fewer than two layers whose attention weights can be read.

    Examples:
        >>> import interp_toolkit as it
        >>> composition_scores(it.load("toy:induction")).score.shape
        (3, 2, 2, 2, 2)
    """
    view, limit = weights(model), parse_memory(memory)
    notes, norms = composable_layers(view)
    readable = list(norms)
    shape = (len(MODES), view.n_layers, view.n_heads, view.n_layers, view.n_heads)
    score, baseline, z, p_value = (np.full(shape, np.nan) for _ in range(4))
    for block in _blocks(view, readable, limit // 2):
        writers = {layer: _Writer(view.layer(layer)) for layer in block}
        for layer in readable:
            if layer <= block[0]:
                continue
            w = view.layer(layer)
            d = seen_dimensions(w.norm, view.d_model)
            readers = _readers(w, _centred_after(view, norms, layer))
            for earlier in (writer for writer in block if writer < layer):
                L, size, across = writers[earlier].seen_by(w.norm)
                for mode, (M, reader_size, reader_spectra) in enumerate(readers):
                    at = (mode, earlier, slice(None), layer)
                    with np.errstate(invalid="ignore", divide="ignore"):
                        overlap = _products(L, M, limit // 2) / np.outer(size, reader_size)
                    score[at] = np.sqrt(overlap)
                    baseline[at] = np.where(np.isnan(overlap), np.nan, d**-0.5)
                    null = overlap_null(_column(across), reader_spectra, d) if d > 1 else None
                    if null is not None:
                        z[at], p_value[at] = null.z(overlap), null.p_value(overlap)
    adjusted, q = holm(p_value.ravel()), benjamini_hochberg(p_value.ravel())
    return CompositionScores(
        score, baseline, z, p_value, adjusted.reshape(shape), q.reshape(shape), notes
    )


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
                raise InputError("a norm behind the addition divides the whole residual stream")
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
        notes.append("rotary heads are taken without the turn: W_QK is that of distance 0")
    if after:
        notes.append(
            f"layers {', '.join(map(str, after))} have a norm behind attention: its weights are "
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

    def __init__(self, w: LayerWeights):
        R = torch.linalg.qr(read_through(w.norm, w.W_V), mode="r").R
        self.L = R @ written_through(w.post_norm, w.W_O)
        self._seen: dict[str | None, tuple[Float[np.ndarray, " head"], Spectra]] = {}

    def seen_by(
        self, norm: NormWeights
    ) -> tuple[Float[Tensor, "head d_head d_model"], Float[np.ndarray, " head"], Spectra]:
        """The writer through the reader's norm, its squared norm, its spectrum."""
        L = seen_by(norm, self.L)
        if norm.kind not in self._seen:
            values = _singular_values(L)
            self._seen[norm.kind] = (values**2).sum(-1), spectra(values)
        return L, *self._seen[norm.kind]


_Reader = tuple[Float[Tensor, "head d_model d_head"], Float[np.ndarray, " head"], Spectra]


def _readers(w: LayerWeights, centred_after: bool) -> list[_Reader]:
    """For Q, K and V: `X R^T` with the reader `X Y^T` and `Y = Q R`, squared norms, spectra."""
    W_Q, W_K, W_V = (read_through(w.norm, W) for W in (w.W_Q, w.W_K, w.W_V))
    W_O = written_through(w.post_norm, w.W_O)
    W_O = W_O - W_O.mean(-1, keepdim=True) if centred_after else W_O
    readers = []
    for X, Y in ((W_Q, W_K), (W_K, W_Q), (W_V, W_O.mT)):
        M = X @ torch.linalg.qr(Y, mode="r").R.mT
        values = _singular_values(M)
        readers.append((M, (values**2).sum(-1), spectra(values)))
    return readers


def _centred_after(view: ModelWeights, norms: Mapping[int, NormWeights], layer: int) -> bool:
    """Whether the mean over the stream of what a layer writes is lost on all that reads it."""
    later = [norm for at, norm in norms.items() if at > layer]
    try:
        return all(norm.kind == "LN" for norm in (*later, view.final_norm))
    except InputError:
        return False


def _products(
    L: Float[Tensor, "writer i d_model"], M: Float[Tensor, "reader d_model j"], memory: int
) -> Float[np.ndarray, "writer reader"]:
    """`||L_w M_r||^2` of all pairs, as many writers at once as fit."""
    together = M.permute(1, 0, 2).reshape(M.shape[1], -1)
    per_writer = 2 * L.shape[1] * together.shape[1] * L.element_size()
    rows = []
    for chunk in torch.split(L, max(memory // per_writer, 1)):
        product = (chunk.reshape(-1, L.shape[2]) @ together).square_()
        product = product.reshape(len(chunk), L.shape[1], len(M), M.shape[2])
        rows.append(product.sum((1, 3), dtype=torch.float64))
    squares: np.ndarray = torch.cat(rows).cpu().numpy()
    return squares


def _singular_values(W: Float[Tensor, "head a b"]) -> Float[np.ndarray, "head rank"]:
    values: np.ndarray = torch.linalg.svdvals(W).double().cpu().numpy()
    return values


def _column(values: Spectra) -> Spectra:
    return Spectra(values.second[:, None], values.third[:, None])
