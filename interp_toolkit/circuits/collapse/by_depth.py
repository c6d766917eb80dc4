"""How alike a model's hidden states become with depth: from the embedding to the final norm.

Rows of tokens run through the model; at the embedding (with positions), behind every block and
behind the final norm, `circuits.collapse.by_depth` says how alike the hidden states of different
tokens of a row are. At random initialisation deep transformers tend to make them all alike ("rank
collapse", Dong et al. 2021, "Attention is not all you need"; Noci et al. 2022); table 6 of "Is
random attention sufficient for sequence modeling?" sets a random transformer against one with
shaped mixing in this way. What it is read against is in `circuits.collapse.analysis`.

The rows' BOS token, where the tokenizer's or the model's says there is one, is left out: many
models keep a state there that is like no other.

Also here:
- how much alike the hidden states of different tokens are: cosines, and dimensions in use;
- what is said of each place of the residual stream: the model's numbers beside its copies'.

- In a row of tokens, the mean cosine between hidden states at positions with different token ids.
  Independent directions in d dimensions have mean 0, and each cosine a standard deviation of
  1/√d; identical directions have 1.
- Over all positions of all rows, how many dimensions the directions (hidden states at unit length,
  so that none counts more than another) take up: the participation ratio (Σλ)² / Σλ² of the
  eigenvalues of their second moments, and of their covariance, which leaves out what they all
  share. It is at most the width and at most the number of positions. Rows that collapse each to
  a direction of its own still take up many dimensions together.

Rows come in batches, and only sums are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.circuits.behaviour.advantage import estimate, within
from interp_toolkit.circuits.behaviour.prompts import bos_token
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.formatting import Brief
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import device_of
from interp_toolkit.models.running.hooks import hook_points
from interp_toolkit.models.running.memory import format_size, itemsize_of, parse_memory
from interp_toolkit.models.running.streaming import activations, kept_numbers
from interp_toolkit.models.weights.precision import at_least_single
from interp_toolkit.models.weights.view import weights


def directions(
    hidden: Float[Tensor, "*batch d"],
) -> tuple[Float[Tensor, "*batch d"], Bool[Tensor, "*batch"]]:
    """Hidden states at unit length, and which have a direction at all (zero ones stay zero)."""
    hidden = at_least_single(hidden)
    hidden = hidden / hidden.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(hidden.dtype).tiny)
    norm = hidden.norm(dim=-1, keepdim=True)
    return hidden / norm.clamp_min(0.5), norm[..., 0] > 0


def mean_cosines(
    units: Float[Tensor, "batch pos d"],
    tokens: Int[Tensor, "batch pos"],
    counted: Bool[Tensor, "batch pos"],
) -> Float[Tensor, " batch"]:
    """Of each row, the mean cosine between counted positions of different ids; NaN: no such pair.

    Args:
        units: directions, as `directions` gives them.
        tokens: ids.
        counted: which positions take part.
    """
    means = [
        _mean_cosine(u[keep], ids[keep])
        for u, ids, keep in zip(units, tokens, counted, strict=True)
    ]
    return torch.stack(means)


def _mean_cosine(units: Float[Tensor, "pos d"], tokens: Int[Tensor, " pos"]) -> Float[Tensor, ""]:
    differ = tokens[:, None] != tokens
    cosines: Tensor = units @ units.T
    return cosines.double()[differ].mean()  # the mean of no pair is NaN


class DirectionMoments:
    """Sums over directions, from which the dimensions they take up follow.

    Attributes:
        count: directions seen.
        total: their sum.
        products: the sum of their outer products.
    """

    def __init__(self, d: int, device: str | torch.device = "cpu"):
        self.count = 0
        self.total = torch.zeros(d, dtype=torch.float64, device=device)
        self.products = torch.zeros(d, d, dtype=torch.float64, device=device)

    def add(self, units: Float[Tensor, "n d"]) -> None:
        """Take in more directions."""
        self.count += len(units)
        self.total += units.double().sum(0)
        self.products += units.T @ units

    def dimensions(self, *, centred: bool) -> float:
        """The participation ratio, of the covariance or of second moments; NaN: no variance."""
        second = self.products / self.count
        if centred:
            mean = self.total / self.count
            second.addr_(mean, mean, alpha=-1)
        trace = second.trace()
        if not trace > 1e-12:  # directions are of length 1: this is rounding
            return float("nan")
        return float((trace / torch.linalg.vector_norm(second)) ** 2)


@dataclass(frozen=True)
class LayerSimilarity:
    """One place of the residual stream.

    Attributes:
        place: "embedding", "block 0", ..., "final norm".
        hook: that carries it, or what the final norm is applied to.
        cosine: mean over rows of the mean cosine between positions of different tokens.
        low, high: its 95 % interval over rows, no wider than -1 to 1.
        reinitialised_cosine: the same in each copy with shuffled weights.
        dimensions: participation ratio of the directions' second moments.
        centred_dimensions: of their covariance.
        reinitialised_dimensions, reinitialised_centred_dimensions: the means over copies.
    """

    place: str
    hook: str
    cosine: float | None
    low: float | None
    high: float | None
    reinitialised_cosine: Sequence[float | None]
    dimensions: float | None
    centred_dimensions: float | None
    reinitialised_dimensions: float | None
    reinitialised_centred_dimensions: float | None


def known(values: Float[np.ndarray, " value"]) -> Float[np.ndarray, " number"]:
    """Those that are numbers."""
    numbers: np.ndarray = values[~np.isnan(values)]
    return numbers


def layer_similarity(own: Similarity, copies: Sequence[Similarity], place: int) -> LayerSimilarity:
    """A place of the model, and the same place in each of its copies."""
    values = known(own.cosines[place])
    cosine = within(estimate(values), 1.0) if len(values) > 1 else None
    return LayerSimilarity(
        place=own.places[place].name,
        hook=own.places[place].hook,
        cosine=None if cosine is None else cosine.mean,
        low=None if cosine is None else cosine.low,
        high=None if cosine is None else cosine.high,
        reinitialised_cosine=[mean_of_known(copy.cosines[place]) for copy in copies],
        dimensions=mean_of_known(own.dimensions[[place]]),
        centred_dimensions=mean_of_known(own.centred_dimensions[[place]]),
        reinitialised_dimensions=mean_of_known(
            np.array([copy.dimensions[place] for copy in copies])
        ),
        reinitialised_centred_dimensions=mean_of_known(
            np.array([copy.centred_dimensions[place] for copy in copies])
        ),
    )


def mean_of_known(values: Float[np.ndarray, " value"]) -> float | None:
    """The mean of those that are numbers; None: there are none."""
    numbers = known(values)
    return float(numbers.mean()) if len(numbers) else None


ROWS, LONGEST = 32, 128  # of random tokens, where none are given
AT_ONCE = 2**11  # hidden states of a batch of which more is made at once, at most
COPIES = 8  # of them, in the model's precision: directions, those counted, in doubles, ...


@dataclass(frozen=True)
class Place:
    """Where hidden states are read.

    Attributes:
        name: "embedding", "block 0", ..., "final norm".
        hook: that carries them, or what the final norm is applied to.
        normed: whether the final norm is applied.
    """

    name: str
    hook: str
    normed: bool = False


@dataclass(frozen=True, eq=False)
class Similarity(Brief):
    """Of the hidden states, by depth.

    Attributes:
        places: from the embedding on.
        cosines: of each row, the mean cosine between positions of different tokens; NaN: a row has
            no two.
        dimensions: the participation ratio of the directions' second moments.
        centred_dimensions: the same of their covariance; NaN: all are one.
        positions: how many hidden states there are at each place.
        pairs: how many pairs of positions of different tokens.
    """

    places: Sequence[Place]
    cosines: Float[np.ndarray, "place row"]
    dimensions: Float[np.ndarray, " place"]
    centred_dimensions: Float[np.ndarray, " place"]
    positions: int
    pairs: int


def places_of(model: Model) -> list[Place]:
    """The embedding, every block's end, and the final norm where the model has one.

    Raises InputError for a model without blocks, or without the usual hook points.
    """
    n_layers = int(model.cfg.n_layers)
    if n_layers < 1:
        raise InputError("the model has no blocks, so that nothing can change with depth")
    places = [Place("embedding", "blocks.0.hook_resid_pre")]
    places += [Place(f"block {n}", f"blocks.{n}.hook_resid_post") for n in range(n_layers)]
    points = hook_points(model)
    for place in places:
        if place.hook not in points:
            raise InputError(f"the model has no hook point {place.hook}")
    if _final_norm(model) is not None:
        places.append(Place("final norm", places[-1].hook, normed=True))
    return places


def random_rows(model: Model, *, rows: int = ROWS, seed: int = 0) -> FeatureData:
    """Rows of random tokens, each as likely as any, as long as the context but at most LONGEST.

    Each begins with the BOS token, if the tokenizer has one and the model wants it.

    Raises InputError for a context or vocabulary of less than two.
    """
    bos = bos_token(model)
    ids = np.setdiff1d(np.arange(int(model.cfg.d_vocab)), [] if bos is None else [bos])
    n_pos = min(int(model.cfg.n_ctx), LONGEST)
    if len(ids) < 2 or n_pos - (bos is not None) < 2:
        raise InputError("rows of two different tokens do not fit the model")
    tokens = np.random.default_rng(seed).choice(ids, (rows, n_pos))
    if bos is not None:
        tokens[:, 0] = bos
    return FeatureData(
        tokens, np.zeros((rows, 0), bool), (), source=f"random tokens, {rows} × {n_pos}"
    )


@torch.no_grad()
def similarity_by_depth(
    model: Model,
    data: FeatureData,
    *,
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> Similarity:
    """How alike hidden states of different tokens are, at every place.

    Args:
        model: any TransformerLens model with blocks.
        data: rows of tokens; their features and positions are not looked at.
        memory: bound on what is held at once, such as "4GiB": smaller batches, and more passes
            where the second moments of all places are more than half of it.
        progress: told what is being done.

    Raises:
        InputError: hidden states that are not finite, no row with two different tokens, memory
            below what the sums need.

    Examples:
        >>> import interp_toolkit as it
        >>> from interp_toolkit.data import FeatureData
        >>> data = FeatureData(np.array([[0, 1, 2], [2, 1, 0]]), np.zeros((2, 0), bool), ())
        >>> found = similarity_by_depth(it.load("toy:induction"), data)
        >>> [place.name for place in found.places], found.cosines.shape
        (['embedding', 'block 0', 'block 1'], (3, 2))
    """
    places, budget = places_of(model), parse_memory(memory)
    counted = [_counted(row, bos_token(model)) for row in data.tokens]
    pairs = sum(_pairs(row[keep]) for row, keep in zip(data.tokens, counted, strict=True))
    if not pairs:
        raise InputError(f"{data.source}: no row has two different tokens to compare")
    d_model = int(model.cfg.d_model)
    moment_bytes = 8 * d_model**2
    longest, itemsize = int(data.lengths.max()), itemsize_of(model)
    read = kept_numbers(model.cfg, [places[0].hook], longest, longest)
    place_bytes = moment_bytes + itemsize * read  # moments, and what is read of a row
    states = max(1, min(AT_ONCE, budget // 4 // (COPIES * itemsize * d_model)))
    beside = COPIES * itemsize * d_model * states + moment_bytes  # and one that is being read off
    at_once = max(1, min(len(places), (budget - beside) // 2 // place_bytes))
    cosines = np.full((len(places), len(data)), np.nan)
    dimensions: list[tuple[float, float]] = []  # not centred, centred
    for start in range(0, len(places), at_once):
        group = places[start : start + at_once]
        progress(f"{group[0].name} to {group[-1].name}")
        sums = beside + len(group) * moment_bytes
        if sums >= budget:
            raise InputError(
                f"sums over directions in {d_model} dimensions need about {format_size(sums)}, "
                f"which leaves no row any of the {format_size(budget)} of memory allowed; raise "
                "the limit"
            )
        filled = cosines[start : start + at_once]
        for moment in _read(model, data, group, counted, filled, budget - sums, states):
            dimensions.append((moment.dimensions(centred=False), moment.dimensions(centred=True)))
    return Similarity(
        places=places,
        cosines=cosines,
        dimensions=np.array([plain for plain, _ in dimensions]),
        centred_dimensions=np.array([centred for _, centred in dimensions]),
        positions=int(sum(keep.sum() for keep in counted)),
        pairs=pairs,
    )


def _read(
    model: Model,
    data: FeatureData,
    places: Sequence[Place],
    counted: Sequence[Bool[np.ndarray, " _"]],
    cosines: Float[np.ndarray, "place row"],
    memory: int,
    states: int,
) -> list[DirectionMoments]:
    """Fill in the cosines of some places, and give their moments: one pass over the rows.

    Of a batch so many hidden states are looked at together, or one row's.
    """
    hooks = list(dict.fromkeys(place.hook for place in places))
    device, norm = device_of(model), _final_norm(model)
    moments = [DirectionMoments(int(model.cfg.d_model), device) for _ in places]
    for batch in activations(model, data, hooks, "all", memory=memory):
        some = max(1, states // len(data.tokens[int(batch.index[0])]))
        for start in range(0, len(batch.index), some):
            index = batch.index[start : start + some].tolist()
            tokens = torch.from_numpy(np.stack([data.tokens[row] for row in index])).to(device)
            keep = torch.from_numpy(np.stack([counted[row] for row in index])).to(device)
            for number, place in enumerate(places):
                hidden = batch[place.hook][start : start + some]
                if place.normed and norm is not None:
                    hidden = norm(hidden)
                if not hidden[keep].isfinite().all():
                    raise InputError(f"hidden states at the {place.name} are NaN or infinite")
                units, nonzero = directions(hidden)
                cosines[number, index] = mean_cosines(units, tokens, keep & nonzero).cpu().numpy()
                moments[number].add(units[keep & nonzero])
    return moments


def _counted(tokens: Int[np.ndarray, " pos"], bos: int | None) -> Bool[np.ndarray, " pos"]:
    """All positions but that of a BOS token in front."""
    keep = np.ones(len(tokens), dtype=bool)
    keep[0] = bos is None or int(tokens[0]) != bos
    return keep


def _pairs(tokens: Int[np.ndarray, " pos"]) -> int:
    """Pairs of positions with different tokens."""
    counts = np.unique(tokens, return_counts=True)[1]
    return int((len(tokens) ** 2 - (counts**2).sum()) // 2)


def _final_norm(model: Model) -> Callable[[Tensor], Tensor] | None:
    """The final norm; None where there is none, or where it cannot be read."""
    try:
        norm = weights(model).final_norm
    except InputError:
        return None
    return None if norm.kind is None else norm
