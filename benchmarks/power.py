"""How weak may it be and still be found? Planted ever more strongly, how often something is seen.

Beside the nulls (`calibration.py`): what is planted, and what counts as seen:

- composition: the reading weights of a head become `noise + s x what the other head writes`, both
  of one norm; its p-value is at most 0.05 (before correction for all pairs);
- own token: W_O becomes `noise + s x W_V^T` (where the unembedding is the embedding's transpose),
  W_K becomes `noise + s x W_Q`; likewise;
- heads: the hand-set induction model with normal noise on all weights, of s times each tensor's
  root mean square; its induction head is named (and, as *others*, some other head, as induction);
- boolean: two bits of the last of six tokens, one of them flipped in each of 240 rows with
  probability s, in an untrained model of one layer; the held-out p-value of XOR is at most 0.05 at
  one hook at least, corrected for their number;
- universal AND: the trained toy with noise as for heads; pairs are computed, at least one;
- roles: eight heads' six contrasts on 24 rows of noise (Student's t, 3 degrees), one shifted by s
  of its scale; its p, corrected for all, is at most 0.05;
- skip-bigrams: 20 pairs of 256 random features in 64 dimensions, of strength s times the standard
  deviation of scores, in a random form of rank 16; their share that is found (and, as *others*,
  the share of false ones among the found, which is held at 5 %).

Run: python benchmarks/power.py [--runs 40] [--only NAME ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy import stats

import interp_toolkit as it
from interp_toolkit.circuits.skip_bigrams.head import skip_bigrams_of
from interp_toolkit.circuits.weights.composition import MODES, composition_scores
from interp_toolkit.circuits.weights.self_scores import weight_scores
from interp_toolkit.stats import clopper_pearson, holm, sign_flip_p_values
from interp_toolkit.toys.hand_set.untrained import random_model

LEVEL = 0.05

#: share seen, and share of others, in a run of one strength
Seen = tuple[float, float | None]


def like(planted: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Of the norm of the noise."""
    return planted * (noise.norm() / planted.norm())


def noisy(name: str, strength: float, seed: int) -> Any:
    """A toy with noise on its weights."""
    model = it.load(f"toy:{name}")
    drawn = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            if p.is_floating_point():
                p += strength * p.square().mean().sqrt() * torch.randn(p.shape, generator=drawn)
    return model


def composition(mode: str) -> Callable[[float, int], Seen]:
    """One pair of heads."""

    def one(strength: float, seed: int) -> Seen:
        model = random_model(seed, d_head=8, d_model=32)
        writer, reader = model.blocks[0].attn, model.blocks[1].attn
        drawn = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            W = getattr(reader, f"W_{mode}")
            W[0] += strength * like(writer.W_O[0].T @ torch.randn(8, 8, generator=drawn), W[0])
        p = composition_scores(model).p_value[MODES.index(mode), 0, 0, 1, 0]
        return float(p <= LEVEL), None

    return one


def own_token(circuit: str) -> Callable[[float, int], Seen]:
    """One head."""

    def one(strength: float, seed: int) -> Seen:
        model = random_model(seed, n_layers=1, d_head=8, d_model=32)
        attn = model.blocks[0].attn
        with torch.no_grad():
            model.unembed.W_U.copy_(model.embed.W_E.T)
            if circuit == "ov":
                attn.W_O[0] += strength * like(attn.W_V[0].T, attn.W_O[0])
            else:
                attn.W_K[0] += strength * like(attn.W_Q[0], attn.W_K[0])
        return float(weight_scores(model)[f"{circuit}_p"].iloc[0] <= LEVEL), None

    return one


def heads(strength: float, seed: int) -> Seen:
    """L1H0 is the induction head."""
    found = it.analyze(noisy("induction", strength, seed), "heads", seed=seed).heads
    named = {(h.layer, h.head) for h in found if h.detector == "induction" and h.detected}
    return float((1, 0) in named), float(bool(named - {(1, 0)}))


