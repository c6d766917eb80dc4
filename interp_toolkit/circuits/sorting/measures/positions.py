"""How much positions matter to what a sorting head's weights say, as shares of variance.

QK: scores from each value at each place where an item is read to each value at each place of the
list. What all keys of a query share does not reach the pattern and is taken out first. The rest is
split, in this order and exactly, into what depends on the key's token alone, on the query's token
as well, on where the query stands as well, and on where the key stands (balanced, so that the parts
are orthogonal and add up).
OV: what each value at each place of the list writes to the logits of the values, less what all
logits share, split into token and place.
Source: "How do tiny transformers sort lists of small integers?" (Qi and Zhong 2023), where key
positions are said to have "minimal effect".
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.circuits.weights.ov import ov_circuit
from interp_toolkit.circuits.weights.qk import qk_circuit
from interp_toolkit.circuits.weights.token_scores import read_through
from interp_toolkit.data.lists.layout import ListLayout
from interp_toolkit.models.model import Model
from interp_toolkit.models.weights.parts import NormWeights
from interp_toolkit.models.weights.view import ModelWeights, weights

ROUNDING = 1e-9  # of the largest score: keys that differ by less are alike


@dataclass(frozen=True)
class PositionShares:
    """Shares of variance of one head; each group adds up to 1.

    Attributes:
        head: which.
        qk_key, qk_query, qk_query_place, qk_key_place: of the scores; see the module.
        order_kept: of two keys' order for a query, on average over the places where the query
            stands, how often it is that of the average over these places.
        ov_token, ov_place: of what is written.
    """

    head: int
    qk_key: float
    qk_query: float
    qk_query_place: float
    qk_key_place: float
    order_kept: float
    ov_token: float
    ov_place: float


@torch.no_grad()
def position_shares(model: Model, layout: ListLayout) -> list[PositionShares]:
    """The shares of every head, for lists of the longest length."""
    view = weights(model)
    places = _places(layout)
    read = layout.read_positions(layout.longest)
    read = read[1:] if layout.autoregressive and layout.between else read
    found = []
    for head in range(view.n_heads):
        scores = _scores(view, layout, head, list(read), places)
        parts, kept = split_scores(scores)
        token, place = split_written(_written(view, layout, head, places))
        found.append(PositionShares(head, *parts, kept, token, place))
    return found


def split_scores(
    scores: Float[Tensor, "place query key_place key"],
) -> tuple[tuple[float, float, float, float], float]:
    """The four shares, and how often two keys' order is kept."""
    centred = scores - scores.mean((2, 3), keepdim=True)
    by_place = centred.mean(2)  # place, query, key
    by_query = by_place.mean(0)
    by_key = by_query.mean(0)
    sizes = [float((part**2).mean()) for part in (centred, by_place, by_query, by_key)]
    total = sizes[0] or 1.0
    parts = [sizes[3], sizes[2] - sizes[3], sizes[1] - sizes[2], sizes[0] - sizes[1]]
    shares = tuple(max(0.0, part) / total for part in parts)
    same = ROUNDING * float(centred.abs().max())
    average = by_query[:, :, None] - by_query[:, None]
    each = by_place[:, :, :, None] - by_place[:, :, None]
    apart = average.abs() > same
    average, each = average.sign(), torch.where(each.abs() > same, each.sign(), 0.0)
    kept = float((each == average)[:, apart].double().mean()) if bool(apart.any()) else 1.0
    return (shares[0], shares[1], shares[2], shares[3]), kept


def split_written(written: Float[Tensor, "place token value"]) -> tuple[float, float]:
    """The shares of token and place; what all sources write alike is neither."""
    centred = written - written.mean(-1, keepdim=True)
    centred = centred - centred.mean((0, 1), keepdim=True)
    total, token = float((centred**2).mean()), float((centred.mean(0) ** 2).mean())
    if total == 0:
        return 1.0, 0.0
    return token / total, max(0.0, total - token) / total


def _places(layout: ListLayout) -> list[int]:
    start = len(layout.before)
    return list(range(start, start + layout.longest))


def _scores(
    view: ModelWeights, layout: ListLayout, head: int, read: list[int], places: list[int]
) -> Float[Tensor, "place query key_place key"]:
    """The head's scores, whatever the mask hides."""
    circuit = qk_circuit(view, 0, head, view=view)
    values = torch.tensor(layout.values)
    keys, key_at = values.repeat(len(places)), torch.tensor(places).repeat_interleave(len(values))
    embedded = view.embed(keys, key_at)
    found = []
    for at in read:
        here = torch.full_like(values, at)
        scores = circuit.score(view.embed(values, here), embedded, here, key_at)
        found.append(scores.double().cpu().reshape(len(values), len(places), len(values)))
    return torch.stack(found)


def _written(
    view: ModelWeights, layout: ListLayout, head: int, places: list[int]
) -> Float[Tensor, "place token value"]:
    """What each value at each place adds to the undivided logits if it alone is attended to."""
    values = torch.tensor(layout.values)
    tokens, at = values.repeat(len(places)), torch.tensor(places).repeat_interleave(len(values))
    norm = view.layer(0).norm
    x = NormWeights(norm.kind, eps=norm.eps)(view.embed(tokens, at).double())
    logits = read_through(view.final_norm, view.W_U)[:, list(layout.values)].double()
    ov = ov_circuit(view, 0, head, view=view)
    out = (x @ ov.W_V.double()) @ (ov.W_O.double() @ logits)
    written: Tensor = out.cpu().reshape(len(places), len(values), len(values))
    return written
