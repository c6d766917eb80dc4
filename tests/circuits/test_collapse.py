"""Collapse: cosines and dimensions against plain loops, on every kind of model; the verdict."""

from __future__ import annotations

import json
import math

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

import interp_toolkit as it
from interp_toolkit.circuits.collapse import COLLAPSE, sentences
from interp_toolkit.circuits.similarity import (
    DirectionMoments,
    directions,
    mean_cosines,
    random_rows,
    similarity_by_depth,
    sites_of,
)
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.models.running.interventions import reinitialised
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.report.html import dumps, to_html
from interp_toolkit.stats import Estimate
from interp_toolkit.toys.hand_set.untrained import random_model
from interp_toolkit.toys.random_attention.variants import variant_config


def rows_of(*tokens: list[int]) -> FeatureData:
    rows = [np.array(row) for row in tokens]
    return FeatureData(rows, np.zeros((len(rows), 0), bool), (), source="rows")


def by_loops(hidden: np.ndarray, tokens: np.ndarray) -> float:
    cosines = [
        hidden[i] @ hidden[j] / math.sqrt((hidden[i] @ hidden[i]) * (hidden[j] @ hidden[j]))
        for i in range(len(tokens))
        for j in range(i)
        if tokens[i] != tokens[j]
    ]
    return float(np.mean(cosines))


def ratio(points: np.ndarray) -> float:
    values = np.linalg.eigvalsh(points.T @ points / len(points))
    return float(values.sum() ** 2 / (values**2).sum())


def untrained(variant: str, n_layers: int, seed: int = 0) -> Transformer:
    cfg = variant_config(
        variant,
        n_layers=n_layers,
        n_heads=2,
        d_model=64,
        n_ctx=32,
        d_vocab=200,
        initial_std=0.03,
        seed=seed,
    )
    return Transformer(cfg).eval()


def test_directions_of_any_size_and_none() -> None:
    hidden = torch.tensor([[3.0, 4.0], [0.0, 0.0], [1e-30, 0.0], [0.0, -1e30]])
    units, known = directions(hidden)
    assert known.tolist() == [True, False, True, True]
    expected = torch.tensor([[0.6, 0.8], [0, 0], [1, 0], [0, -1]])
    torch.testing.assert_close(units, expected)
    assert directions(hidden.bfloat16())[0].dtype == torch.float32


def test_mean_cosines_by_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(4, 9, 5, generator=generator, dtype=torch.float64)
    tokens = torch.randint(4, (4, 9), generator=generator)
    counted = torch.rand(4, 9, generator=generator) > 0.2
    found = mean_cosines(directions(hidden)[0], tokens, counted)
    for row in range(4):
        keep = counted[row].numpy()
        expected = by_loops(hidden[row].numpy()[keep], tokens[row].numpy()[keep])
        assert found[row].item() == pytest.approx(expected, abs=1e-12)
    alike = torch.zeros(1, 3, dtype=torch.int64)
    assert mean_cosines(directions(hidden[:1, :3])[0], alike, counted[:1, :3] | True).isnan().all()


def test_dimensions_against_eigenvalues_and_known_cases() -> None:
    points = np.random.default_rng(0).normal([3, 0, 0, 0, 0, 0], 1, (40, 6))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    moments = DirectionMoments(6)
    for part in np.array_split(points, 3):
        moments.add(torch.from_numpy(part))
    assert moments.dimensions(centred=False) == pytest.approx(ratio(points))
    assert moments.dimensions(centred=True) == pytest.approx(ratio(points - points.mean(0)))
    one, basis = DirectionMoments(4), DirectionMoments(4)
    one.add(torch.eye(4)[[1, 1, 1]])
    basis.add(torch.eye(4))
    assert one.dimensions(centred=False) == pytest.approx(1)
    assert math.isnan(one.dimensions(centred=True))
    assert basis.dimensions(centred=False) == pytest.approx(4)
    assert basis.dimensions(centred=True) == pytest.approx(3)


