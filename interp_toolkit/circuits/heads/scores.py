"""Scores of every attention head under every detector, with their significance.

Steps: make prompts (`prompts`), list the pairs of each pattern and its matched controls
(`controls`), sum the attention on them in one streaming pass (`patterns`), and compare patterns
with controls (`significance`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp_toolkit.circuits.heads.controls import matched_controls, targets_of
from interp_toolkit.circuits.heads.detectors import Detector, as_detectors
from interp_toolkit.circuits.heads.patterns import RowKind, pattern_sums
from interp_toolkit.circuits.heads.significance import (
    DetectorScores,
    corrected,
    detected,
    score_families,
)
from interp_toolkit.circuits.metrics.prompts import (
    Prompts,
    prompts_from_tokens,
    repeated_prompts,
    walks,
)
from interp_toolkit.errors import InputError, takes
from interp_toolkit.formatting import ShortRepr, listed
from interp_toolkit.models.model import Head, Model, check_model
from interp_toolkit.models.running.memory import parse_memory
from interp_toolkit.models.running.stages import Store, not_stored
from interp_toolkit.models.weights.read import visibility

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_DETECTORS = ("induction", "previous-token", "duplicate-token")


@dataclass(frozen=True, eq=False)
class HeadScores(ShortRepr):
    """The scores of all heads, as `detect` returns them.

    Attributes:
        scores: scores by detector.
        p_adjusted, q_value, detected: results of the tests over all heads and detectors.
        prompts: the prompts; of synthetic ones, those that repeat.
        detectors: the requested detectors.
        kinds: kind of each layer's patterns (see `patterns`).
        notes: detectors without scores, and patterns that are no softmax.
    """

    scores: Sequence[DetectorScores]
    p_adjusted: Float[np.ndarray, "detector layer head"]
    q_value: Float[np.ndarray, "detector layer head"]
    detected: Bool[np.ndarray, "detector layer head"]
    prompts: Prompts
    detectors: Sequence[Detector]
    kinds: tuple[RowKind, ...]
    notes: tuple[str, ...] = ()

    def detected_heads(self, detector: str) -> list[Head]:
        """Heads that have a detector's pattern, sorted by layer."""
        names = [s.detector for s in self.scores]
        layers, heads = np.nonzero(self.detected[names.index(detector)])
        return [Head(*at) for at in zip(layers.tolist(), heads.tolist(), strict=True)]

    def to_frame(self) -> pd.DataFrame:
        """Table with one row per detector and head."""
        import pandas as pd

        rows = []
        for d, s in enumerate(self.scores):
            for layer, head in np.ndindex(*s.score.shape):
                if self.kinds[layer] == "none":
                    continue
                at = layer, head
                rows.append(
                    {
                        "detector": s.detector,
                        "layer": layer,
                        "head": head,
                        "attention": float(s.attention[at]),
                        "score": float(s.score[at]),
                        "uniform": float(s.uniform[at]),
                        "null_mean": float(s.null_mean[at]),
                        "excess": float(s.excess[at]),
                        "p_value": float(s.p_value[at]),
                        "p_adjusted": float(self.p_adjusted[(d, *at)]),
                        "q_value": float(self.q_value[(d, *at)]),
                        "detected": bool(self.detected[(d, *at)]),
                    }
                )
        return pd.DataFrame(rows)


@takes(model=check_model)
def score_heads(
    model: Model,
    tokens: Any = None,
    detectors: Any = DEFAULT_DETECTORS,
    *,
    hops: int = 2,
    bos: int | Literal["auto"] | None = "auto",
    seed: int = 0,
    memory: int | str | None = None,
) -> pd.DataFrame:
    """Score of every head under every detector, with its null: one row per detector and head.

    Args:
        model: any TransformerLens model.
        tokens: prompts of token ids, [row pos]; default: repeated random tokens.
        detectors: one or a list of: registered names, `Detector` objects, masks [query key], or
            functions of a prompt's tokens that return one.
        hops: number of hops of the k-hop detector.
        bos: see `repeated_prompts`.
        seed: seed of prompts and controls.
        memory: memory limit for activations, such as "4GiB".

    Returns:
        Columns detector, layer, head, attention (mean fraction of a query's attention on its
        targets, 0 to 1), score (the same over queries that matched controls have too),
        uniform (score of uniform attention), null_mean (score of the closest controls, or of
        uniform attention if that is larger), excess ((score - uniform) / (1 - uniform)), p_value,
        p_adjusted (Holm) and q_value (Benjamini-Hochberg), both over all heads and detectors, and
        detected. NaN if the prompts have no targets.

    Raises:
        InputError: attention patterns cannot be read, tokens do not fit the model, or a detector is
            unknown, repeated, or of later tokens in a causal model.

    Examples:
        >>> import interp_toolkit as it
        >>> frame = score_heads(it.load("toy:induction"), detectors=["induction"])
        >>> frame[frame.detected][["layer", "head"]].to_numpy().tolist()
        [[1, 0]]
    """
    return detect(model, tokens, detectors, hops=hops, bos=bos, seed=seed, memory=memory).to_frame()


