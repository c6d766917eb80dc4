"""The variants: their sizes, what of them learns, and that none looks ahead."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from interp_toolkit import InputError, load, save
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.models.weights.view import weights
from interp_toolkit.toys.random_attention.variants import (
    VARIANTS,
    freeze,
    is_trained,
    trainable_parameters,
    variant_config,
)

MATRIX_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm")
SIZES = {"n_layers": 2, "n_heads": 2, "d_model": 12, "n_ctx": 7, "d_vocab": 11, "seed": 4}


def variant_model(variant, **options):
    """A variant with biases, if it has any, that are not zero."""
    model = Transformer(variant_config(variant, **{**SIZES, **options}))
    freeze(model, variant)
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if "b_" in name:
            parameter.data.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


def random_tokens(rows, n_pos, seed=0):
    return torch.randint(11, (rows, n_pos), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("variant", "count"),
    [
        ("standard", 790_400),
        ("frozen-mlp", 394_880),
        ("frozen-qk", 724_352),
        ("mixit", 724_736),
        ("random", 2 * 1_024 * 128),
    ],
)
def test_the_sources_parameter_counts(variant, count):
    cfg = variant_config(
        variant, n_layers=2, n_heads=4, d_model=128, n_ctx=3, d_vocab=1_024, biases=True
    )
    model = Transformer(cfg, init_weights=False)
    freeze(model, variant)
    assert trainable_parameters(model) == count


@pytest.mark.parametrize("variant", VARIANTS)
def test_initial_weights_are_as_wide_as_the_model_says(variant):
    model = variant_model(variant, d_model=64)
    for name, parameter in model.named_parameters():
        if "W_" in name:
            assert parameter.std().item() == pytest.approx(1 / math.sqrt(64), rel=0.15), name
    assert (model.cfg.mixing is not None) == (variant == "mixit")
    narrow = variant_model("standard", initial_std=0.02, d_model=64)
    assert narrow.W_V.std().item() == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_no_variant_looks_ahead(variant, biases):
    """To the bit, at every length: a later token changes no logit in front of it."""
    model = variant_model(variant, biases=biases)
    for n_pos in range(1, 8):
        tokens = random_tokens(3, n_pos)
        logits = model(tokens)
        for first in range(1, n_pos):
            other = tokens.clone()
            other[:, first:] = (other[:, first:] + 1) % 11
            changed = model(other)
            assert torch.equal(changed[:, :first], logits[:, :first])
            assert not torch.equal(changed[:, first], logits[:, first])


@pytest.mark.parametrize("variant", VARIANTS)
def test_earlier_tokens_matter_and_lengths_agree(variant):
    model = variant_model(variant).double()
    tokens = random_tokens(3, 7)
    logits = model(tokens)
    other = tokens.clone()
    other[:, 0] = (other[:, 0] + 1) % 11
    assert (model(other)[:, -1] - logits[:, -1]).abs().max() > 1e-4
    for n_pos in range(1, 7):
        torch.testing.assert_close(model(tokens[:, :n_pos]), logits[:, :n_pos])


@pytest.mark.parametrize("variant", VARIANTS)
def test_training_moves_what_learns_and_no_bit_of_the_rest(variant):
    model = variant_model(variant, biases=True)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimiser = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=0.01, weight_decay=0.1
    )
    for step in range(3):
        optimiser.zero_grad()
        model(random_tokens(16, 7, seed=step), return_type="loss").backward()
        optimiser.step()
    parameters = dict(model.named_parameters())
    for name, tensor in model.state_dict().items():
        learns = name in parameters and is_trained(name, variant)
        assert torch.equal(tensor, before[name]) != learns, name
        if name in parameters:
            assert (parameters[name].grad is not None) == learns, name


class Products(TorchDispatchMode):
    """Counts matrix products."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func._schema.name.removeprefix("aten::") in MATRIX_PRODUCTS
        return func(*args, **(kwargs or {}))


def products(variant):
    """Matrix products of a forward and of a backward pass, unembedding included."""
    model = variant_model(variant)
    with Products() as forward:
        loss = model(random_tokens(4, 7), return_type="loss")
    with Products() as backward:
        loss.backward()
    return forward.count, backward.count


def test_frozen_parts_cost_no_gradient_work():
    """Two layers: a product less for every frozen matrix; mixing has 1 where attention has 2 + 2.

    Standard, a layer: Q, K, V, O, three of the MLP, scores, mixing, each with two products in the
    backward pass; and the unembedding.
    """
    assert products("standard") == (2 * 9 + 1, 2 * (2 * 9 + 1))
    assert products("frozen-qk") == (2 * 9 + 1, 2 * (2 * 9 + 1) - 2 * 2)
    assert products("frozen-mlp") == (2 * 9 + 1, 2 * (2 * 9 + 1) - 2 * 3)
    assert products("random") == (2 * 9 + 1, 2 * (2 * 9 + 1) - 2 * 7)
    # values, output, MLP and one mixing; of the mixing only the values' gradient
    assert products("mixit") == (2 * 6 + 1, 2 * (2 * 6 + 1) - 2)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize(
    ("variant", "mixing"),
    [(v, "1/(d_head m)") for v in VARIANTS] + [("mixit", "1/(n m)"), ("mixit", "1/sqrt(n m)")],
)
def test_a_reload_gives_the_same_logits_to_the_bit(tmp_path, variant, mixing, biases, tied, suffix):
    model = variant_model(variant, mixing=mixing, biases=biases, tied_embeddings=tied)
    save(model, tmp_path / f"model{suffix}", task={"name": "retrieval"})
    loaded = load(tmp_path / f"model{suffix}")
    assert loaded.cfg == model.cfg
    assert list(loaded.state_dict()) == list(model.state_dict())
    tokens = random_tokens(5, 6)
    assert torch.equal(loaded(tokens), model(tokens))


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_view_of_the_weights_gives_every_part_exactly(variant, biases, texts):
    """The view compares each part it gives with the model's own pass, and refuses where not."""
    model = variant_model(variant, biases=biases, tied_embeddings=biases)
    view = weights(model)
    assert torch.equal(view.W_U, model.W_U)
    for layer, block in enumerate(model.blocks):
        ov, mlp = view.ov(layer), view.mlp(layer)
        assert torch.equal(ov.W_V, block.attn.W_V)
        assert mlp is not None
        assert torch.equal(mlp.b_in, block.mlp.b_in) if biases else not mlp.b_in.any()
        assert not mlp.b_post.any()
        if variant == "mixit":
            with pytest.raises(InputError, check=texts):
                view.layer(layer)
        else:
            assert torch.equal(view.layer(layer).W_Q, block.attn.W_Q)
