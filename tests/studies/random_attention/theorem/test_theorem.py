"""Theorem 5.1: functions, heads and fits against loops, the toolkit and closed forms."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp_studies.claims import JudgedClaim, counted, judged
from interp_studies.jobs.runner import Runner
from interp_studies.random_attention.theorem import study
from interp_studies.random_attention.theorem.fits import (
    FUNCTIONS,
    LATER,
    POSITIONS,
    BlockSizes,
    draw,
    errors,
    exponent,
    fit_block,
    fit_values,
    linear_bound,
    values,
)
from interp_studies.random_attention.theorem.heads import (
    D_HEAD,
    features,
    lift,
    mixing_rank,
    nonlinearity,
    pattern_of,
)
from interp_toolkit.models.transformer.attention import Attention
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.report.html import to_html

TINY = study.TheoremSizes((1, 8, 16), (1, 4), 600, 600, 300, BlockSizes(16, 16, 30, 64, 1e-2), 2)


def by_loop(row: np.ndarray) -> np.ndarray:
    """Every function of one sequence, word by word."""
    found = np.zeros((len(row), 5))
    for t, (own, _) in enumerate(row):
        before = [(a, b) for a, b in row[:t]]
        weights = [math.exp(-((own - a) ** 2) / 0.125) for a, _ in before]
        near = sum(w * b for w, (_, b) in zip(weights, before, strict=True))
        found[t] = [
            before[-1][0] if before else 0.0,
            own * own,
            own * sum(b for _, b in row[: t + 1]) / (t + 1),
            max(a for a, _ in row[: t + 1]),
            near / (sum(weights) + math.exp(-2)),
        ]
    return found


def test_functions_are_what_they_say() -> None:
    tokens = draw(5, np.random.default_rng(0))
    np.testing.assert_allclose(values(tokens), np.stack([by_loop(row) for row in tokens]))


@settings(max_examples=30)
@given(st.integers(0, 1000), st.integers(1, POSITIONS - 1))
def test_nothing_looks_ahead(seed: int, t: int) -> None:
    rng = np.random.default_rng(seed)
    tokens, other = draw(2, rng), draw(2, rng)
    other[:, :t] = tokens[:, :t]
    np.testing.assert_allclose(values(tokens)[:, :t], values(other)[:, :t])
    for heads in ("frozen-qk", "mixit"):
        read = [features(lift(x), heads, 3, seed)[:, :t] for x in (tokens, other)]
        np.testing.assert_allclose(*read, atol=1e-12)


def test_patterns_are_the_toolkits() -> None:
    """The same W_Q and W_K in the toolkit's own attention layer."""
    h = lift(draw(3, np.random.default_rng(1)))
    width = h.shape[-1]
    cfg = TransformerConfig(
        n_layers=1,
        d_model=width,
        n_ctx=POSITIONS,
        d_head=D_HEAD,
        n_heads=1,
        d_vocab=2,
        attn_only=True,
        biases=False,
        normalization_type=None,
        positional_embedding_type="none",
        dtype=torch.float64,
    )
    layer = Attention(cfg, None)
    W_Q, W_K = np.random.default_rng(5).standard_normal((2, width, D_HEAD))
    seen: list[np.ndarray] = []
    layer.hook_pattern.add_hook(lambda pattern, hook: seen.append(pattern[:, 0].detach().numpy()))
    with torch.no_grad():
        for weight, own in ((layer.W_Q, W_Q), (layer.W_K, W_K)):
            weight.copy_(torch.from_numpy(own)[None])
        layer(torch.from_numpy(h))
    np.testing.assert_allclose(pattern_of(h, np.random.default_rng(5)), seen[0], atol=1e-12)


@pytest.mark.parametrize("heads", ["frozen-qk", "mixit"])
def test_every_head_reads_the_first_token_itself(heads: str) -> None:
    h = lift(draw(4, np.random.default_rng(2)))
    read = features(h, heads, 3, 7).reshape(4, POSITIONS, 3, -1)
    np.testing.assert_allclose(read[:, 0], np.repeat(h[:, 0, None], 3, axis=1), atol=1e-12)
    assert np.abs(read[:, 1:] - h[:, 1:, None]).max() > 0.1


def test_only_mixing_is_linear() -> None:
    assert nonlinearity("mixit", 6, 3, 0) < 1e-14
    assert nonlinearity("frozen-qk", 6, 3, 0) > 0.05


@pytest.mark.parametrize("n_pos", [2, 3, 4, 5])
def test_mixing_matrices_span_what_the_formula_says(n_pos: int) -> None:
    most = n_pos * (n_pos + 1) // 2 - (n_pos - 1)
    for n_heads in (1, most - 1, most, most + 5):
        assert mixing_rank(n_pos, 7, n_heads, 3) == min(n_heads, most)


def test_the_linear_bound_is_exact_for_linear_functions_and_no_fit_is_below() -> None:
    rng = np.random.default_rng(3)
    train, test = draw(400, rng), draw(200, rng)
    wanted = values(test)
    bound = errors(linear_bound(test, wanted), wanted, LATER)
    assert bound["previous"] < 1e-12
    read = [features(lift(x), "mixit", 12, 0) for x in (train, test)]
    found = errors(fit_values(read[0], values(train), read[1]), wanted, LATER)
    assert all(found[name] >= bound[name] - 1e-9 for name in FUNCTIONS)


