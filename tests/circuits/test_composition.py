"""The composition analysis where a pair is planted, where none is, and where it does not fit."""

from __future__ import annotations

import json

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from interp_toolkit.circuits import composition
from interp_toolkit.circuits.composition import COMPOSITION, LISTED, SHOWN
from interp_toolkit.errors import InputError
from interp_toolkit.models.loading.loader import load
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer


def random_model(seed: int = 0, **options) -> Transformer:
    sizes = {"n_layers": 3, "d_model": 24, "n_ctx": 8, "d_head": 6, "n_heads": 3, "d_vocab": 7}
    config = TransformerConfig(
        **(sizes | {"attn_only": True, "normalization_type": None} | options)
    )
    torch.manual_seed(seed)
    model = Transformer(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) / 5)
    return model


@pytest.fixture(scope="module")
def planted() -> Transformer:
    model = random_model()
    with torch.no_grad():
        model.blocks[0].attn.W_O[2] = model.blocks[2].attn.W_K[1].T
    return model


def test_the_planted_pair_is_the_verdict(planted, texts) -> None:
    result = COMPOSITION(planted)
    assert result.status == "detected"
    texts(result.headline)
    texts(result.findings[0])
    assert "Q 0 of 27, K 1 of 27, V 0 of 27" in result.findings[0]
    texts(result.findings[-1])
    assert result.counts["K"].significant == 1
    assert sum(count.significant for count in result.counts.values()) == 1
    pairs, counts = result.tables()
    assert pairs.rows[0][:3] == ["K", "L0H2", "L2H1"]
    assert len(pairs.rows) == SHOWN
    assert list(pairs.highlight) == [0]
    assert [row[1] for row in counts.rows] == [27, 27, 27]
    assert len(result.to_frame()) == 81


def test_without_a_pair_it_says_so(texts) -> None:
    result = COMPOSITION(random_model(1))
    assert result.status == "not_detected"
    texts(result.verdict)
    assert not result.tables()[0].highlight


def test_without_a_comparison_it_is_undecided(texts) -> None:
    result = COMPOSITION(load("toy:universal-keys"))
    assert result.evidence.pairs == 0
    assert result.status == "undecided"
    texts(result.evidence.reason)
    texts(result.findings)


def test_its_json_is_plain_and_its_figures_are_plotlys(planted) -> None:
    result = COMPOSITION(planted)
    data = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert len(data["pairs"]) == min(81, 1 + LISTED)
    assert data["pairs"][0]["reader_layer"] == 2
    for figure in result.figures():
        drawn = go.Figure(data=list(figure.data), layout=dict(figure.layout))
        assert drawn.data[0].type == "heatmap"


def test_the_map_shows_each_pair_where_it_belongs(planted) -> None:
    result = COMPOSITION(planted)
    figure = next(f for f in result.figures() if f.title == "K-composition")
    trace = figure.data[0]
    row, column = trace["y"].index("L0H2"), trace["x"].index("L2H1")
    score = result.scores.mode("K")[0, 2, 2, 1]
    assert trace["customdata"][row][column][0] == pytest.approx(score, rel=1e-3)
    assert trace["z"][row][column] == pytest.approx(score * np.sqrt(24), rel=1e-3)
    same_layer = trace["z"][trace["y"].index("L1H0")][trace["x"].index("L1H1")]
    assert same_layer is None


def test_large_models_are_shown_layer_by_layer(planted, monkeypatch) -> None:
    monkeypatch.setattr(composition, "MOST_HEADS", 4)
    result = COMPOSITION(planted)
    trace = next(f for f in result.figures() if f.title == "K-composition").data[0]
    assert trace["y"] == ["0", "1"]
    assert trace["x"] == ["1", "2"]
    score = result.scores.mode("K")[0, 2, 2, 1]
    assert trace["customdata"][0][1][0] == pytest.approx(score, rel=1e-3)
    assert trace["z"][1][0] is None


def test_it_says_what_it_does_not_fit(zoo) -> None:
    assert COMPOSITION.unfit(random_model(n_layers=1), None) == "needs two layers"
    assert COMPOSITION.unfit(random_model(), None) is None
    assert COMPOSITION.unfit(zoo("llama"), None) is None
    assert "shortformer" in COMPOSITION.unfit(zoo("shortformer"), None)
    with pytest.raises(InputError, match="shortformer"):
        COMPOSITION(zoo("shortformer"))
    assert COMPOSITION.unfit(zoo("qwen3"), None) is None
