"""The QK and OV analyses: `interp analyze MODEL --probe qk|ov [--layer N --head N]`.

Without a head, a table of all: effective rank of the circuit, and whether it joins tokens to
themselves (`weight_scores`). With one: its spectrum, what its largest components read and write,
and the token pairs with the largest scores (`qk`, `ov`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from interp_toolkit.circuits.qk_ov.result import (
    RESULTS,
    Circuit,
    HeadCircuitResult,
    about_all,
    about_one,
    evidence_of,
    pair_figure,
    score_map,
    spectrum,
)
from interp_toolkit.circuits.weights.ov import ov_circuit
from interp_toolkit.circuits.weights.qk import qk_circuit
from interp_toolkit.circuits.weights.self_scores import weight_scores
from interp_toolkit.circuits.weights.token_scores import TokenScores, read_through, written_through
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.models.about.info import token_words
from interp_toolkit.models.about.record import provenance
from interp_toolkit.models.weights.view import ModelWeights, weights
from interp_toolkit.options import Options, Position
from interp_toolkit.registry import Analysis
from interp_toolkit.results import Figure, head_name, jsonable

COMPONENTS = 5  # of a head, that are listed
PAIRS = 20  # of a head, that are listed
TOKENS = 5  # that stand for a component

#: singular values, (component, sign) -> tokens at its two ends, scores, notes
Parts = tuple[Tensor, Mapping[tuple[int, str], tuple[list[int], list[int]]], TokenScores, list[str]]


class HeadCircuitOptions(Options):
    """Options of `--probe qk` and `--probe ov`."""

    layer: int | None = Field(
        None, ge=0, description="Layer of the head to take apart, with --head; default: all heads."
    )
    head: int | None = Field(None, ge=0, description="The query head to take apart.")
    position: Position | None = Field(
        None,
        description="Of the head's query and key, or source, where positions are learned; default: "
        "their mean. Of rotary and ALiBi heads, how far the key lies before the query.",
    )

    @model_validator(mode="after")
    def _together(self) -> HeadCircuitOptions:
        if self.position == "all":
            raise ValueError("takes one position, not all")
        if (self.layer is None) != (self.head is None):
            raise ValueError("takes --layer and --head together, or neither")
        if self.position is not None and self.layer is None:
            raise ValueError("--position is of one head: give --layer and --head")
        return self


def run(
    model: Any,
    data: FeatureData | None,
    options: HeadCircuitOptions,
    progress: Callable[[str], None],
    *,
    circuit: Circuit,
) -> HeadCircuitResult:
    """What heads attend to (qk) or write (ov), from weights alone.

    Args:
        model: any TransformerLens model.
        data: not used: weights alone are looked at.
        options: see `HeadCircuitOptions`.
        progress: told what is being done.
        circuit: "qk" or "ov".

    Raises:
        InputError: a head that is not there, or weights that cannot be given exactly.
    """
    layer, head, memory = options.layer, options.head, options.memory
    progress(f"{circuit.upper()} scores of all heads")
    view = weights(model)
    frame = weight_scores(model, memory)
    others = "copying" if circuit == "qk" else "matching"
    notes = [note for note in frame.attrs["notes"] if f"no {others} scores" not in note]
    frame["effective_rank"] = _effective_ranks(view, circuit)
    kept = [c for c in frame.columns if c in ("layer", "head", "effective_rank") or circuit in c]
    records = [
        {str(key): jsonable(value) for key, value in record.items()}
        for record in frame[kept].to_dict("records")
    ]
    detail: dict[str, Any] = {"singular_values": [], "components": [], "pairs": []}
    if layer is None or head is None:
        sentence = about_all(circuit, records)
        plots = [score_map(circuit, records)]
    else:
        progress(head_name(layer, head))
        at = None if options.position == "all" else options.position
        detail, plots, said = _taken_apart(
            view, circuit, (layer, head), at, token_words(model), memory
        )
        notes += said
        mine = [r for r in records if (r["layer"], r["head"]) == (layer, head)]
        sentence = about_one(circuit, layer, head, mine[0], detail)
    return RESULTS[circuit](
        probe=circuit,
        verdict=sentence,
        evidence=evidence_of(circuit, records, one_head=layer is not None),
        provenance=provenance(model, {}, options.settings(), None),
        layer=layer,
        head=head,
        heads=records,
        notes=notes,
        plots=plots,
        **detail,
    )


@torch.no_grad()
def _effective_ranks(view: ModelWeights, circuit: Circuit) -> list[float]:
    """`(sum s^2)^2 / sum s^4` over the singular values s of each head's circuit."""
    ranks: list[float] = []
    for layer in range(view.n_layers):
        try:
            X, Y = _factors(view, circuit, layer)
        except InputError:
            ranks += [float("nan")] * view.n_heads
            continue
        small = torch.linalg.qr(X, mode="r").R @ torch.linalg.qr(Y, mode="r").R.mT
        squares = torch.linalg.svdvals(small.double()).square()
        ranks += (squares.sum(-1).square() / squares.square().sum(-1)).tolist()
    return ranks


