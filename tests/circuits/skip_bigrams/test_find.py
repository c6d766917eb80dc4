"""Skip-bigrams of models: planted in one head, read through norms, positions and shared keys."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from interp_toolkit.circuits import find_skip_bigrams, skip_bigrams_of
from interp_toolkit.circuits.skip_bigrams.analysis import SKIP_BIGRAMS
from interp_toolkit.errors import InputError
from interp_toolkit.models.loading.loader import load
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.models.weights.view import ModelWeights
from interp_toolkit.options import flags

N_BIGRAMS, PLACE = 20, (1, 2)
LEARNED = {"normalization_type": "LN"}
BARE = {"normalization_type": None, "positional_embedding_type": "none"}
ROTARY = {"normalization_type": "RMS", "positional_embedding_type": "rotary"}
GROUPED = ROTARY | {"n_key_value_heads": 2}


def turned(W_Q: torch.Tensor, distance: int) -> torch.Tensor:
    """W_Q turned so that a rotary head scores as W_Q W_K^T at this distance, by brute force."""
    basis = torch.eye(W_Q.shape[1], dtype=torch.float64)
    angle = distance / 10000 ** (2 * torch.arange(len(basis) // 2) / len(basis))
    half = len(basis) // 2
    turn = torch.zeros_like(basis)
    i = torch.arange(half)
    turn[i, i] = turn[i + half, i + half] = angle.cos().double()
    turn[i, i + half], turn[i + half, i] = angle.sin().double(), -angle.sin().double()
    return W_Q @ turn.T


@pytest.fixture(scope="module")
def head(planted):
    return planted(48, 16, N_BIGRAMS, seed=3, m=100)


def build(head, distance: int = 0, **options) -> Transformer:
    """Random weights, and the planted head at `PLACE`; one token a feature."""
    sizes = {"n_layers": 2, "d_model": 48, "n_ctx": 8, "d_head": 16, "n_heads": 4, "d_vocab": 100}
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(**sizes, attn_only=True, dtype=torch.float64, **options))
    W_Q, W_K = torch.from_numpy(head.W_Q), torch.from_numpy(head.W_K)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.endswith((".ln1.w", "ln_final.w")):
                parameter.copy_(torch.randn(parameter.shape) / 7)
        layer, at = PLACE
        attn = model.blocks[layer].attn
        model.embed.W_E.copy_(3 * torch.from_numpy(head.features))
        grouped = options.get("n_key_value_heads")
        keys = attn._W_K if grouped else attn.W_K
        keys[at * (grouped or 4) // 4] = W_K
        rotary = options.get("positional_embedding_type") == "rotary"
        attn.W_Q[at] = turned(W_Q, distance) if rotary else W_Q
    return model


def pairs_of(found) -> set[tuple[str, str]]:
    return {(b.query_feature, b.key_feature) for b in found.bigrams}


def expected(head, names: list[str]) -> set[tuple[str, str]]:
    return {(names[q], names[k]) for q, k in head.bigrams}


@pytest.mark.parametrize("options", [LEARNED, BARE, ROTARY, GROUPED])
def test_the_planted_head_is_the_one_that_shows(options, head, texts) -> None:
    distance = 3 if "rotary" in options.values() else None
    model = build(head, distance or 0, **options)
    result = SKIP_BIGRAMS(model, distance=distance)
    by_place = {(one.layer, one.head): one for one in result.head_bigrams}
    assert len(by_place) == 8
    found = pairs_of(by_place.pop(PLACE))
    names = [str(i) for i in range(100)]
    assert len(found - expected(head, names)) <= 2
    assert len(found & expected(head, names)) >= N_BIGRAMS - 4
    assert sum(bool(one.bigrams) for one in by_place.values()) <= 1
    assert result.headline.startswith("From weights alone, ")
    assert "L1H2" in result.headline
    texts(result.findings[-1])
    assert result.status == "detected"


def test_a_rotary_head_shows_its_bigrams_at_their_distance(head) -> None:
    model = build(head, 2, **ROTARY)
    near, there, far = find_skip_bigrams(model, *PLACE, distance=[0, 2, 7])
    assert [one.distance for one in (near, there, far)] == [0, 2, 7]
    assert len(there.bigrams) >= N_BIGRAMS - 4
    assert len(far.bigrams) < len(there.bigrams)


def test_scores_are_those_of_the_running_model(head) -> None:
    """The score of a bigram, between the tokens themselves, as attention computes it."""
    model = build(head, 3, **(GROUPED | {"normalization_type": None}))
    found = find_skip_bigrams(model, *PLACE, distance=3)[0]
    first = found.bigrams[0]
    x = torch.zeros((1, 8, 48), dtype=torch.float64)
    x[0, 7], x[0, 4] = (
        torch.from_numpy(head.features[int(name)])
        for name in (first.query_feature, first.key_feature)
    )
    scores = {}
    with (
        torch.no_grad(),
        model.hooks(
            [
                ("blocks.1.hook_resid_pre", lambda value, hook: x),
                (
                    "blocks.1.attn.hook_attn_scores",
                    lambda value, hook: scores.update(s=value.clone()),
                ),
            ]
        ),
    ):
        model(torch.zeros((1, 8), dtype=torch.long))
    assert first.score == pytest.approx(_without_bias(model, x, scores["s"]), abs=1e-6)


def _without_bias(model, x, scores) -> float:
    """Scores are bilinear: f(q, k) - f(q, 0) - f(0, k) + f(0, 0), with positions kept."""
    total = float(scores[0, PLACE[1], 7, 4])
    for keep, sign in (((7,), -1), ((4,), -1), ((), 1)):
        part, kept = torch.zeros_like(x), {}
        for pos in keep:
            part[0, pos] = x[0, pos]
        with (
            torch.no_grad(),
            model.hooks(
                [
                    ("blocks.1.hook_resid_pre", lambda value, hook, part=part: part),
                    (
                        "blocks.1.attn.hook_attn_scores",
                        lambda value, hook, kept=kept: kept.update(s=value.clone()),
                    ),
                ]
            ),
        ):
            model(torch.zeros((1, 8), dtype=torch.long))
        total += sign * float(kept["s"][0, PLACE[1], 7, 4])
    return total


def test_features_by_array_and_file(head, tmp_path) -> None:
    model = build(head, **BARE)
    np.save(tmp_path / "directions.npy", head.features[:80])
    by_file = find_skip_bigrams(model, *PLACE, features=tmp_path / "directions.npy")[0]
    by_array = find_skip_bigrams(model, *PLACE, features=head.features[:80])[0]
    assert by_file.n_pairs == 6400
    assert [b.z for b in by_file.bigrams] == pytest.approx([b.z for b in by_array.bigrams])
    assert len(by_file.bigrams) >= 8
    sides = find_skip_bigrams(model, *PLACE, key_features=head.features[:80])[0]
    assert sides.n_pairs == 8000


def test_the_result_is_shown_in_every_form(head, texts) -> None:
    result = SKIP_BIGRAMS(build(head, **BARE), layer=1)
    record = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert [one["head"] for one in record["heads"]] == [0, 1, 2, 3]
    shown = record["heads"][2]
    assert {"key_feature", "query_feature", "score", "z"} <= set(shown["bigrams"][0])
    assert shown["capacity"] == 48 * 16
    assert "estimated_count" in shown
    assert "found" not in record
    frame = result.to_frame()
    assert len(frame) == sum(len(one["bigrams"]) for one in record["heads"])
    assert [t.title for t in result.tables()][:2] == ["Heads", "Skip-bigrams of L1H2"]
    assert len(result.figures()) == 3
    for figure in result.figures():
        go.Figure(data=list(figure.data), layout=dict(figure.layout))
    texts(result.notes)


def test_a_head_without_bigrams_says_so(head, texts) -> None:
    result = SKIP_BIGRAMS(build(head, **BARE), layer=0, head=0)
    assert result.status == "not_detected"
    texts(result.headline)
    assert len(result.figures()) == 1
    assert result.to_frame().empty
    json.dumps(result.to_dict(), allow_nan=False)


def test_every_kind_of_model_is_read(model) -> None:
    assert "--probe skip-bigrams" in SKIP_BIGRAMS.unfit(model, None)
    found = find_skip_bigrams(model)
    assert len(found) == model.cfg.n_layers * model.cfg.n_heads
    assert all(math.isfinite(n) for one in found for n in one.histogram.null)
    assert sum(bool(one.bigrams) for one in found) <= 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"layer": 2}, "layers 0 to 1"),
        ({"head": 4}, "heads 0 to 3"),
        ({"distance": 1}, "learns positions"),
        (
            {"features": "embeddings", "query_features": "x", "key_features": "y"},
            "give either features",
        ),
        ({"features": np.ones((3, 5))}, "5"),
        ({"memory": "1B"}, "raise the limit"),
    ],
)
def test_what_cannot_be_looked_at_is_said(options, says, head) -> None:
    with pytest.raises(InputError) as error:
        find_skip_bigrams(build(head, **LEARNED), **options)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("options", "distance"),
    [
        (ROTARY, [2, 3, 2]),
        (ROTARY, 8),
        (ROTARY, -1),
        (ROTARY, []),
        (BARE, 2),
    ],
)
def test_distances_that_cannot_be(options, distance, texts, head) -> None:
    with pytest.raises(InputError) as error:
        find_skip_bigrams(build(head, **options), distance=distance)
    texts(str(error.value))
    assert "\n" not in str(error.value)


def test_heads_are_counted_not_looks(head, texts) -> None:
    result = SKIP_BIGRAMS(build(head, 2, **ROTARY), layer=1, distance=[1, 2, 3])
    assert len(result.head_bigrams) == 12
    shown = {one.head for one in result.head_bigrams if one.bigrams}
    assert f"Heads with bigrams: {len(shown)} of 4" in result.findings[0]
    texts(result.findings[0], numbers=False)
    one = SKIP_BIGRAMS(build(head, 2, **ROTARY), layer=0, head=1, distance=[1, 2])
    assert "L0H1 at 2 distances" in one.headline


def test_heads_that_do_not_turn_are_looked_at_once(head, monkeypatch) -> None:
    layer = ModelWeights.layer

    def still(view, number):
        read = layer(view, number)
        return dataclasses.replace(read, rotary=None) if number else read

    monkeypatch.setattr(ModelWeights, "layer", still)
    result = SKIP_BIGRAMS(build(head, **ROTARY), head=2, distance=[1, 2])
    places = [(one.layer, one.head, one.distance) for one in result.head_bigrams]
    assert places == [(0, 2, 1), (0, 2, 2), (1, 2, None)]
    assert "no difference: L1H2" in "; ".join(result.notes)


def test_what_the_norm_lets_through_is_scored_against_the_running_model(head) -> None:
    """Embeddings with a mean over the stream: LN takes it, and one dimension, away."""
    model = build(head, **LEARNED)
    rng = torch.Generator().manual_seed(5)
    embeddings = torch.randn((100, 48), generator=rng, dtype=torch.float64)
    embeddings += 2 * torch.randn((100, 1), generator=rng, dtype=torch.float64)
    centred = torch.nn.functional.normalize(embeddings - embeddings.mean(1, keepdim=True), dim=1)
    U, sizes, Vt = torch.linalg.svd(centred[:16].T @ centred[50:66])
    attn = model.blocks[1].attn
    with torch.no_grad():
        model.embed.W_E.copy_(embeddings)
        attn.W_Q[2], attn.W_K[2] = U[:, :16] * sizes[:16], Vt[:16].T
        attn.b_Q[2], attn.b_K[2] = 0, 0
        model.blocks[1].ln1.b.zero_()
    found = find_skip_bigrams(model, *PLACE)[0]
    assert len(found.bigrams) == 16
    first = found.bigrams[0]
    x, kept = torch.zeros((1, 8, 48), dtype=torch.float64), {}
    x[0, 7], x[0, 4] = (1e3 * embeddings[int(n)] for n in (first.query_feature, first.key_feature))
    hooks = [
        ("blocks.1.hook_resid_pre", lambda value, hook: x),
        ("blocks.1.attn.hook_attn_scores", lambda value, hook: kept.update(s=value.clone())),
    ]
    with torch.no_grad(), model.hooks(hooks):
        model(torch.zeros((1, 8), dtype=torch.long))
    running = float(kept["s"][0, 2, 7, 4])  # LN gives both a length of sqrt(48)
    assert first.score == pytest.approx(running / 48, rel=1e-5)
    matrix = skip_bigrams_of((attn.W_Q[2], attn.W_K[2]), centred, dimensions=47)
    assert [b.z for b in found.bigrams] == pytest.approx([b.z for b in matrix.bigrams], rel=1e-6)
    plain = skip_bigrams_of((attn.W_Q[2], attn.W_K[2]), centred)
    assert found.bigrams[0].z < 0.999 * plain.bigrams[0].z


def test_a_head_that_scores_nothing_is_left_out(head, texts) -> None:
    model = build(head, **LEARNED)
    with torch.no_grad():
        model.blocks[0].attn.W_Q[1] = 0
        model.blocks[0].attn.W_K[2] = 1.0  # constant over the stream: LN takes it away
    result = SKIP_BIGRAMS(model)
    assert [(one.layer, one.head) for one in result.head_bigrams] == [
        *((0, 0), (0, 3)),
        *((1, n) for n in range(4)),
    ]
    texts("; ".join(result.notes))
    alone = SKIP_BIGRAMS(model, layer=0, head=1)
    texts(alone.headline)
    texts(alone.findings[0])


def test_only_models_made_for_it_are_looked_at_without_being_asked() -> None:
    assert SKIP_BIGRAMS.unfit(load("toy:skip-bigrams-gqa"), None) is None
    for name in ("or-1head", "universal-keys-separate", "uand"):
        assert "--probe skip-bigrams" in SKIP_BIGRAMS.unfit(load(f"toy:{name}"), None)


def test_options_of_the_command_line_are_its_own() -> None:
    assert {"layer", "head", "features", "memory", "seed"} <= {
        flag.field for flag in flags(SKIP_BIGRAMS.options)
    }


def test_settings_name_the_features_and_hold_none_of_them() -> None:
    model = load("toy:skip-bigrams-rotary")
    directions = torch.eye(int(model.cfg.d_model))[:12]
    found = SKIP_BIGRAMS(model, layer=0, head=0, features=directions, distance=np.int64(1))
    settings = found.provenance.settings
    assert settings["features"] == "the directions given"
    assert settings["distance"] == [1]