def test_values_are_fitted_by_least_squares() -> None:
    rng = np.random.default_rng(4)
    read, weights = rng.standard_normal((50, 3, 6)), rng.standard_normal((6, 2))
    held_out = rng.standard_normal((5, 3, 6))
    np.testing.assert_allclose(
        fit_values(read, read @ weights, held_out), held_out @ weights, atol=1e-6
    )


def test_the_block_learns_what_values_cannot() -> None:
    """The square of the first token: no W_V has it, the MLP does."""
    rng = np.random.default_rng(5)
    train, test = draw(2_000, rng)[:, :1], draw(500, rng)[:, :1]
    read = [features(lift(x), "mixit", 1, 0) for x in (train, test)]
    wanted = values(test)[..., 1:2]
    sizes = BlockSizes(16, 32, 300, 256, 1e-2)
    block = fit_block(read[0], values(train)[..., 1:2], read[1], sizes, 0)
    alone = fit_values(read[0], values(train)[..., 1:2], read[1])
    missed = [np.sqrt(np.mean((p - wanted) ** 2) / wanted.var()) for p in (block, alone)]
    assert missed[0] < 0.2
    assert missed[1] > 0.95


def test_errors_and_exponents() -> None:
    wanted = values(draw(300, np.random.default_rng(6)))
    mean = np.broadcast_to(wanted[:, 1:].mean((0, 1)), wanted.shape)
    assert errors(mean, wanted, LATER) == pytest.approx(dict.fromkeys(FUNCTIONS, 1.0))
    assert errors(wanted, wanted, slice(0, 1)).keys() == {"square", "product", "maximum"}
    assert exponent({n: 3 * n**-0.5 for n in (1, 4, 32)}) == pytest.approx(-0.5)


def test_without_order_the_token_before_has_this_much_left() -> None:
    """Its best guess is the mean of those before, checked by drawing."""
    first = np.random.default_rng(7).uniform(-1, 1, (200_000, POSITIONS))
    missed = [first[:, t - 1] - first[:, :t].mean(1) for t in range(1, POSITIONS)]
    share = np.sqrt(np.mean([m.var() for m in missed]) / first.var())
    assert pytest.approx(share, abs=3e-3) == study.WITHOUT_ORDER


def made_claims(**wide: bool) -> list[JudgedClaim]:
    """The claims of the study, confirmed, but for those that are said to be wide."""
    names = [*FUNCTIONS, "first", "still", "ratio", "qk", "mixit", "beats", "retrieves", "order"]
    return [
        JudgedClaim(name, 0.0, -1.0, 1.0, "2 seeds", above=0.0 if wide.get(name) else -2.0)
        for name in names
    ]


def test_the_verdict_says_no_more_than_the_claims(texts) -> None:
    seeds = [{"nonlinearity": {"mixit": 1e-16, "frozen-qk": 0.3}}]
    text = study.verdict(seeds, made_claims(), TINY)
    texts(text)
    wide = study.verdict(seeds, made_claims(beats=True, first=True), TINY)
    texts(wide)
    bent = [{"nonlinearity": {"mixit": 1e-3, "frozen-qk": 0.3}}]
    texts(study.verdict(bent, made_claims(), TINY))


def made_seed(frozen_qk: float) -> dict[str, Any]:
    """Fits of frozen-qk whose error goes as heads^exponent, of MixiT whose does not change."""
    fits = [
        {
            "heads": heads,
            "fit": fit,
            "positions": positions,
            "n_heads": n_heads,
            "first": dict.fromkeys(FUNCTIONS, 1.0),
            "later": dict.fromkeys(FUNCTIONS, n_heads**frozen_qk if heads == "frozen-qk" else 1.0),
        }
        for heads in ("frozen-qk", "mixit")
        for fit in ("values alone", "values and MLP")
        for positions in (True, False)
        for n_heads in (1, 4, 8, 16)
    ]
    return {"fits": fits, "linear": {"later": dict.fromkeys(FUNCTIONS, 1.0)}}


def test_what_holds_by_construction_is_no_claim(texts) -> None:
    """And an error that hardly falls does not confirm that it does."""
    hardly, falling = (
        judged(study.claims([made_seed(k), made_seed(k - 1e-4)], TINY)) for k in (-0.05, -0.5)
    )
    assert [f.check for f in hardly] == [False] * 5 + [True, True] + [False] * 5 + [True]
    assert {f.judgement for f in hardly[:5]} == {"refuted"}
    assert {f.judgement for f in falling[:5]} == {"confirmed"}
    assert "of 10 claims are confirmed" in counted(hardly)
    texts(counted(hardly))


def test_study_end_to_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, texts) -> None:
    monkeypatch.setitem(study.PRESETS, "small", TINY)
    result = study.THEOREM_5_1.run("small", 2, Runner(tmp_path, workers=1))
    assert len(result.claims) == 13
    exact = [q for q in result.quantities if q.expected is not None]
    assert [q.reached for q in exact] == [True, True]
    texts(result.verdict)
    for figure in result.figures():
        go.Figure({"data": list(figure.data), "layout": dict(figure.layout)})
    page = to_html([result])
    assert "Every fit" in page
    assert result.figures()[0].title in page
    assert "Theirs" not in page
    [still] = [f for f in result.claims if f.claim.startswith("MixiT, W_V alone")]
    assert still.low == pytest.approx(1, abs=1e-3)  # 8 heads span all there is
    [first] = [f for f in result.claims if "first position" in f.claim]
    assert first.value == pytest.approx(1, abs=0.05)