def test_every_kind_of_model_by_loops(model, count_hooks) -> None:
    """Hidden states as the model's own cache and its unembedding see them."""
    data = rows_of([1, 2, 3, 1, 5, 6], [4, 4, 9], [7, 8, 9, 10, 2, 1])
    before = count_hooks(model)
    found = similarity_by_depth(model, data)
    assert count_hooks(model) == before
    names = ["embedding", *(f"block {n}" for n in range(int(model.cfg.n_layers)))]
    assert [place.name for place in found.sites][: len(names)] == names
    unembedded: list[torch.Tensor] = []
    handle = model.unembed.register_forward_pre_hook(lambda _, inputs: unembedded.append(inputs[0]))
    for number, row in enumerate(data.tokens):
        with torch.no_grad():
            cache = model.run_with_cache(torch.from_numpy(row)[None], remove_batch_dim=False)[1]
        for place, cosines in zip(found.sites, found.cosines, strict=True):
            hidden = unembedded[-1] if place.normed else cache[place.hook]
            expected = by_loops(hidden[0].double().numpy(), row)
            assert cosines[number] == pytest.approx(expected, abs=2e-5)
    handle.remove()
    assert found.positions == 15
    assert found.pairs == 14 + 2 + 15


def test_little_memory_changes_nothing(texts) -> None:
    model = untrained("standard", 8)
    data = random_rows(model, rows=6)
    steps: list[str] = []
    whole = similarity_by_depth(model, data)
    tight = similarity_by_depth(model, data, memory="500kB", progress=steps.append)
    texts(steps)
    np.testing.assert_allclose(tight.cosines, whole.cosines, atol=1e-6)
    np.testing.assert_allclose(tight.dimensions, whole.dimensions, rtol=1e-5)
    np.testing.assert_allclose(tight.centred_dimensions, whole.centred_dimensions, rtol=1e-5)


def test_memory_below_the_sums_is_refused_by_what_was_given() -> None:
    model = untrained("standard", 2)
    with pytest.raises(InputError, match=r"in 64 dimensions need about .* of the 20000 bytes of m"):
        similarity_by_depth(model, random_rows(model, rows=6), memory="20kB")


def test_bos_is_left_out() -> None:
    data = rows_of([0, 3, 4, 5], [0, 6, 7, 8])
    model = random_model(0, d_vocab=9, n_ctx=8)  # no tokenizer: 0 is a token like any other
    assert similarity_by_depth(model, data).positions == 8

    class Tokenizer:
        bos_token_id = 0

    object.__setattr__(model, "tokenizer", Tokenizer())
    object.__setattr__(model, "cfg", model.cfg.model_copy(update={"default_prepend_bos": True}))
    found = similarity_by_depth(model, data)
    assert (found.positions, found.pairs) == (6, 6)
    rows = random_rows(model, rows=20).token_matrix()
    assert (rows[:, 0] == 0).all()
    assert set(rows[:, 1:].flatten()) == set(range(1, 9))


def test_a_rise_that_shuffled_weights_give_too_is_no_finding(texts) -> None:
    standard, mixit = COLLAPSE(untrained("standard", 6)), COLLAPSE(untrained("mixit", 6))
    assert standard.status == "uninformative"  # its weights were random to begin with
    texts(standard.headline)
    assert standard.rise["low"] > 0.3
    assert mixit.status == "not_detected"
    assert mixit.rise["high"] < 0.1
    last, first = standard.layers[-2], standard.layers[0]
    assert last.site_name == "block 5"
    assert first.low <= first.cosine <= first.high < 0.1 < last.low
    assert last.dimensions < first.dimensions / 2
    assert len(last.reinitialised_cosine) == 19
    for copy in last.reinitialised_cosine:
        assert copy == pytest.approx(last.cosine, abs=0.1)


def test_a_rise_beyond_shuffled_weights_is_one(texts, analyzed) -> None:
    found = analyzed("toy:uand-trained", "collapse")
    assert found.status == "detected"
    assert found.evidence.reason is None
    assert found.evidence.rise_low > max(found.evidence.rises_of_copies)
    texts(found.headline)


def test_few_copies_confirm_and_deny_nothing(texts) -> None:
    for name in ("standard", "mixit"):
        for copies in (0, 1, 3):
            found = COLLAPSE(untrained(name, 2), reinitialisations=copies)
            assert found.status in ("undecided", "uninformative")
            assert copies or "fewer than 19" in found.evidence.reason
            texts(found.headline)


