"""What must not change a verdict: another basis, an order, the tokens' names, batches, a constant.

`disguised` turns the residual stream, takes random bases inside heads, and puts heads and neurons
in another order: the same function. Tokens are renamed in model and rows at once. A verdict says
the same then, head for head.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

import interp_toolkit as it
from interp_studies.challenge.disguise import disguised
from interp_toolkit.data import FeatureData
from interp_toolkit.data.composites import task_data
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.model import Head
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.hand_set.untrained import random_model
from interp_toolkit.toys.zeros import zeros

pytestmark = pytest.mark.slow
SEEDS = (0, 1)


def copied(model: Transformer, changes: Mapping[str, torch.Tensor]) -> Transformer:
    """The model with some parameters replaced, without its record."""
    new = zeros(model.cfg)
    new.load_state_dict(model.state_dict() | dict(changes))
    return new.eval()


def renamed(model: Transformer, order: torch.Tensor) -> Transformer:
    """Token `i` of the new model is token `order[i]` of the old."""
    changes = {"embed.W_E": model.embed.W_E[order]}
    if "unembed.W_U" in model.state_dict():
        changes["unembed.W_U"] = model.unembed.W_U[:, order]
        if "unembed.b_U" in model.state_dict():
            changes["unembed.b_U"] = model.unembed.b_U[order]
    return copied(model, changes)


def repeats(model: Transformer, rows: int = 48) -> np.ndarray:
    """Rows of random tokens, said twice; the same whatever the tokens are called."""
    n = min(int(model.cfg.n_ctx) // 2, 20)
    once = np.random.default_rng(5).integers(0, model.cfg.d_vocab, (rows, n))
    return np.concatenate([once, once], axis=1)


def features(model: Transformer) -> FeatureData:
    tokens = repeats(model, 128)[:, :8]
    half = model.cfg.d_vocab // 2
    bits = np.stack([tokens[:, 1] < half, tokens[:, 4] < half], axis=1)
    return FeatureData(tokens, bits, ("a", "b"))


def named(result: Any, places: Mapping[Head, Head] | None = None) -> set[Head]:
    """The heads in its verdict, where they are in the other model."""
    found = {Head(*map(int, pair)) for pair in re.findall(r"L(\d+)H(\d+)", result.verdict)}
    return {places[head] for head in found} if places else found


@pytest.fixture(scope="module")
def trained() -> Transformer:
    return copied(it.load("toy:induction-trained"), {})


@pytest.mark.parametrize("seed", SEEDS)
def test_heads_are_the_same_in_another_basis_and_order(trained: Transformer, seed: int) -> None:
    turned, places, _ = disguised(trained, seed)
    rows = repeats(trained)
    one, other = (it.analyze(model, "heads", data=rows) for model in (trained, turned))
    assert one.status == other.status == "detected"
    frame = one.to_frame().set_index(["detector", "layer", "head"])
    again = other.to_frame().set_index(["detector", "layer", "head"])
    assert len(frame) == len(again)
    for (detector, *head), row in frame.iterrows():
        there = again.loc[(detector, *places[Head(*head)])]
        assert row.score == pytest.approx(there.score, abs=1e-3)
        assert row.detected == there.detected
    assert named(one, places) == named(other) != set()


@pytest.mark.parametrize("name", ["xor", "collapse", "composition", "ov", "circuit"])
@pytest.mark.parametrize("seed", SEEDS)
def test_verdicts_are_the_same_in_another_basis(trained: Transformer, name: str, seed: int) -> None:
    turned, places, _ = disguised(trained, seed)
    data = {"xor": features(trained), "collapse": repeats(trained)}.get(name)
    one, other = (it.analyze(model, name, data=data) for model in (trained, turned))
    assert one.status == other.status
    if name == "collapse":
        ours, theirs = ([layer.cosine for layer in r.layers] for r in (one, other))
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
    if name in ("composition", "ov"):
        assert named(one, places) == named(other)


@pytest.mark.parametrize("name", ["heads", "xor", "collapse", "circuit", "composition", "ov"])
def test_verdicts_are_the_same_of_renamed_tokens(trained: Transformer, name: str) -> None:
    order = torch.from_numpy(np.random.default_rng(3).permutation(trained.cfg.d_vocab))
    back = np.argsort(order.numpy())
    given = features(trained)
    again = FeatureData(back[given.token_matrix()], given.features, given.names)
    data: dict[str, tuple[Any, Any]] = {
        "xor": (given, again),
        "heads": (repeats(trained), back[repeats(trained)]),
        "collapse": (repeats(trained), back[repeats(trained)]),
    }
    ours, theirs = data.get(name, (None, None))
    one = it.analyze(trained, name, data=ours)
    other = it.analyze(renamed(trained, order), name, data=theirs)
    assert one.status == other.status
    if name in ("heads", "composition", "ov"):
        assert named(one) == named(other)


def test_ands_are_the_same_of_neurons_in_another_order() -> None:
    """Random layers are others then, so what is compared with them may differ; the ANDs may not."""
    model = it.load("toy:uand-trained")
    order = torch.from_numpy(np.random.default_rng(4).permutation(model.cfg.d_mlp))
    mlp = model.blocks[0].mlp
    changes = {
        "blocks.0.mlp.W_in": mlp.W_in[:, order],
        "blocks.0.mlp.b_in": mlp.b_in[order],
        "blocks.0.mlp.W_out": mlp.W_out[order],
    }
    data = task_data(record_of(model).task)
    one, other = (it.analyze(m, "uand", data=data) for m in (model, copied(model, changes)))
    assert one.status == other.status
    assert one.layers[0].counts == other.layers[0].counts


@pytest.mark.parametrize("name", ["heads", "xor", "collapse"])
def test_verdicts_are_the_same_in_smaller_batches(trained: Transformer, name: str) -> None:
    data = features(trained) if name == "xor" else repeats(trained)
    one = it.analyze(trained, name, data=data)
    other = it.analyze(trained, name, data=data, memory="4MiB")
    assert one.status == other.status
    assert re.sub(r"[\d.e-]+", "", one.verdict) == re.sub(r"[\d.e-]+", "", other.verdict)


@pytest.mark.parametrize("shift", [1.0, 100.0])
def test_what_is_added_everywhere_changes_no_separability(shift: float) -> None:
    """A constant behind the last block; so large a one costs digits, and may leave it undecided."""
    model = random_model(0, n_layers=2, biases=True, d_mlp=64)
    data = features(model)
    moved = copied(model, {"blocks.1.mlp.b_out": model.blocks[1].mlp.b_out + shift})
    one, other = (
        it.analyze(m, "xor", data=data, hooks="blocks.1.hook_resid_post").sites[0]
        for m in (model, moved)
    )
    assert one.status != "undecided"
    assert other.status == one.status or (shift > 1 and other.status == "undecided")