def detect(
    model: Model,
    tokens: Any = None,
    detectors: Sequence[Any] = DEFAULT_DETECTORS,
    *,
    hops: int = 2,
    bos: int | Literal["auto"] | None = "auto",
    seed: int = 0,
    made: Prompts | None = None,
    look: Callable[[Float[Tensor, "row head query key"], int], None] | None = None,
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda step: None,
    store: Store = not_stored,
) -> HeadScores:
    """Scores as in `score_heads`, with the prompts and the scores per prompt; same errors.

    Args:
        model: any TransformerLens model.
        tokens: prompts, also as `Prompts`, whose answers the answer detector needs.
        detectors: see `score_heads`.
        hops: see `score_heads`.
        bos: see `score_heads`.
        seed: see `score_heads`.
        made: repeated prompts to use instead of new ones.
        look: called with the patterns of the first prompts, in the same pass (`pattern_sums`).
        memory: see `score_heads`.
        progress: called with a description of each step.
        store: keeps the attention of each batch of prompts.
    """
    chosen = as_detectors(detectors, hops)
    causal = is_causal(model)
    for detector in chosen:
        if detector.later and causal:
            raise InputError(
                f"{detector.name} detects attention to later tokens, which causal attention "
                "rules out; leave it out"
            )
    if tokens is None:
        repeats = repeated_prompts(model, bos=bos, seed=seed) if made is None else made
        groups = [(repeats, [d for d in chosen if d.rows == "repeats"])]
        groups.append((walks(model, repeats, seed=seed), [d for d in chosen if d.rows == "walks"]))
    else:
        repeats = tokens if isinstance(tokens, Prompts) else prompts_from_tokens(tokens, model)
        groups = [(repeats, chosen)]
    scores: list[DetectorScores] = []
    without_keys: set[str] = set()
    kinds: tuple[RowKind, ...] = ()
    windows = [visibility(model, layer)[1] for layer in range(int(model.cfg.n_layers))]
    for prompts, members in groups:
        if not members:
            continue
        progress(f"attention patterns on {prompts.source}")
        controls = matched_controls(
            prompts,
            members,
            causal=causal,
            d_model=int(model.cfg.d_model),
            seed=seed,
            memory=parse_memory(memory),
        )
        look_now = look if prompts is repeats else None
        sums = pattern_sums(
            model, controls, look=look_now, memory=memory, progress=progress, store=store
        )
        kinds = sums.kinds
        uniform = {window: controls.uniform(window) for window in set(windows)}
        new = score_families(members, controls, sums, np.stack([uniform[w] for w in windows]))
        scores += new
        unscored = [d for d, s in zip(members, new, strict=True) if np.isnan(s.score).all()]
        rows = torch.arange(len(prompts))
        without_keys |= {d.name for d in unscored if not targets_of(d, prompts, rows, causal).any()}
    order = [detector.name for detector in chosen]
    scores.sort(key=lambda s: order.index(s.detector))
    stacked = np.stack([s.p_value for s in scores])
    adjusted, q = (part.reshape(stacked.shape) for part in corrected(stacked.ravel()))
    return HeadScores(
        scores=scores,
        p_adjusted=adjusted,
        q_value=q,
        detected=np.stack([detected(p, s) for p, s in zip(adjusted, scores, strict=True)]),
        prompts=repeats,
        detectors=chosen,
        kinds=kinds,
        notes=tuple(_notes(scores, kinds, without_keys)),
    )


def is_causal(model: Model) -> bool:
    """Whether no layer lets a query see later keys."""
    layers = range(int(model.cfg.n_layers))
    return all(visibility(model, layer)[0] == "causal" for layer in layers)


def _notes(
    scores: Sequence[DetectorScores], kinds: Sequence[RowKind], without_keys: Collection[str]
) -> list[str]:
    notes = []
    bare = [str(i) for i, kind in enumerate(kinds) if kind == "none"]
    if bare:
        notes.append(f"layers without attention heads, which are left out: {listed(bare, 8)}")
    for kind in ("signed", "unnormalised"):
        layers = [str(i) for i, k in enumerate(kinds) if k == kind]
        if layers:
            notes.append(
                f"patterns of layer {', '.join(layers)} are {kind}: fractions are of the sum of "
                "each row's absolute values"
            )
    for s in scores:
        if np.isnan(s.score).all():
            lacks = "no keys for this pattern"
            if s.detector not in without_keys:
                lacks = "no query with a key of this pattern and every matched control key"
            notes.append(f"{s.detector}: these prompts have {lacks}")
        elif np.isnan(s.p_value).all():
            notes.append(
                f"{s.detector}: these prompts yield too few matched controls to test attention to "
                "this pattern"
            )
    return notes
