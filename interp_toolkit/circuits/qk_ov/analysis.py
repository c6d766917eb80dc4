"""The QK and OV analyses: `interp analyze MODEL --probe qk|ov [--layer N --head N]`.

Without a head, a table of all: effective rank of the circuit, and whether it joins tokens to
themselves (`weight_scores`). With one: its spectrum, what its largest components read and write,
and the token pairs with the largest scores (`qk`, `ov`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.circuits.qk_ov.result import (
    LEVEL,
    CircuitResult,
    OVResult,
    QKResult,
    head_map,
    pair_map,
    spectrum,
)
from interp_toolkit.circuits.weights.folding import read_through, written_through
from interp_toolkit.circuits.weights.haar import spectra
from interp_toolkit.circuits.weights.ov import ov_circuit
from interp_toolkit.circuits.weights.qk import qk_circuit
from interp_toolkit.circuits.weights.self_scores import weight_scores
from interp_toolkit.circuits.weights.token_scores import TokenPair, TokenScores
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.models.about.provenance import provenance
from interp_toolkit.models.weights.view import ModelWeights, weights
from interp_toolkit.registry import Analysis
from interp_toolkit.results import Figure, head_name, jsonable

Circuit = Literal["qk", "ov"]
COMPONENTS = 5  # of a head, that are listed
PAIRS = 20  # of a head, that are listed
AXIS = 12  # tokens on either axis of the picture of pairs
TOKENS = 5  # that stand for a component

#: singular values, (component, sign) -> tokens at its two ends, scores, notes
Parts = tuple[
    Tensor, dict[tuple[int, str], tuple[list[int], list[int]]], TokenScores, Sequence[str]
]

_RESULTS: dict[Circuit, type[CircuitResult]] = {"qk": QKResult, "ov": OVResult}
_DOES = {"qk": "attend to a token's own kind", "ov": "copy"}


def run(
    model: Any,
    *,
    circuit: Circuit,
    data: FeatureData | None = None,
    layer: int | None = None,
    head: int | None = None,
    position: int | Literal["all"] | None = None,
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda step: None,
    probe: str | None = None,
) -> CircuitResult:
    """What heads attend to (qk) or write (ov), from weights alone.

    Args:
        model: any TransformerLens model.
        circuit: "qk" or "ov".
        data: not used: weights alone are looked at.
        layer: of the head to take apart; None, with `head`: all heads.
        head: the query head to take apart.
        position: of the head's query and key, or source, for learned positions; None takes their
            mean. For the scores of rotary and ALiBi heads, how far the key lies before the query.
        memory: bound on what is held at once beside the weights, such as "4GiB".
        progress: told what is being done.
        probe: the name the result goes by; None: the circuit's.

    Raises:
        InputError: a layer without a head or the other way round, one that is not there, or
            weights that cannot be given exactly.
    """
    if position == "all":
        raise InputError(f"--probe {circuit} takes one position, not all")
    if (layer is None) != (head is None):
        raise InputError(f"--probe {circuit} takes --layer and --head together, or neither")
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
        sentence = _about_all(circuit, records)
        plots = [_map(circuit, records)]
    else:
        progress(head_name(layer, head))
        detail, plots, said = _taken_apart(
            view, circuit, (layer, head), position, _token_words(model), memory
        )
        notes += said
        mine = [r for r in records if (r["layer"], r["head"]) == (layer, head)]
        sentence = _about_one(circuit, layer, head, mine[0], detail)
    settings = {"layer": layer, "head": head, "position": position}
    return _RESULTS[circuit](
        probe=probe or circuit,
        verdict=sentence,
        evidence=_evidence(notes),
        provenance=provenance(model, {}, settings, None),
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
        values = torch.linalg.svdvals(small.double()).cpu().numpy()
        ranks += (1 / spectra(values).second).tolist()
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
    _, _, left, right = _RESULTS[circuit].words
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
    plots = [_picture(scores, top, words, (left, right)), spectrum(values.tolist(), what)]
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


def _picture(
    scores: TokenScores,
    top: Sequence[TokenPair],
    words: Callable[[int], str],
    sides: tuple[str, str],
) -> Figure:
    """The scores among the tokens of the top pairs."""
    rows = list(dict.fromkeys(pair.row for pair in top))[:AXIS]
    columns = list(dict.fromkeys(pair.column for pair in top))[:AXIS]
    grid = torch.cartesian_prod(torch.tensor(rows), torch.tensor(columns))
    values = scores.score(grid[:, 0], grid[:, 1]).reshape(len(rows), len(columns))
    return pair_map(_apart(rows, words), _apart(columns, words), values.tolist(), sides)


def _apart(tokens: Sequence[int], words: Callable[[int], str]) -> list[str]:
    """Tokens as text, with their ids where two read the same."""
    texts = [words(token) for token in tokens]
    if len(set(texts)) == len(texts):
        return texts
    return [f"{text} ({token})" for text, token in zip(texts, tokens, strict=True)]


def _about_all(circuit: Circuit, records: Sequence[dict[str, Any]]) -> str:
    known = [r for r in records if r[f"{circuit}_p_adjusted"] is not None]
    found = [r for r in known if r[f"{circuit}_p_adjusted"] <= LEVEL]
    name = _RESULTS[circuit].words[1]
    if not known:
        return f"No head of this model has a {name} score from weights alone."
    if not found:
        return (
            f"By their weights, none of {len(known)} heads would {_DOES[circuit]} more than under "
            "a random rotation of its input (adjusted p above 0.05)."
        )
    best = max(found, key=lambda r: r[f"{circuit}_{name}"])
    return (
        f"By their weights, {len(found)} of {len(known)} heads would {_DOES[circuit]}: the "
        "circuit from embeddings joins tokens to themselves more than under a random rotation "
        f"(adjusted p at most 0.05), most purely in {head_name(best['layer'], best['head'])} "
        f"(eigenvalue score {best[f'{circuit}_{name}']:.3g})."
    )


def _about_one(
    circuit: Circuit, layer: int, head: int, record: dict[str, Any], detail: dict[str, Any]
) -> str:
    _, name, left, right = _RESULTS[circuit].words
    first, count = detail["pairs"][0], len(detail["singular_values"])
    rank, score = record["effective_rank"], record[f"{circuit}_{name}"]
    copies = "" if score is None else f", its {name} score is {score:.3g}"
    size = "is zero" if rank is None else f"has effective rank {rank:.3g} of {count}"
    return (
        f"The {circuit.upper()} circuit of {head_name(layer, head)} {size}{copies}, and its "
        f"largest score is {first['score']:.4g}, from {left} {first[left]} to {right} "
        f"{first[right]}."
    )


def _evidence(notes: Sequence[str]) -> dict[str, Any]:
    evidence = {
        "from": "weights alone: what a head would do, not whether the model makes use of it",
        "null": "a random rotation between embeddings and head",
    }
    return evidence | ({"notes": "; ".join(notes)} if notes else {})


def _map(circuit: Circuit, records: Sequence[dict[str, Any]]) -> Figure:
    name = _RESULTS[circuit].words[1]
    caption = (
        f"The {name} score of every head, from its circuit's eigenvalues: 1 where all are "
        "positive, 0 where they cancel, -1 where all are negative."
    )
    return head_map(records, f"{circuit}_{name}", f"{name.capitalize()} scores", caption)


def _token_words(model: Any) -> Callable[[int], str]:
    """A token as text, by the model's tokenizer where it has one that knows the id."""
    tokenizer = getattr(model, "tokenizer", None)

    def word(token: int) -> str:
        try:
            return str(token) if tokenizer is None else repr(str(tokenizer.decode([token])))
        except Exception:  # strangers' tokenizers, ids beyond theirs
            return str(token)

    return word


def unfit(model: Any, data: FeatureData | None) -> str | None:
    """Not part of a plain `interp analyze`: a table for those who ask."""
    return "asks for --layer and --head, or for its name"


QK = Analysis(
    "qk",
    "which tokens a head attends to from which, from weights",
    partial(run, circuit="qk"),
    unfit,
)
OV = Analysis(
    "ov",
    "what a head writes for the token it attends to, from weights",
    partial(run, circuit="ov"),
    unfit,
)
