"""The litmus test from recipes to a result: tiny runs, and results from outcomes made by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from interp_studies.jobs.runner import Runner
from interp_studies.litmus import study
from interp_studies.litmus.result import LitmusResult, litmus_result
from interp_studies.litmus.rules import Seeds, Trained
from interp_studies.litmus.study import litmus
from interp_toolkit import registry
from interp_toolkit.errors import InputError
from interp_toolkit.models.loading.loader import load
from interp_toolkit.report.html import dumps, to_html
from interp_toolkit.training.engine.metrics import FinalScore

SCHEMA_FILE = Path(__file__).parents[3] / "docs" / "results.schema.json"
TINY = {"steps": 8, "d_model": 16, "rows": 4, "examples": 40, "test_examples": 30, "most_pairs": 2}


def made(
    name: str,
    values: list[float],
    unit: str = "share",
    guess: float | None = 0.34,
    rule: str = "",
) -> Seeds:
    better = "higher" if unit == "share" else "lower"
    return Seeds(
        name,
        [
            Trained(
                seed,
                FinalScore("accuracy", value, better, unit, guess, 4_000, rule),  # type: ignore[arg-type]
                (0, 50, 100),
                (0.0, value, value),
            )
            for seed, value in enumerate(values)
        ],
    )


def result(standard: Seeds, mixit: Seeds, **more: Any) -> LitmusResult:
    each = {"steps": 3_000, "rows": 128}
    settings = {"standard": each, "mixit": each}
    return litmus_result("retrieval", standard, mixit, **{"settings": settings, **more})


def test_the_sentence_names_what_it_rests_on(texts) -> None:
    found = result(
        made("standard", [0.998, 1.0, 0.999]),
        made("MixiT", [0.11, 0.12, 0.115]),
        given={"d_model": 64, "steps": 3_000},
    )
    texts(found.verdict)
    assert "Standard reaches 99.90 % (99.61 to 100.00), MixiT 11.50 % (" in found.verdict
    assert "guessing 34.00 %; the gap is 88.40 points (95 % interval 8" in found.verdict
    named = result(made("standard", [1.0, 1.0], rule="naming any value"), made("MixiT", [0.1, 0.1]))
    assert ", naming any value 34.00 %; the gap is" in named.verdict
    assert found.status == "needs"


def test_the_other_two_sentences(texts) -> None:
    well = [1.0, 1.0, 1.0]
    neither = result(made("standard", well), made("MixiT", well))
    texts(neither.verdict)
    open_ = result(made("standard", well[:1]), made("MixiT", [0.1]))
    texts(open_.verdict)
    assert "1 seed each" in open_.verdict
    assert "interval -100.00 to 100.00" in open_.verdict


def test_losses_have_no_percent_and_a_missing_guess_is_not_named() -> None:
    found = result(
        made("standard", [2.7, 2.71], "nats", None), made("MixiT", [3.7, 3.72], "nats", None)
    )
    assert "Standard reaches 2.705 (" in found.verdict
    assert "%" not in found.verdict.replace("95 % interval", "")
    assert "guessing" not in found.verdict
    one = result(made("standard", [2.7], "nats", None), made("MixiT", [3.7], "nats", None))
    assert "Standard reaches 2.700, MixiT 3.700; the gap is 1.000 nats (95 % interval unknown)" in (
        one.verdict
    )
    assert one.evidence.interval == (-math.inf, math.inf)
    assert json.loads(dumps([one]))["results"][0]["evidence"]["interval"] == [None, None]
    assert "error_x" not in one.figures()[0].data[-1]


def test_different_budgets_are_both_named() -> None:
    settings = {"standard": {"steps": 10, "rows": 4}, "mixit": {"steps": 20, "rows": 4}}
    found = result(made("standard", [1.0, 1.0]), made("MixiT", [1.0, 1.0]), settings=settings)
    assert "10 steps of 4 rows against 20 steps of 4 rows." in found.verdict


def test_every_output_of_a_result() -> None:
    found = result(made("standard", [0.998, 1.0]), made("MixiT", [0.11, 0.12]))
    [data] = json.loads(dumps([found]))["results"]
    documented = json.loads(SCHEMA_FILE.read_text())["$defs"]["trained"]
    for row in data["trained"]:
        assert list(row) == list(documented["properties"]) == documented["required"]
        assert row["variant"] in documented["properties"]["variant"]["enum"]
    assert [row["value"] for row in data["trained"]] == [0.998, 1.0, 0.11, 0.12]
    assert data["evidence"]["mixit"]["still_improving"] is False
    assert data["evidence"]["gap"] == pytest.approx(0.884)
    low, high = data["evidence"]["interval"]
    gap, curves = found.figures()
    [point] = [trace for trace in gap.data if "error_x" in trace]
    assert point["x"][0] + point["error_x"]["array"][0] == pytest.approx(100 * high)
    assert point["x"][0] - point["error_x"]["arrayminus"][0] == pytest.approx(100 * low)
    assert [trace["name"] for trace in curves.data] == [
        *["standard"] * 2,
        *["MixiT"] * 2,
        "guessing",
    ]
    assert sum(trace.get("showlegend", True) for trace in curves.data) == 3
    for figure in (gap, curves):
        go.Figure({"data": list(figure.data), "layout": dict(figure.layout)})
    assert "Along training" in to_html([found])
    assert list(found.to_frame()["variant"]) == ["standard", "standard", "MixiT", "MixiT"]
    variants, seeds = found.tables()
    assert [row[2] for row in variants.rows] == pytest.approx([0.999, 0.115])
    assert seeds.columns[2] == "accuracy"


def test_without_curves_there_is_no_figure_of_them() -> None:
    def bare(seeds: Seeds) -> Seeds:
        return Seeds(seeds.name, [replace(run, steps=(), curve=()) for run in seeds.runs])

    found = result(bare(made("standard", [1.0, 1.0])), bare(made("MixiT", [0.1, 0.1])))
    assert found.status == "undecided"
    assert len(found.figures()) == 1
    assert json.loads(dumps([found]))["results"][0]["trained"][0]["late_rise"] is None


def test_a_tiny_run_is_undecided_and_resumes_into_a_larger_one(tmp_path: Path, texts) -> None:
    folder = tmp_path / "kept"
    said: list[str] = []
    first = litmus("retrieval", settings=TINY, seeds=1, runner=Runner(folder, workers=1))
    assert first.status == "undecided"
    assert "one seed" in first.verdict
    runner = Runner(folder, workers=1, resume=True, say=said.append)
    second = litmus("retrieval", settings=TINY, seeds=2, runner=runner)
    assert said[0].startswith("2 of 4 jobs")
    assert [(row["variant"], row["seed"]) for row in second.trained] == [
        *[("standard", 0), ("standard", 1)],
        *[("MixiT", 0), ("MixiT", 1)],
    ]
    assert second.trained[0] == first.trained[0]
    assert second.trained[0]["steps"][-1] == 8
    settings = second.provenance.settings
    assert settings["standard"]["variant"] == "standard"
    assert settings["mixit"]["variant"] == "mixit"
    model = load(folder / "retrieval-mixit-seed-1.safetensors")
    assert model.cfg.mixing == "1/(d_head m)"
    with pytest.raises(InputError, match="steps=8", check=texts):
        litmus("retrieval", settings={**TINY, "steps": 9}, runner=Runner(folder, resume=True))


def test_texts_are_settings_too_and_the_first_seed_is_one(tmp_path: Path) -> None:
    texts = {key: str(value) for key, value in TINY.items()} | {"seed": "5"}
    found = litmus("retrieval", seeds=1, settings=texts, runner=Runner(tmp_path / "a", workers=1))
    numbers = {**TINY, "seed": 5}
    again = Runner(tmp_path / "a", workers=1, resume=True)
    assert litmus("retrieval", seeds=1, settings=numbers, runner=again).trained == found.trained
    assert [row["seed"] for row in found.trained] == [5, 5]
    assert found.provenance.seed == 5


@pytest.mark.parametrize(
    "arguments",
    [
        {"task": "xor"},
        {"task": "retrieva"},
        {"seeds": 0},
        {"margin": 0.0},
        {"margin": math.nan},
        {"preset": "smal"},
        {"settings": {"d_modl": 8}},
        {"settings": {"variant": "mixit"}},
        {"settings": {"seeds": 3}},
        {"settings": {"d_model": 30, "heads": 4}},
    ],
)
def test_a_slip_is_said_before_anything_is_trained(
    arguments: dict[str, Any], texts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Runner, "run", None)
    with pytest.raises(InputError, check=texts):
        litmus(**{"task": "retrieval", **arguments})


def test_a_recipe_without_a_figure_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, texts
) -> None:
    xor = registry.find("recipes", "xor")
    run = registry.TrainingRun(None, "", (), (), {}, {"settings": {}, "curve": {}})
    monkeypatch.setattr(study, "train_seed", lambda *_: (None, run))
    with pytest.raises(InputError, check=texts):
        study.train_and_measure(folder=tmp_path, recipe=xor.name, settings={}, seed=0, device="cpu")
