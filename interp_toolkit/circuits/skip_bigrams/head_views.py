"""Which heads are looked at, and from which distances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from interp_toolkit.circuits.skip_bigrams.scores import ROUNDING, Form
from interp_toolkit.circuits.weights.qk import qk_circuit
from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Model
from interp_toolkit.models.weights.view import ModelWeights
from interp_toolkit.results import head_name

NEAREST = 1  # the distance where none is given
NAMED = 5  # heads that a note names


class HeadView(NamedTuple):
    """A head from a distance (None: it makes no difference)."""

    layer: int
    head: int
    distance: int | None

    @property
    def name(self) -> str:
        """Such as L1H0, or L1H0 at distance 2."""
        at = "" if self.distance is None else f" at distance {self.distance}"
        return head_name(self.layer, self.head) + at


def head_views(
    model: Model,
    view: ModelWeights,
    layer: int | None,
    head: int | None,
    distance: int | Sequence[int] | None,
) -> tuple[list[HeadView], list[str]]:
    """The heads to look at, from which distances, and notes on what is left out.

    Heads that score every pair 0 are left out, unless there are no others.

    Raises:
        InputError: no such head; a layer asked for by its number, or every layer, that cannot be
            read; a distance beyond the context or given twice,
            or that no head looks across.
    """
    layers, heads = _chosen("layer", layer, view.n_layers), _chosen("head", head, view.n_heads)
    n_ctx = int(model.cfg.n_ctx)
    distances = None if distance is None else _distances(distance, n_ctx)
    views: list[HeadView] = []
    notes: list[str] = []
    empty: list[HeadView] = []
    still = []
    for number in layers:
        try:
            rotary = view.layer(number).rotary is not None
        except InputError as error:
            if len(layers) == 1:
                raise
            notes.append(f"layer {number} is left out: {error}")
            continue
        for one in heads:
            if _scores_nothing(view, number, one):
                empty.append(HeadView(number, one, None))
            elif rotary:
                turns = [min(NEAREST, n_ctx - 1)] if distances is None else distances
                views += [HeadView(number, one, turn) for turn in turns]
            else:
                still.append(head_name(number, one))
                views.append(HeadView(number, one, None))
    if not views and not empty:
        raise InputError(f"no head can be read: {notes[0]}")
    if distances is not None and still:
        if len(still) == len(views):
            why = "this model learns positions: no" if view.W_pos is not None else "no"
            raise InputError(f"{why} head asked for turns with distance (rotary); drop it")
        notes.append(f"looked at from no distance, as it makes no difference: {_some(still)}")
    if empty and views:
        names = _some([one.name for one in empty])
        notes.append(f"left out, as every pair scores 0 (W_Q W_K^T = 0): {names}")
    return views or empty, notes


def _chosen(what: str, number: int | None, count: int) -> Sequence[int]:
    if number is None:
        return range(count)
    if not 0 <= number < count:
        raise InputError(
            f"there is no {what} {number}; the model has {what}s 0 to {count - 1}",
        )
    return [number]


def _distances(distance: int | Sequence[int], n_ctx: int) -> list[int]:
    distances = [distance] if isinstance(distance, int) else list(distance)
    if not distances:
        raise InputError("no distance is given")
    twice = [one for one in distances if distances.count(one) > 1]
    if twice:
        raise InputError(f"distance {twice[0]} is given more than once")
    if max(distances) >= n_ctx:
        raise InputError(
            f"distance {max(distances)} is beyond the model's context of {n_ctx}; give up to "
            f"{n_ctx - 1}"
        )
    return distances


def _scores_nothing(view: ModelWeights, layer: int, head: int) -> bool:
    circuit = qk_circuit(None, layer, head, view=view)
    W_Q, W_K = circuit.W_Q.detach().double(), circuit.W_K.detach().double()
    return Form(W_Q, W_K).norm() <= ROUNDING * float(W_Q.norm() * W_K.norm())


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
