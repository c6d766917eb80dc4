"""Table 6 at initialization: what the weights start from, and the study end to end."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import plotly.graph_objects as go
import pytest

from interp_studies.jobs.runner import Runner
from interp_studies.random_attention.depth import on_text, study
from interp_studies.random_attention.depth.models import INITIALISATIONS, MAIN, untrained
from interp_toolkit.report.html import to_html

SIZES = study.DepthSizes(128, 4, 48, 300, 4, 1)


@pytest.mark.parametrize("variant", ["random", "mixit"])
@pytest.mark.parametrize("initialisation", INITIALISATIONS)
def test_weights_start_as_said(variant: str, initialisation: str) -> None:
    model = untrained(variant, 1, SIZES, initialisation, seed=0)
    same = {MAIN: 0.02, "1/sqrt(n) everywhere": 128**-0.5}.get(initialisation)
    of = {
        "embed.W_E": same or 1.0,
        "blocks.0.attn.W_V": same or (3 * 128) ** -0.5,
        "blocks.0.mlp.W_in": same or (3 * 128) ** -0.5,
        "blocks.0.mlp.W_out": same or (3 * 512) ** -0.5,
    }
    parameters = dict(model.named_parameters())
    for name, std in of.items():
        assert parameters[name].std().item() == pytest.approx(std, rel=0.03)


def test_random_transformers_collapse_and_mixit_does_not() -> None:
    """Deepest first models of the small preset's width."""
    found = {}
    for variant in ("random", "mixit"):
        options = {"initialisation": MAIN, "seed": 0, "device": "cpu"}
        options |= {"sizes": asdict(SIZES), "depths": (2, 32)}
        values = study.depth_job(folder=Path(), variant=variant, **options).values
        found[variant] = values["cosine"]
    assert found["random"][1] > 0.4
    assert found["random"][0] < found["random"][1]
    assert abs(found["mixit"][1]) < 0.02


def test_study_end_to_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, texts) -> None:
    monkeypatch.setitem(study.PRESETS, "small", study.DepthSizes(32, 2, 12, 50, 2, 1))
    monkeypatch.setattr(study, "DEPTHS", (1, 2, 3, 4, 5))
    monkeypatch.setitem(on_text.TEXT_DEPTHS, "small", (1, 2))
    tiny = {"documents": 40, "test_documents": 10, "vocabulary": 300, "length": 16}
    tiny |= {"d_model": 16, "rows": 4, "cache": str(tmp_path / "text")}
    own = {"mixit.initial_std": "0.05", "mixit.steps": "3"}
    given = {"toy-text": {**{key: str(value) for key, value in tiny.items()}, **own}}
    monkeypatch.setattr(on_text, "SMALL", {"steps": 2})
    result = study.TABLE_6.run("small", 1, Runner(tmp_path / "out", workers=1, given=given))
    assert len(result.jobs) == 2 * len(INITIALISATIONS) + 4
    mixit = result.jobs["text-mixit-layers-2-seed-0"]
    assert mixit["untrained"] != mixit["trained"]
    assert result.verdict.endswith("toy-text.mixit.steps=3.")
    on_text_said = result.verdict.partition("On text, from 1 layers to 2 layers: ")[2]
    of_random, of_mixit = on_text_said.split(";")[:2]
    assert of_random.startswith("random transformer ")
    assert "untrained (weights 0.02)" in of_random
    assert "untrained (weights 0.05)" in of_mixit
    assert result.evidence.on_text["mixit, 2 layers"]["trained"] == mixit["trained"]
    assert [row[:2] for row in result.details[2].rows] == [
        ["MixiT", 1],
        ["MixiT", 2],
        ["random transformer", 1],
        ["random transformer", 2],
    ]
    ratios = [q for q in result.quantities if q.theirs is not None]
    assert [round(q.theirs, 3) for q in ratios[:2]] == [0.019, 24.945]
    assert {q.of for q in ratios} == {f"ratios, weights {start}" for start in INITIALISATIONS}
    beside = result.details[1]
    assert beside.rows[0][2:] == pytest.approx([0.218, 1.450, 2.075, 1.946, 5.438])
    texts(result.evidence.not_shown)
    [figure] = result.figures()
    go.Figure({"data": list(figure.data), "layout": dict(figure.layout)})
    assert result.figures()[0].title in to_html([result])