def boolean(strength: float, seed: int) -> Seen:
    """XOR of two bits of a token."""
    rng = np.random.default_rng(seed)
    model = random_model(seed, n_layers=1, d_head=8, d_model=16, d_vocab=8, n_ctx=8)
    tokens = rng.integers(0, 8, (240, 6))
    flipped = rng.random(240) < strength
    bits = {"a": (tokens[:, -1] & 1 == 1) ^ flipped, "b": tokens[:, -1] & 2 == 2}
    sites = it.analyze(model, "xor", data={"tokens": tokens, "features": bits}, seed=seed).sites
    p = np.array([site.held_out.p_value for site in sites if site.held_out is not None])
    return float(len(p) > 0 and holm(p).min() <= LEVEL), None


def universal_and(strength: float, seed: int) -> Seen:
    """Pairs of the trained toy."""
    evidence = it.analyze(noisy("uand-trained", strength, seed), "uand", seed=seed).evidence
    return float(evidence.status == "computed"), None


def roles(strength: float, seed: int) -> Seen:
    """The first of 48 contrasts."""
    noise = np.random.default_rng(seed).standard_t(3, (8 * 6, 24))
    noise[0] += strength
    p = sign_flip_p_values(noise, seed=seed)
    return float(p[0] <= LEVEL), float((p[1:] <= LEVEL).any())


def skip_bigrams(strength: float, seed: int) -> Seen:
    """Twenty pairs of different features."""
    drawn = torch.Generator().manual_seed(seed)
    features = torch.nn.functional.normalize(torch.randn(256, 64, generator=drawn), dim=1)
    noise = torch.randn(64, 16, generator=drawn) @ torch.randn(16, 64, generator=drawn)
    scale = float((features @ noise @ features.T).std())
    pairs = torch.randperm(256, generator=drawn)[:40].view(20, 2)
    planted = features[pairs[:, 0]].T @ features[pairs[:, 1]]
    found = skip_bigrams_of(noise + strength * scale * planted, features, seed=seed).bigrams
    named = {(b.query_feature, b.key_feature) for b in found}
    true = {(f"f{q}", f"f{k}") for q, k in pairs.tolist()}
    false = len(named - true) / max(len(named), 1)
    return len(named & true) / len(true), false


PLANTS: dict[str, tuple[Callable[[float, int], Seen], tuple[float, ...]]] = {
    **{f"composition {m}": (composition(m), (0, 0.25, 0.5, 1, 2)) for m in MODES},
    "own token, OV": (own_token("ov"), (0, 0.25, 0.5, 1, 2)),
    "own token, QK": (own_token("qk"), (0, 0.25, 0.5, 1, 2)),
    "heads, noise": (heads, (1, 1.4, 1.6, 1.8, 2.2)),
    "boolean, labels flipped": (boolean, (0.3, 0.35, 0.4, 0.45, 0.5)),
    "universal AND, noise": (universal_and, (0.4, 0.8, 1.2, 1.6, 3.2)),
    "roles": (roles, (0, 1, 1.5, 2, 3)),
    "skip-bigrams": (skip_bigrams, (2, 4, 6, 8, 12)),
}


def interval(seen: list[float]) -> tuple[float, float]:
    """Of the mean, at 95 %: exact where a run sees it or not, else by a bootstrap over runs."""
    if set(seen) <= {0.0, 1.0}:
        return clopper_pearson(round(sum(seen)), len(seen))
    found = stats.bootstrap((seen,), np.mean, rng=np.random.default_rng(0))
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def main() -> None:
    """Run and print."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--only", nargs="*", choices=list(PLANTS), default=list(PLANTS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.only:
        plant, strengths = PLANTS[name]
        for strength in track(strengths, name):
            drawn = [plant(strength, seed) for seed in range(options.runs)]
            seen = float(np.mean([one for one, _ in drawn]))
            low, high = interval([float(one) for one, _ in drawn])
            others = [other for _, other in drawn if other is not None]
            said = float(np.mean(others)) if others else None
            rows.append([name, strength, options.runs, seen, low, high, said])
    columns = ["planted", "strength", "runs", "seen", "low", "high", "others"]
    table = Table(*columns)
    for row in rows:
        table.add_row(*("-" if c is None else f"{c:.3g}" if c != row[0] else c for c in row))
    Console(width=120).print(table)
    if options.json:
        kept = {"title": "Power", "columns": columns, "rows": rows}
        options.json.write_text(json.dumps({"tables": [kept]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
