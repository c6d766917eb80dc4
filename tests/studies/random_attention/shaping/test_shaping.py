"""Signals through random mixing against plain products of matrices, and the study end to end."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from interp_studies.claims import JudgedClaim
from interp_studies.jobs.runner import Runner
from interp_studies.random_attention.covariance.recursion import mean_diagonal
from interp_studies.random_attention.depth.models import MAIN, DepthSizes, untrained
from interp_studies.random_attention.shaping import signals, study
from interp_toolkit.models.transformer.attention import MixingAttention
from interp_toolkit.report.html import to_html

TINY = study.ShapingSizes(8, 4, (1, 8, 32), (1, 2), DepthSizes(16, 2, 8, 20, 3, 1), (2, 3), 2)


@pytest.mark.parametrize("mixing", study.KINDS)
@pytest.mark.parametrize("n_heads", [1, 2])
def test_layers_are_one_linear_map(mixing: str, n_heads: int, monkeypatch) -> None:
    """Size and gradient from the whole map's matrix, which a basis of inputs gives."""
    made: list[MixingAttention] = []
    layer = signals._layer
    monkeypatch.setattr(signals, "_layer", lambda *args: made.append(layer(*args)) or made[-1])
    drawn: list[torch.Tensor] = []
    randn = torch.randn

    def noted(*shape, **options):
        found = randn(*shape, **options)
        if found.ndim == 3 and found.shape[0] == 1:
            drawn.append(found)
        return found

    monkeypatch.setattr(torch, "randn", noted)
    found = signals.through_layers(
        mixing, causal=True, n_heads=n_heads, width=6, n_pos=3, depths=(3,), seed=1
    )
    start, u = (one for one in drawn if one.shape == (1, 3, 6))
    basis = torch.eye(18, dtype=torch.float64).view(18, 3, 6)
    out = basis
    for one in made:
        out = one(out)
    whole = out.reshape(18, 18)
    end = start.reshape(18) @ whole
    assert found["size"] == pytest.approx([math.log10(end.norm() / start.norm())])
    gradient = whole @ u.reshape(18)
    assert found["gradient"] == pytest.approx([math.log10(gradient.norm() / u.norm())])
    tokens = end.view(3, 6).numpy()
    units = tokens / np.linalg.norm(tokens, axis=1, keepdims=True)
    cosines = [units[a] @ units[b] for a, b in ((0, 1), (0, 2), (1, 2))]
    assert found["likeness"] == pytest.approx([np.mean(np.square(cosines))])
    values = np.linalg.eigvalsh(tokens @ tokens.T)
    assert found["dimensions"] == pytest.approx([values.sum() ** 2 / (values**2).sum()])
    sizes = (tokens**2).mean(1)
    assert found["spread"] == pytest.approx([math.log10(sizes.max() / sizes.min())])


def test_sizes_grow_as_the_theorem_says() -> None:
    """E Tr Φ/m of unmasked layers of variance 1/(nm), in closed form, from independent tokens."""
    width, n_pos, depth = 32, 6, 16
    sizes = [
        signals.through_layers(
            "1/(n m)", causal=False, n_heads=1, width=width, n_pos=n_pos, depths=(depth,), seed=seed
        )["size"][0]
        for seed in range(400)
    ]
    growth = np.power(100.0, sizes)  # of the mean square
    expected = mean_diagonal(np.eye(n_pos), depth / width, width).mean()
    error = growth.std() / math.sqrt(len(growth))
    assert growth.mean() == pytest.approx(expected, abs=5 * error)
    assert error < 0.1


def test_gradients_of_a_model_are_those_of_its_loss() -> None:
    sizes = DepthSizes(16, 2, 8, 20, 3, 1)
    found = signals.through_model("1/(n m)", 2, sizes, MAIN, 4)
    model = untrained("mixit", 2, sizes, MAIN, 4, "1/(n m)").double()
    tokens = torch.from_numpy(np.random.default_rng(4).integers(20, size=(3, 8)))
    W_V, step = model.blocks[0].attn.W_V, 1e-6
    direction = torch.randn(W_V.shape, generator=torch.Generator().manual_seed(0)).double()
    losses = []
    for sign in (1, -1):
        with torch.no_grad():
            W_V += sign * step * direction
            losses.append(model(tokens, return_type="loss").item())
            W_V -= sign * step * direction
    loss = model(tokens, return_type="loss")
    torch.autograd.backward(loss)
    slope = (losses[0] - losses[1]) / (2 * step)
    assert slope == pytest.approx(float((W_V.grad * direction).sum()), rel=1e-4)
    own = [float(block.attn.W_V.grad.norm()) for block in model.blocks]
    assert found["gradients"] == pytest.approx(own, rel=1e-3)


def test_study_end_to_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, texts) -> None:
    monkeypatch.setitem(study.PRESETS, "small", TINY)
    result = study.SHAPING.run("small", 2, Runner(tmp_path, workers=1))
    assert len(result.claims) == 13
    assert {f.judgement for f in result.claims} <= {"confirmed", "refuted", "undecided"}
    texts(result.verdict)
    for figure in result.figures():
        go.Figure({"data": list(figure.data), "layout": dict(figure.layout)})
    assert "Whole models" in to_html([result])
    values = study.layer_values(
        list(result.jobs.values()), "gradient", 8, "1/(n m)", n_heads=2, causal=False
    )
    assert len(values) == 2
    assert values[0] == pytest.approx(
        next(
            one["gradient"][1]
            for one in result.jobs["seed-0"]["layers"]
            if (one["mixing"], one["causal"], one["n_heads"]) == ("1/(n m)", False, 2)
        )
    )


CLAUSES = {
    "So gradients survive a depth of 4 widths": (1, 2, 3, 4),
    "but not one width with unshaped mixing": (0, 1, 2, 3, 4),
    "tokens become alike, although the source says that shaping prevents it": (7,),
    "preserve both gradients and directions": (8, 9),
    "with unshaped mixing, no gradient vanishes": (11, 12),
}


@pytest.mark.parametrize("not_confirmed", range(13))
def test_every_clause_of_the_verdict_rests_on_its_claims(not_confirmed: int) -> None:
    """With one claim after the other undecided, the clauses that rest on it are not said."""
    findings = [
        JudgedClaim(
            f"claim {i}", 0.0, -1.0, 1.0, "2 seeds", above=0.0 if i == not_confirmed else -2.0
        )
        for i in range(13)
    ]
    text = study.verdict(findings, TINY)
    for clause, needed in CLAUSES.items():
        assert (clause in text) == (not_confirmed not in needed), clause
    assert "skips carry" not in text


def test_a_single_seed_decides_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(study.PRESETS, "small", TINY)
    result = study.SHAPING.run("small", 1, Runner(tmp_path, workers=1))
    assert result.status == "undecided"