def test_a_mean_cosine_that_falls_is_not_said_to_rise() -> None:
    found = COLLAPSE(untrained("standard", 2), reinitialisations=0)
    for mean, verb in ((0.2, "rises by 0.20"), (-0.2, "changes by -0.20")):
        rise = Estimate(mean, mean - 0.1, mean + 0.1, 0.0, 32)
        first, last = found.layers[0], found.layers[-1]
        [sentence] = [s for s in sentences(found.evidence, rise, first, last, 0.1) if " by " in s]
        assert verb in sentence


def test_untrained_and_shuffled_models_are_seldom_said_to_collapse() -> None:
    found = [COLLAPSE(random_model(seed, n_ctx=12), seed=seed).status for seed in range(20)]
    trained = it.load("toy:induction-trained")
    for seed in range(100, 110):
        with reinitialised(trained, seed=seed):
            found.append(COLLAPSE(trained).status)
    assert found.count("detected") <= 3  # 1.5 of 30 at the level


def test_repeated_rows_count_once() -> None:
    model, rows = untrained("standard", 2), np.random.default_rng(0).integers(0, 200, (6, 12))
    once = it.analyze(model, "collapse", data=rows)
    often = it.analyze(model, "collapse", data=np.concatenate([rows, rows, rows]))
    assert often.rise == pytest.approx(once.rise)
    assert often.evidence.rows == 6
    assert "12 prompts repeat others" in often.notes[0]


def test_result_is_whole_and_the_model_left_alone() -> None:
    model = untrained("standard", 2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = it.analyze(model, "collapse", seed=1, reinitialisations=2)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    text = json.loads(dumps([result]))
    layers = text["results"][0]["layers"]
    assert [layer["site_name"] for layer in layers] == [
        "embedding",
        "block 0",
        "block 1",
        "final norm",
    ]
    assert len(result.to_frame()) == 4
    for figure in result.figures():
        go.Figure({"data": list(figure.data), "layout": dict(figure.layout)})
    assert result.figures()[0].title in to_html([result])
    again = it.analyze(model, "collapse", seed=1, reinitialisations=2)
    assert again.layers == result.layers
    assert COLLAPSE(model, reinitialisations=0).layers[1].reinitialised_cosine == []


def test_what_cannot_be_said(texts) -> None:
    model = untrained("standard", 1)
    with pytest.raises(InputError, match="two different tokens"):
        COLLAPSE(model, data=rows_of([1, 1, 1], [2, 2]))
    with pytest.raises(InputError, match="at least 2 rows"):
        COLLAPSE(model, data=rows_of([1, 2, 3], [2, 2]))
    with pytest.raises(InputError, check=texts):
        COLLAPSE(model, reinitialisations=-1)
    with torch.no_grad():
        model.blocks[0].attn.W_O[:] = torch.nan
    with pytest.raises(InputError, match="block 0 are NaN"):
        COLLAPSE(model)


def test_what_does_not_fit(texts) -> None:
    model = untrained("standard", 1)
    assert COLLAPSE.unfit(model, None) is None
    assert "8 tokens" in str(COLLAPSE.unfit(model, rows_of([1, 2], [2, 3])))
    assert "8 tokens" in str(COLLAPSE.unfit(random_model(0, n_ctx=3), None))
    assert "different tokens" in str(COLLAPSE.unfit(model, rows_of([1] * 8, [2] * 8)))
    blockless = untrained("standard", 0)
    assert "no blocks" in str(COLLAPSE.unfit(blockless, None))
    with pytest.raises(InputError, match="no blocks"):
        sites_of(blockless)
    with pytest.raises(InputError, check=texts):
        random_rows(random_model(0, n_ctx=1))


def test_an_interval_of_a_cosine_is_no_wider_than_cosines_can_be() -> None:
    result = it.analyze(random_model(0, n_layers=1), "collapse", data=rows_of([1, 2, 3, 4], [5, 6]))
    for layer in result.layers:
        if layer.low is not None and layer.high is not None:
            assert -1 <= layer.low <= layer.high <= 1
    assert -2 <= result.rise["low"] <= result.rise["high"] <= 2
