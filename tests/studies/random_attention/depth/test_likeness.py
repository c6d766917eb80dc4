"""How alike hidden states are, pair by pair with plain numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp_studies.random_attention.depth.likeness import likeness
from interp_studies.random_attention.depth.models import MAIN, DepthSizes, untrained
from interp_toolkit.circuits.similarity import similarity_by_depth
from interp_toolkit.data import FeatureData

SIZES = DepthSizes(16, 2, 6, 4, 5, 1)


@pytest.mark.parametrize("variant", ["random", "mixit"])
def test_every_measure_pair_by_pair(variant: str) -> None:
    model = untrained(variant, 2, SIZES, MAIN, seed=0)
    tokens = torch.randint(4, (5, 6), generator=torch.Generator().manual_seed(1))
    tokens[0] = 2  # a row without a pair
    found = likeness(model, tokens)
    with torch.no_grad():
        hidden = model(tokens, stop_at_layer=2)
        normed = model.ln_final(hidden).double().numpy()
    hidden = hidden.double().numpy()
    rows: dict[str, list[float]] = {"cosine": [], "covariance": [], "normed covariance": []}
    for row in range(1, 5):
        of: dict[str, list[float]] = {name: [] for name in rows}
        for a in range(6):
            for b in range(6):
                if tokens[row, a] == tokens[row, b]:
                    continue
                x, y = normed[row, a], normed[row, b]
                of["cosine"].append(x @ y / np.linalg.norm(x) / np.linalg.norm(y))
                of["covariance"].append(np.cov(hidden[row, a], hidden[row, b], ddof=0)[0, 1])
                of["normed covariance"].append(np.cov(x, y, ddof=0)[0, 1])
        for name, values in of.items():
            rows[name].append(float(np.mean(values)))
    for name, values in rows.items():
        assert found[name] == pytest.approx(np.mean(values), rel=1e-4, abs=1e-7)


def test_the_cosine_is_that_of_the_collapse_probe() -> None:
    model = untrained("random", 3, SIZES, MAIN, seed=0)
    tokens = np.random.default_rng(0).integers(4, size=(5, 6))
    data = FeatureData(tokens, np.zeros((5, 0), bool), ())
    other = similarity_by_depth(model, data).cosines[-1].mean()
    assert likeness(model, torch.from_numpy(tokens))["cosine"] == pytest.approx(other, rel=1e-5)
