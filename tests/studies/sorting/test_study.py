"""The sorting study on models that are hardly trained: every number where it belongs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import interp_toolkit as it
from interp_studies.jobs.runner import Runner
from interp_studies.sorting import experiments as sorting_experiments
from interp_studies.sorting import study as sorting
from interp_studies.sorting.experiments import EXPERIMENTS
from interp_toolkit.circuits.sorting.evaluation import list_accuracy
from interp_toolkit.data.lists.layout import parse_layout, standard_sets
from interp_toolkit.registry import find
from interp_toolkit.report.html import dumps, to_html

STEPS = {"steps": 20, "batch": 64}
LAYOUTS = {
    "1, causal": ("10 list10 11 sorted10", 12, 10, False),
    "2, distinct": ("15 list10 16 sorted10", 17, 15, True),
}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two experiments, two seeds, twenty steps, few lists."""
    whole = sorting_experiments.Experiment.settings
    monkeypatch.setattr(
        sorting_experiments.Experiment,
        "settings",
        lambda self, preset: {**whole(self, preset), **STEPS},
    )
    monkeypatch.setattr(sorting, "EXPERIMENTS", EXPERIMENTS[:2])
    monkeypatch.setattr(sorting_experiments, "SEARCHED", 500)
    monkeypatch.setattr(sorting, "SEARCHED", 500)
    monkeypatch.setattr(sorting_experiments, "CHECKPOINTS", 3)


@pytest.mark.slow
def test_every_number_is_of_the_model_that_is_kept(short, tmp_path: Path, texts) -> None:
    result = sorting.SORTING.run("small", 1, Runner(tmp_path, workers=1))
    for name, (words, d_vocab, d_vocab_out, distinct) in LAYOUTS.items():
        job = next(j for j in result.jobs if ("distinct" in j) == distinct)
        values, model = result.jobs[job], it.load(tmp_path / f"{job}.safetensors")
        layout = parse_layout(words, d_vocab=d_vocab, d_vocab_out=d_vocab_out)
        for test, lists in standard_sets(layout, distinct).items():
            accuracy = list_accuracy(model, layout, lists)
            assert values["tests"][test]["lists_right"] == accuracy.lists_right
            assert values["tests"][test]["loss"] == pytest.approx(accuracy.loss, rel=1e-6)
        assert values["search"]["searched"] == 500
        [loss] = [q for q in result.quantities if (q.of, q.name) == (name, "loss")]
        assert loss.median == values["tests"]["random" if distinct else "hard"]["loss"]
        assert loss.reached is False
    causal = result.jobs["sort-causal-post-seed-0"]
    assert [step["step"] for step in causal["evolution"]] == [0, 1, 20]
    shown = [figure.title for figure in result.figures()]
    assert shown[0] == "Accuracy by seed"
    assert len(shown) == 5  # with a loss curve each, the evolution, QK along training
    texts(result.verdict)
    assert result.status == "not_reached"
    assert json.loads(dumps([result]))["results"][0]["provenance"]["settings"]["searched"] == 500
    assert "Theirs beside ours" in to_html([result])


def test_the_plan_names_recipes_and_variants_that_exist() -> None:
    for preset in find("artefacts", "sorting").presets:
        plan = sorting.SORTING.plan(preset, 2, Runner())
        jobs = [job for e in EXPERIMENTS for job in e.jobs(plan)]
        assert len({job.name for job in jobs}) == len(jobs)
        for job in jobs:
            settings = dict(job.arguments["settings"])
            find("recipes", job.arguments["recipe"]).config(**settings)
            assert "seeds" not in settings
    plan = sorting.SORTING.plan("small", 2, Runner(first_seed=5))
    jobs = [job for e in EXPERIMENTS for job in e.jobs(plan)]
    kept = [job.arguments["settings"].get("checkpoints") for job in jobs]
    assert kept == [sorting_experiments.CHECKPOINTS] + [None] * (len(jobs) - 1)
    assert [job.arguments["seed"] for job in jobs[:2]] == [5, 6]


def test_failures_are_pooled_over_seeds_with_an_exact_interval() -> None:
    seeds = [{"search": {"failed": f, "searched": 500_000}} for f in (2, 0)]
    # Clopper-Pearson for 2 of a million: 0.2422 and 7.2247 (Poisson limits of a count of 2)
    assert sorting.failures_in_words(seeds) == (
        "2 of 1,000,000 over all seeds; 95 % interval 0.242 to 7.22"
    )


def seed_of(*right: float) -> dict[str, dict[str, dict[str, float]]]:
    return {
        "tests": {
            name: {"lists_right": r} for name, r in zip(("random", "hard"), right, strict=True)
        }
    }


@pytest.mark.parametrize(
    "seeds",
    [
        [seed_of(1, 1), seed_of(1, 1)],
        [seed_of(1, 1), seed_of(0.98, 0.97), seed_of(0.99, 0.965)],
        [seed_of(0.98, 0.97)],
    ],
)
def test_seeds_that_differ_are_told_apart(seeds, texts) -> None:
    texts(sorting.seeds_in_words(EXPERIMENTS[0], seeds))
