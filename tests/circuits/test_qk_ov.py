"""The QK and OV analyses: planted heads in their verdicts, and their parts against the circuits."""

from __future__ import annotations

import json

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from interp_toolkit.circuits.composition import COMPOSITION
from interp_toolkit.circuits.qk_ov import OV, QK, OVFinding, QKFinding
from interp_toolkit.circuits.weights.ov import ov_circuit
from interp_toolkit.circuits.weights.qk import qk_circuit
from interp_toolkit.errors import InputError
from interp_toolkit.models.loading.loader import load
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.models.weights.view import weights
from interp_toolkit.options import flags

ANALYSES = {"qk": QK, "ov": OV}


@pytest.fixture(scope="module")
def planted() -> Transformer:
    """L0H1 copies, L1H2 matches."""
    sizes = {"n_layers": 2, "d_model": 24, "n_ctx": 8, "d_head": 6, "n_heads": 3, "d_vocab": 30}
    torch.manual_seed(1)
    model = Transformer(TransformerConfig(**sizes, attn_only=True))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            one = name.endswith((".ln1.w", "ln_final.w"))
            parameter.copy_(torch.randn(parameter.shape) * (not one) / 5 + one)
        model.unembed.W_U.copy_(model.embed.W_E.T)
        model.blocks[0].attn.W_O[1] = model.blocks[0].attn.W_V[1].T
        model.blocks[1].attn.W_K[2] = model.blocks[1].attn.W_Q[2]
    return model


def drawn(result) -> None:
    for figure in result.figures():
        go.Figure(data=list(figure.data), layout=dict(figure.layout))


@pytest.mark.parametrize(("circuit", "place"), [("ov", "L0H1"), ("qk", "L1H2")])
def test_the_planted_head_is_the_verdict_over_all(circuit, place, planted, texts) -> None:
    result = ANALYSES[circuit](planted)
    assert result.status == "detected"
    texts(result.headline)
    assert ": 1 of 6 (p ≤ 0.05" in result.findings[0]
    texts(result.findings[-1])
    table = result.tables()[0]
    assert [table.rows[i][0] for i in table.highlight] == [place]
    assert len(result.to_frame()) == 6
    json.dumps(result.to_dict(), allow_nan=False)
    drawn(result)


def test_heads_without_a_score_are_counted_with_their_reason(texts) -> None:
    """Of four heads, two have W_V = 0, and L0H0 writes where the unembedding does not read."""
    finding = ANALYSES["ov"](load("toy:induction-rotary")).findings[0]
    assert ": 1 of 1 (p ≤ 0.05" in finding
    texts(finding)


def test_a_score_of_zero_eigenvalues_is_undefined(texts) -> None:
    """The sorter's W_QK maps no token's embedding to itself: sum over sum of sizes is 0 / 0."""
    result = QK(load("toy:sort-argmax"))
    assert result.heads[0].qk_matching is None
    texts(" ".join(result.findings))
    assert "nan" not in " ".join(result.findings)


@pytest.mark.parametrize("circuit", ["ov", "qk"])
def test_effective_ranks_are_those_of_the_dense_circuits(circuit, planted) -> None:
    result = ANALYSES[circuit](planted)
    for record in result.heads:
        w, head = weights(planted).layer(record.layer), record.head
        centre = torch.eye(24) - 1 / 24
        if circuit == "ov":
            dense = centre @ w.W_V[head] @ w.W_O[head]
        else:
            dense = centre @ w.W_Q[head] @ w.W_K[head].T @ centre
        squares = torch.linalg.svdvals(dense.double()).detach().numpy() ** 2
        expected = squares.sum() ** 2 / (squares**2).sum()
        assert record.effective_rank == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("kind", ["own", "own-rotary", "gpt2", "llama", "gemma2", "alibi", "bloom"])
