"""F-vectors that are spread evenly: unit length, and as little interference as there can be."""

from __future__ import annotations

import pytest
import torch

from interp_toolkit.errors import InputError
from interp_toolkit.toys.superposition.layers.layer import spread_features


@pytest.mark.parametrize(("n_features", "d_in"), [(12, 12), (48, 40), (30, 6)])
def test_spread_features_attain_welchs_bound(n_features: int, d_in: int) -> None:
    vectors = spread_features(n_features, d_in, torch.Generator().manual_seed(0))
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(n_features).double())
    products = (vectors @ vectors.T).fill_diagonal_(0.0)
    mean_square = float(products.square().sum()) / (n_features * (n_features - 1))
    least = (n_features - d_in) / (d_in * (n_features - 1))
    assert mean_square == pytest.approx(least, rel=1e-3, abs=1e-9)


def test_there_cannot_be_more_axes_than_features(texts) -> None:
    with pytest.raises(InputError, check=texts):
        spread_features(3, 4, torch.Generator())
