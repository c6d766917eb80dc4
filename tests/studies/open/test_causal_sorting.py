"""Attention × optimizer: the plan, the ratios and the correlation, on models hardly trained."""

from __future__ import annotations

import itertools
import math

import numpy as np
import plotly.graph_objects as go
import pytest
from scipy import stats

from interp_studies.claims import Claim, judged_claim
from interp_studies.jobs.runner import Runner
from interp_studies.open import causal_sorting as study
from interp_toolkit.registry import find
from interp_toolkit.report.html import to_html


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory):
    patch = pytest.MonkeyPatch()
    patch.setattr(study, "STEPS", 6)
    patch.setattr(study, "EARLY", 3)
    patch.setattr(study, "SEARCHED", 200)
    runner = Runner(tmp_path_factory.mktemp("causal"), workers=1, first_seed=3002)
    found = find("artefacts", "open/causal-sorting").run("small", 2, runner)
    patch.undo()
    return found


@pytest.mark.slow
def test_each_layout_is_trained_in_all_ways(result, texts) -> None:
    assert len(result.jobs) == 2 * len(study.KEYS) == 26
    table = result.details[0]
    assert [tuple(row[:3]) for row in table.rows] == list(study.KEYS)
    assert {row[3] for row in table.rows} == {2}
    assert all(go.Figure(f.data, f.layout) for f in result.figures())
    assert result.figures()[0].title in to_html([result])


def test_one_thing_is_changed_at_a_time() -> None:
    """Two cells that differ in one factor differ in that factor's settings alone."""
    plan = study.CAUSAL_SORTING.plan("small", 1, Runner())
    jobs = {key: job.arguments for key, [job] in study.grid(plan).items()}
    for a, b in itertools.combinations(study.KEYS, 2):
        changed = [i for i in range(3) if a[i] != b[i]]
        if len(changed) > 1:
            continue
        first, second = jobs[a]["settings"], jobs[b]["settings"]
        differ = {k for k in {*first, *second} if first.get(k) != second.get(k)}
        allowed = (
            {"fixed_query", "shortest"},
            {"optimiser", "weight_decay"},
            {"schedule", "lr", "final_lr", "betas"},
        )
        assert differ <= allowed[changed[0]]
        assert changed[0] == 0 or jobs[a]["recipe"] == jobs[b]["recipe"]
    configs = [find("recipes", j["recipe"]).config(**j["settings"]) for j in jobs.values()]
    assert {(c.shortest, c.longest, c.batch) for c in configs} == {(10, 10, 1_024)}
    decays = {key[1]: c.weight_decay for key, c in zip(study.KEYS, configs, strict=True)}
    assert decays == {"adam": 1e-4, "adamw": 1e-4, "adam, no decay": 0.0}


def test_ways_in_a_claim_have_the_presets_seeds() -> None:
    claimed = {key for claim in study.RATIOS for key in claim.measure}
    claimed |= {("bidirectional", "adam", "low")}  # of the failures
    assert not claimed & set(study.UNCLAIMED)
    assert {*claimed, *study.UNCLAIMED} == set(study.KEYS)
    plan = study.CAUSAL_SORTING.plan("small", None, Runner())
    counts = {key: len(jobs) for key, jobs in study.grid(plan).items()}
    assert counts.pop(study.SOURCES_OWN) == study.RANKED
    assert {counts[key] for key in claimed if key in counts} == {8}
    assert {counts[key] for key in study.UNCLAIMED} == {2}


@pytest.mark.slow
def test_two_seeds_of_six_steps_settle_no_foretelling(result, texts) -> None:
    assert result.claims[-1].judgement == "undecided"
    texts(result.verdict)
    assert "confirmed" not in {f.judgement for f in result.claims[:2]}


def seeds(*losses: float) -> list[dict]:
    return [{"loss": x, "wrong": 0, "searched": 100} for x in losses]


def test_a_ratio_of_losses_is_taken_seed_by_seed() -> None:
    """A seed that is hard for both ways says nothing of the ratio."""
    first, second = ("causal", "adam", "low"), ("fixed query", "adam", "low")
    claim = Claim((first, second), "so", above=1.0, factor=True)
    found = {first: seeds(2.0, 8.0, 400.0), second: seeds(1.0, 2.0, 200.0)}
    [of_claim] = study.ratio_claims(found, [claim])
    ratio = judged_claim(of_claim, 0.95)
    logs = [math.log(x) for x in (2, 4, 2)]
    mean, spread = np.mean(logs), np.std(logs, ddof=1)
    assert ratio.value == pytest.approx(math.exp(mean))
    assert math.log(ratio.high) == pytest.approx(
        mean + stats.t.ppf(0.975, 2) * spread / math.sqrt(3)
    )


@pytest.mark.parametrize(("n", "level", "rho"), [(24, 0.95, 0.6), (12, 0.99, 0.9), (32, 0.99, 0.0)])
def test_spearman_intervals_cover_about_as_they_say(n: int, level: float, rho: float) -> None:
    """Of normal pairs, whose Spearman correlation is 6/π asin(ρ/2)."""
    rng = np.random.default_rng(n)
    truth = 6 / math.pi * math.asin(rho / 2)
    covered = 0
    for _ in range(600):
        x = rng.normal(size=n)
        y = rho * x + math.sqrt(1 - rho**2) * rng.normal(size=n)
        _, low, high = study.spearman(list(x), list(y), level)
        covered += low <= truth <= high
    assert covered / 600 >= level - 0.03


def test_nothing_to_rank() -> None:
    assert study.spearman([1.0, 2.0], [1.0, 2.0], 0.95)[1:] == (-1.0, 1.0)
    assert study.spearman([1.0] * 9, [1.0] * 9, 0.95) == (0.0, -1.0, 1.0)