@pytest.mark.parametrize("circuit", ["ov", "qk"])
def test_one_head_is_taken_apart(circuit, kind, zoo, texts) -> None:
    model = zoo(kind)
    result = ANALYSES[circuit](model, layer=1, head=2)
    assert isinstance(result, OVFinding if circuit == "ov" else QKFinding)
    if circuit == "ov":
        scores = ov_circuit(model, 1, 2).tokens()
    else:
        taken = qk_circuit(model, 1, 2)
        turned = taken.rotary is not None or taken.alibi is not None
        scores = (taken.at_distance(0) if turned else taken).tokens()
    matrix = scores.matrix().numpy()
    left, right = ("source", "logit") if circuit == "ov" else ("query", "key")
    first = result.pairs[0]
    assert first.score == pytest.approx(matrix.max(), rel=1e-5)
    assert matrix[getattr(first, f"{left}_id"), getattr(first, f"{right}_id")] == pytest.approx(
        first.score
    )
    assert len(result.components) == 2 * min(5, len(result.singular_values))
    shares = [c.share for c in result.components if c.sign == "+"]
    squares = np.array(result.singular_values) ** 2
    assert shares == pytest.approx(squares[: len(shares)] / squares.sum())
    texts(result.verdict)
    assert any("earlier layers" in note for note in result.notes)
    assert [table.title for table in result.tables()][:2] == ["Token pairs", "Components"]
    trace = result.figures()[0].data[0]
    row, column = (
        trace["y"].index(str(getattr(first, left))),
        trace["x"].index(str(getattr(first, right))),
    )
    assert trace["z"][row][column] == pytest.approx(first.score, rel=1e-3)
    json.dumps(result.to_dict(), allow_nan=False)
    drawn(result)


def test_tokens_read_as_the_tokenizer_says(planted) -> None:
    class Tokenizer:
        def decode(self, ids):
            if ids[0] > 20:
                raise KeyError(ids[0])
            return "same" if ids[0] < 5 else f"word{ids[0]}"

    planted.tokenizer = Tokenizer()
    try:
        result = ANALYSES["ov"](planted, layer=0, head=1)
    finally:
        del planted.tokenizer
    for pair in result.pairs:
        token = pair.source_id
        expected = str(token) if token > 20 else "'same'" if token < 5 else f"'word{token}'"
        assert pair.source == expected
    labels = result.figures()[0].data[0]["y"]
    assert len(set(labels)) == len(labels)


def test_positions_are_where_the_head_stands_or_how_far_it_looks(zoo) -> None:
    for kind, expected in (("own", (3, 3)), ("llama", None)):
        result = QK(zoo(kind), layer=0, head=1, position=3)
        taken = qk_circuit(zoo(kind), 0, 1)
        scores = taken.tokens(*expected) if expected else taken.at_distance(3).tokens()
        assert result.pairs[0].score == pytest.approx(float(scores.matrix().max()))


def test_a_head_of_zeros_is_named(planted) -> None:
    with torch.no_grad():
        kept = planted.blocks[0].attn.W_O[0].clone()
        planted.blocks[0].attn.W_O[0] = 0
        result = OV(planted, layer=0, head=0)
        planted.blocks[0].attn.W_O[0] = kept
    assert "is zero" in result.verdict
    record = next(r for r in result.heads if (r.layer, r.head) == (0, 0))
    assert record.ov_copying is None
    json.dumps(result.to_dict(), allow_nan=False)


def test_what_cannot_be_asked_is_refused(planted, zoo) -> None:
    with pytest.raises(InputError, match="together"):
        OV(planted, layer=1)
    with pytest.raises(InputError, match="not all"):
        QK(planted, layer=1, head=0, position="all")
    with pytest.raises(InputError, match="no head 7"):
        QK(planted, layer=1, head=7)
    with pytest.raises(InputError, match="no layer 7"):
        OV(planted, layer=7, head=0)
    with pytest.raises(InputError, match="shortformer"):
        QK(zoo("shortformer"), layer=0, head=0)
    assert QK(zoo("qwen3"), layer=0, head=0).singular_values
    assert "--layer" in QK.unfit(planted, None)


def test_without_layer_and_head_a_model_that_cannot_be_read_says_why(zoo, texts) -> None:
    result = QK(zoo("shortformer"))
    texts(result.verdict)
    assert any("shortformer" in note for note in result.notes)
    assert np.isnan(result.to_frame()["qk_matching"].to_numpy(float)).all()


def test_their_options_are_the_command_lines() -> None:
    for analysis in (QK, OV):
        assert {f.field for f in flags(analysis.options)} == {
            "layer",
            "head",
            "position",
            "memory",
            "seed",
            "effort",
        }
    assert {f.field for f in flags(COMPOSITION.options)} == {"effort", "memory", "seed"}
