"""The probe is longer than a short window, so that a window that is taken for another shows."""

import pytest

from interp_toolkit.errors import InputError
from interp_toolkit.models.weights import read
from interp_toolkit.models.weights.view import weights
from interp_toolkit.testing.families import loaded


@pytest.mark.parametrize("family", ["Mistral", "GPTNeo"])
def test_a_short_window_that_is_not_read_is_noticed(family, monkeypatch):
    _, model = loaded(family)
    last = int(model.cfg.n_layers) - 1
    assert weights(model).layer(last).window == 8
    monkeypatch.setattr(read, "_window", lambda attn, cfg, layer: None)
    with pytest.raises(InputError):
        weights(model).layer(last)
