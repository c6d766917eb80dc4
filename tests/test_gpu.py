"""Analyses on a GPU say what they say on the processor; `make gpu` runs these tests."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from tiny_models import D_VOCAB, build, hf_model
from torch.utils._pytree import tree_map_only

import interp_toolkit as it
from interp_toolkit.data.features import FeatureData

pytestmark = pytest.mark.gpu

#: an analysis of each kind of computation, on a toy that it was made for
ANALYSES = [
    ("toy:xor-2head", "xor", {}),
    ("toy:xor-2head", "circuit", {}),
    ("toy:induction", "heads", {}),
    ("toy:induction", "composition", {}),
    ("toy:induction", "qk", {"layer": 1, "head": 0}),
    ("toy:induction", "ov", {"layer": 1, "head": 0}),
    ("toy:induction-trained", "collapse", {}),
    ("toy:induction-trained", "logit-attribution", {}),
    ("toy:induction-trained", "induction", {}),
    ("toy:skip-bigrams", "skip-bigrams", {}),
    ("toy:universal-keys", "universal-keys", {}),
    ("toy:uand", "uand", {}),
    ("toy:sort-argmax", "sorting", {}),
    ("toy:sort-causal-trained", "sorting", {}),
]


@pytest.mark.parametrize(("toy", "name", "options"), ANALYSES)
def test_an_analysis_says_the_same_on_a_gpu(toy, name, options) -> None:
    here = it.analyze(it.load(toy, device="cpu"), name, **options)
    there = it.analyze(it.load(toy, device="cuda"), name, **options)
    assert there.status == here.status
    same_numbers(there.to_dict()["evidence"], here.to_dict()["evidence"])


def same_numbers(there, here) -> None:
    """Numbers within what rounding in another order can do to a measurement of float32."""
    assert type(there) is type(here)
    if isinstance(here, dict):
        assert there.keys() == here.keys()
        for key in here:
            same_numbers(there[key], here[key])
    elif isinstance(here, float):
        assert there == pytest.approx(here, rel=0.02, abs=0.02)


def test_an_audit_and_a_doctor_on_a_gpu() -> None:
    on_gpu = it.load("toy:induction", device="cuda")
    assert it.audit(on_gpu, "L1H0 is an induction head").status == "confirmed"
    here = it.doctor(it.load("toy:induction", device="cpu"))
    assert it.doctor(on_gpu).status == here.status


@pytest.mark.parametrize("kind", ["own-rotary", "hooked", "native", "gpt2", "llama"])
def test_models_of_every_kind_are_read_on_a_gpu(kind) -> None:
    model = build(kind)
    rows = torch.randint(D_VOCAB, (32, 10), generator=torch.Generator().manual_seed(0)).numpy()
    here = {name: it.analyze(model, name, data=rows) for name in ("heads", "collapse")}
    model.to("cuda")
    try:
        for name, expected in here.items():
            found = it.analyze(model, name, data=rows)
            assert found.status == expected.status
            same_numbers(found.to_dict()["evidence"], expected.to_dict()["evidence"])
    finally:
        model.to("cpu")


def spread(model, layers: dict[int, str]) -> None:
    """Put each layer of a GPT-2 on its device, as a `device_map` over several GPUs does."""
    parts = [(model.transformer.h[layer], device) for layer, device in layers.items()]
    last = parts[-1][1]
    parts += [(part, parts[0][1]) for part in (model.transformer.wte, model.transformer.wpe)]
    parts += [(model.transformer.ln_f, last), (model.lm_head, last)]
    for part, device in parts:
        part.to(device).register_forward_pre_hook(moved(device), with_kwargs=True)


def moved(device: str):
    def to_device(module, args, kwargs):
        return tree_map_only(torch.Tensor, lambda x: x.to(device), (args, kwargs))

    return to_device


ON_TOKENS = ("heads", "collapse", "circuit", "qk", "ov", "composition", "skip-bigrams")
ON_ANSWERS = ("roles", "logit-attribution")


@pytest.mark.parametrize("layers", [{0: "cuda", 1: "cpu"}, {0: "cpu", 1: "cuda"}])
def test_a_model_on_two_devices_is_analyzed(layers) -> None:
    """Activations and weights are moved where they are read; TransformerLens refuses such maps."""
    from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

    sizes = {"n_positions": 12, "n_embd": 16, "n_layer": 2, "n_head": 4}
    sizes["tie_word_embeddings"] = False
    rng = np.random.default_rng(0)
    rows = rng.integers(D_VOCAB, size=(32, 10))
    answers = np.stack([rng.choice(D_VOCAB, 2, replace=False) for _ in rows])
    ends = np.full((len(rows), 1), rows.shape[1] - 1)
    no_features = np.zeros((len(rows), 0), bool)
    asked = FeatureData(
        rows, no_features, (), answers=answers[:, :1], wrong=answers[:, 1:], answer_positions=ends
    )
    bridges = []
    for spread_over in (None, layers):
        inner = hf_model("GPT2LMHeadModel", "GPT2Config", **sizes)
        if spread_over:
            spread(inner, spread_over)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            bridges.append(
                build_bridge_from_module(inner, "GPT2LMHeadModel", hf_config=inner.config)
            )
    for name in (*ON_TOKENS, *ON_ANSWERS):
        data = asked if name in ON_ANSWERS else rows
        takes_data = name in ("heads", "collapse", "circuit", *ON_ANSWERS)
        here, there = (
            it.analyze(bridge, name, **({"data": data} if takes_data else {})) for bridge in bridges
        )
        assert there.status == here.status
        same_numbers(there.to_dict()["evidence"], here.to_dict()["evidence"])
    assert [it.doctor(bridge).status for bridge in bridges] == ["sound", "sound"]
    audits = [it.audit(bridge, "L1H1 is an induction head").status for bridge in bridges]
    assert audits[0] == audits[1]
