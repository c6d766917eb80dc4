"""Sites read together hold what each holds alone, within memory, in few passes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.models.running.streaming import collect
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.probes.boolean.sites import SiteReader

SITES = [(f"blocks.{i}.{hook}", 3) for i in range(4) for hook in ("hook_resid_pre", "attn.hook_z")]


@pytest.fixture
def model() -> Transformer:
    config = TransformerConfig(
        n_layers=4, d_model=8, n_ctx=6, d_head=4, n_heads=2, d_vocab=9, attn_only=True, seed=0
    )
    return Transformer(config).eval()


@pytest.fixture
def data() -> FeatureData:
    rng = np.random.default_rng(0)
    return FeatureData(rng.integers(0, 9, (20, 6)), rng.random((20, 2)) < 0.5, ("a", "b"))


def test_two_passes_read_what_single_ones_do(model, data, monkeypatch) -> None:
    expected = {site: collect(model, data, site[0], site[1])[site[0]] for site in SITES}
    passes = 0
    original = Transformer.forward

    def counted(self, *args, **kwargs):
        nonlocal passes
        passes += 1
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Transformer, "forward", counted)
    read = SiteReader(model, data, SITES, None)
    for site in SITES:
        values, precision = read(*site)
        np.testing.assert_array_equal(values, expected[site].reshape(20, -1).double().numpy())
        assert precision == "float32"
    assert passes == 2  # one to learn the size of a site, one for all that are left


def test_memory_bounds_what_is_kept(model, data) -> None:
    site_bytes = 20 * 8 * 4
    read = SiteReader(model, data, SITES, 8 * site_bytes)
    kept = set()
    for site in SITES:
        read(*site)
        kept.add(len(read._values))
    assert max(kept) == 4  # half of it: the other half is what a pass gathers
    with pytest.raises(InputError, match="memory"):
        SiteReader(model, data, SITES, 1)(*SITES[0])


def test_forgetting_sees_the_changed_model(model, data) -> None:
    read = SiteReader(model, data, SITES, None)
    before, _ = read(*SITES[0])
    with torch.no_grad():
        model.embed.W_E.mul_(2)
    assert np.array_equal(read(*SITES[0])[0], before)
    read.forget()
    assert not np.array_equal(read(*SITES[0])[0], before)


def test_a_site_that_is_not_listed_can_be_read_too(model, data) -> None:
    values, _ = SiteReader(model, data, [], None)("blocks.1.hook_resid_post", None)
    assert values.shape == (20, 8)


def test_values_widened_inside_a_coarse_model_are_as_coarse_as_it(data) -> None:
    """Scores leave a bfloat16 layer in float32, and hold no more than bfloat16 queries gave."""
    config = TransformerConfig(
        n_layers=1, d_model=8, n_ctx=6, d_head=4, n_heads=2, d_vocab=9, attn_only=True, seed=0
    )
    coarse = Transformer(config).to(torch.bfloat16).eval()
    hook = "blocks.0.hook_resid_post"

    def widen(value, hook):
        return value.float()

    with coarse.hooks(fwd_hooks=[(hook, widen)]):
        assert SiteReader(coarse, data, [], None)(hook, 3)[1] == "bfloat16"