def _factors(view: ModelWeights, circuit: Circuit, layer: int) -> tuple[Tensor, Tensor]:
    """Every head's circuit as `X @ Y.T`, norms folded in."""
    if circuit == "qk":
        qk = view.layer(layer)
        return read_through(qk.norm, qk.W_Q), read_through(qk.norm, qk.W_K)
    ov = view.ov(layer)
    return read_through(ov.norm, ov.W_V), written_through(ov.post_norm, ov.W_O).mT


def _taken_apart(
    view: ModelWeights,
    circuit: Circuit,
    head: tuple[int, int],
    position: int | None,
    words: Callable[[int], str],
    memory: int | str | None,
) -> tuple[dict[str, Any], list[Figure], list[str]]:
    """One head: singular values, components and pairs; pictures of them; notes."""
    _, _, left, right = RESULTS[circuit].words
    parts = _qk_parts if circuit == "qk" else _ov_parts
    values, ends, scores, notes = parts(view, head, position)
    top = scores.top(PAIRS, memory)
    pairs = [
        {left: words(pair.row), right: words(pair.column), "score": pair.score}
        | {f"{left}_id": pair.row, f"{right}_id": pair.column}
        for pair in top
    ]
    squares = values.double() ** 2
    components = [
        {
            "component": component,
            "singular_value": float(values[component]),
            "share": float(squares[component] / squares.sum()),
            "sign": sign,
            left: ", ".join(words(token) for token in tokens[0]),
            right: ", ".join(words(token) for token in tokens[1]),
        }
        for (component, sign), tokens in ends.items()
    ]
    detail = {"singular_values": values.tolist(), "components": components, "pairs": pairs}
    what = f"the {circuit.upper()} circuit of {head_name(*head)}"
    plots = [pair_figure(scores, top, words, (left, right)), spectrum(values.tolist(), what)]
    return detail, plots, [*notes, *([scores.note] if scores.note else [])]


def _ov_parts(view: ModelWeights, head: tuple[int, int], position: int | None) -> Parts:
    taken = ov_circuit(None, *head, view=view)
    parts = taken.svd(position)
    ends = {
        (i, sign): (
            _standing_out(parts.source_readout[i], sign),
            _standing_out(parts.logit_readout[i], sign),
        )
        for i in range(min(COMPONENTS, len(parts.singular_values)))
        for sign in ("+", "-")
    }
    return parts.singular_values, ends, taken.tokens(position), []


def _qk_parts(view: ModelWeights, head: tuple[int, int], position: int | None) -> Parts:
    """At one position for both, or at a distance where attention itself has positions."""
    taken, notes = qk_circuit(None, *head, view=view), list[str]()
    if taken.rotary is not None or taken.alibi is not None:
        taken = taken.at_distance(position or 0)
        notes.append(f"the key stands {position or 0} positions before the query")
        scores = taken.tokens()
    else:
        scores = taken.tokens(position, position)
    parts = taken.svd()
    shown = min(COMPONENTS, len(parts.singular_values))
    frame = parts.top_tokens(TOKENS, shown)
    ends = {}
    for i in range(shown):
        for sign in ("+", "-"):
            mine = frame[(frame.component == i) & (frame.end == sign)]
            query, key = (mine[mine.side == side].token.tolist() for side in ("query", "key"))
            ends[i, sign] = query, key
    return parts.singular_values, ends, scores, notes


def _standing_out(readout: Float[Tensor, " token"], sign: str) -> list[int]:
    signed = readout if sign == "+" else -readout
    order: list[int] = signed.topk(min(TOKENS, len(signed))).indices.tolist()
    return order


def _unfit(model: Any, data: FeatureData | None) -> str | None:
    """Not part of a plain `interp analyze`: a table for those who ask."""
    return "asks for --layer and --head, or for its name"


QK = Analysis(
    "qk",
    "which tokens a head attends to from which, from weights",
    HeadCircuitOptions,
    partial(run, circuit="qk"),
    _unfit,
)
OV = Analysis(
    "ov",
    "what a head writes for the token it attends to, from weights",
    HeadCircuitOptions,
    partial(run, circuit="ov"),
    _unfit,
)
