"""Similarity of hidden states by depth: cosines between tokens, and dimensions in use.

Two measures are computed at the embedding (with positions), after every block and after the final
norm:

- the mean cosine between positions of a prompt with different tokens. For independent directions in
  d dimensions its mean is 0, and each cosine has a standard deviation of 1/√d.
- the participation ratio (Σλ)²/Σλ² of the second moments of all directions (hidden states at unit
  length), and of their covariance, which leaves out the mean direction. Prompts that each collapse
  to a direction of their own still use many dimensions together.

A leading BOS token is excluded, since its hidden state differs from all others in many models.
Prompts are run in batches, and only sums are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.circuits.metrics.prompts import bos_token, plain_ids
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import device_of
from interp_toolkit.models.running.hooks import hook_points
from interp_toolkit.models.running.memory import format_size, itemsize_of, parse_memory
from interp_toolkit.models.running.streaming import activations, numbers_stored
from interp_toolkit.models.weights.precision import at_least_single
from interp_toolkit.models.weights.view import weights

PROMPTS, LONGEST = 32, 128  # number and length of random prompts without data
STATES = 2**11  # hidden states per comparison, at most
STATE_COPIES = 8  # copies of the hidden states in memory during a comparison


@dataclass(frozen=True)
class ResidualSite:
    """A site of hidden states; if `normed`, the final norm is applied to the activation."""

    name: str
    hook: str
    normed: bool = False


@dataclass(frozen=True, eq=False)
class Similarity(ShortRepr):
    """Similarity of hidden states by depth.

    Attributes:
        sites: the sites, from the embedding on.
        cosines: mean cosine between positions of different tokens; NaN for prompts without such a
            pair.
        dimensions: participation ratio of the directions' second moments.
        centred_dimensions: participation ratio of their covariance; NaN if all directions are
            equal.
        positions, pairs: number of hidden states at each site, and of pairs of different tokens.
    """

    sites: Sequence[ResidualSite]
    cosines: Float[np.ndarray, "site row"]
    dimensions: Float[np.ndarray, " site"]
    centred_dimensions: Float[np.ndarray, " site"]
    positions: int
    pairs: int

    @property
    def last(self) -> int:
        """Index of the site after the last block, before the final norm."""
        return max(n for n, site in enumerate(self.sites) if not site.normed)

    @property
    def rises(self) -> Float[np.ndarray, " row"]:
        """Rise in mean cosine from the embedding to the last block."""
        rises: np.ndarray = self.cosines[self.last] - self.cosines[0]
        return rises


def sites_of(model: Model) -> list[ResidualSite]:
    """Sites: the embedding, the end of every block, and the final norm if the model has one.

    Raises:
        InputError: the model has no blocks, or lacks a hook point.
    """
    n_layers = int(model.cfg.n_layers)
    if n_layers < 1:
        raise InputError("the model has no blocks, so there is no depth to compare")
    sites = [ResidualSite("embedding", "blocks.0.hook_resid_pre")]
    sites += [ResidualSite(f"block {n}", f"blocks.{n}.hook_resid_post") for n in range(n_layers)]
    points = hook_points(model)
    if missing := [site.hook for site in sites if site.hook not in points]:
        raise InputError(f"the model has no hook point {missing[0]}")
    if _final_norm(model) is not None:
        sites.append(ResidualSite("final norm", sites[-1].hook, normed=True))
    return sites


def random_rows(model: Model, *, rows: int = PROMPTS, seed: int = 0) -> FeatureData:
    """Prompts of uniformly random tokens, after the BOS token if the model uses one.

    Raises:
        InputError: the context or the vocabulary is too small for two different tokens.
    """
    bos = bos_token(model)
    ids = np.setdiff1d(plain_ids(model), [] if bos is None else [bos])
    n_pos = min(int(model.cfg.n_ctx), LONGEST)
    if len(ids) < 2 or n_pos - (bos is not None) < 2:
        raise InputError(
            "the model's context or vocabulary is too small for a prompt of two different tokens"
        )
    tokens = np.random.default_rng(seed).choice(ids, (rows, n_pos))
    if bos is not None:
        tokens[:, 0] = bos
    none = np.zeros((rows, 0), bool)
    return FeatureData(tokens, none, (), source=f"random tokens, {rows} × {n_pos}")


@torch.no_grad()
def similarity_by_depth(
    model: Model,
    data: FeatureData,
    *,
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> Similarity:
    """Cosine similarity and participation ratios at every site.

    Args:
        model: any TransformerLens model with blocks.
        data: prompts; their features and positions are not used.
        memory: memory limit, such as "4GiB". Less memory means smaller batches, and several passes
            if the second moments of all sites exceed half of it.
        progress: called with a description of each step.

    Raises:
        InputError: hidden states are not finite, no prompt has two different tokens, or the memory
            is too small for the sums.

    Examples:
        >>> import interp_toolkit as it
        >>> from interp_toolkit.data import FeatureData
        >>> data = FeatureData(np.array([[0, 1, 2], [2, 1, 0]]), np.zeros((2, 0), bool), ())
        >>> similarity = similarity_by_depth(it.load("toy:induction"), data)
        >>> [site.name for site in similarity.sites], similarity.cosines.shape
        (['embedding', 'block 0', 'block 1'], (3, 2))
    """
    sites, budget, bos = sites_of(model), parse_memory(memory), bos_token(model)
    counted = [np.arange(len(row)) >= (row[0] == bos) for row in data.tokens]
    prefixes = [row[keep] for row, keep in zip(data.tokens, counted, strict=True)]
    counts = [np.unique(row, return_counts=True)[1] for row in prefixes]
    pairs = sum(int(n.sum() ** 2 - (n**2).sum()) // 2 for n in counts)
    if not pairs:
        raise InputError(f"{data.source}: no prompt has two different tokens to compare")
    d_model, longest, itemsize = int(model.cfg.d_model), int(data.lengths.max()), itemsize_of(model)
    moment_bytes = 8 * d_model**2
    read = numbers_stored(model.cfg, [sites[0].hook], longest, longest)
    site_bytes = moment_bytes + itemsize * read  # moments, and activations of a prompt
    states = max(1, min(STATES, budget // 4 // (STATE_COPIES * itemsize * d_model)))
    beside = STATE_COPIES * itemsize * d_model * states + moment_bytes  # and one being finished
    at_once = max(1, min(len(sites), (budget - beside) // 2 // site_bytes))
    cosines = np.full((len(sites), len(data)), np.nan)
    dimensions: list[tuple[float, float]] = []  # not centered, centered
    for start in range(0, len(sites), at_once):
        group = sites[start : start + at_once]
        progress(f"{group[0].name} to {group[-1].name}")
        sums = beside + len(group) * moment_bytes
        if sums >= budget:
            raise InputError(
                f"sums over directions in {d_model} dimensions need about {format_size(sums)}, "
                f"which leaves none of the {format_size(budget)} of memory allowed for a prompt; "
                "raise the limit"
            )
        filled = cosines[start : start + at_once]
        for moment in _read(model, data, group, counted, filled, budget - sums, states):
            dimensions.append((moment.dimensions(centred=False), moment.dimensions(centred=True)))
    plain, centred = np.array(dimensions).T
    return Similarity(sites, cosines, plain, centred, sum(map(len, prefixes)), pairs)


def _read(
    model: Model,
    data: FeatureData,
    sites: Sequence[ResidualSite],
    counted: Sequence[Bool[np.ndarray, " _"]],
    cosines: Float[np.ndarray, "site row"],
    memory: int,
    states: int,
) -> list[DirectionMoments]:
    """Fill in the cosines of some sites and return their moments, in one pass over the prompts.

    At most `states` hidden states are compared at once, or those of one prompt.
    """
    hooks = list(dict.fromkeys(site.hook for site in sites))
    device, norm = device_of(model), _final_norm(model)
    moments = [DirectionMoments(int(model.cfg.d_model), device) for _ in sites]
    for batch in activations(model, data, hooks, "all", memory=memory):
        some = max(1, states // len(data.tokens[int(batch.index[0])]))
        for start in range(0, len(batch.index), some):
            index = batch.index[start : start + some].tolist()
            tokens = torch.from_numpy(np.stack([data.tokens[row] for row in index])).to(device)
            keep = torch.from_numpy(np.stack([counted[row] for row in index])).to(device)
            for number, site in enumerate(sites):
                hidden = batch[site.hook][start : start + some]
                if site.normed and norm is not None:
                    hidden = norm(hidden)
                if not hidden[keep].isfinite().all():
                    raise InputError(f"hidden states at the {site.name} are NaN or infinite")
                units, nonzero = directions(hidden)
                cosines[number, index] = mean_cosines(units, tokens, keep & nonzero).cpu().numpy()
                moments[number].add(units[keep & nonzero])
    return moments


def _final_norm(model: Model) -> Callable[[Tensor], Tensor] | None:
    """Final norm; None if there is none, or if it cannot be read."""
    try:
        norm = weights(model).final_norm
    except InputError:
        return None
    return None if norm.kind is None else norm


def directions(
    hidden: Float[Tensor, "*batch d"],
) -> tuple[Float[Tensor, "*batch d"], Bool[Tensor, "*batch"]]:
    """Hidden states at unit length, and a mask of the nonzero ones (zero ones stay zero)."""
    hidden = at_least_single(hidden)
    hidden = hidden / hidden.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(hidden.dtype).tiny)
    norm = hidden.norm(dim=-1, keepdim=True)
    return hidden / norm.clamp_min(0.5), norm[..., 0] > 0


def mean_cosines(
    units: Float[Tensor, "batch pos d"],
    tokens: Int[Tensor, "batch pos"],
    counted: Bool[Tensor, "batch pos"],
) -> Float[Tensor, " batch"]:
    """Mean cosine between counted positions of different ids; NaN without such a pair."""
    means = []
    for unit, row, keep in zip(units, tokens, counted, strict=True):
        unit, ids = unit[keep], row[keep]
        cosines: Tensor = unit @ unit.T
        means.append(cosines.double()[ids[:, None] != ids].mean())
    return torch.stack(means)


class DirectionMoments:
    """Running sums over directions in float64, which determine the participation ratios."""

    def __init__(self, d: int, device: str | torch.device = "cpu"):
        self.count = 0
        self.total = torch.zeros(d, dtype=torch.float64, device=device)
        self.products = torch.zeros(d, d, dtype=torch.float64, device=device)

    def add(self, units: Float[Tensor, "n d"]) -> None:
        """Add directions to the sums."""
        self.count += len(units)
        self.total += units.double().sum(0)
        self.products += units.T @ units

    def dimensions(self, *, centred: bool) -> float:
        """Participation ratio of the covariance or of second moments; NaN without variance."""
        second = self.products / self.count
        if centred:
            mean = self.total / self.count
            second.addr_(mean, mean, alpha=-1)
        trace = second.trace()
        if not trace > 1e-12:  # rounding, since directions have length 1
            return float("nan")
        return float((trace / torch.linalg.vector_norm(second)) ** 2)
