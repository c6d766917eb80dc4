"""The recipes of the synthetic tasks: sizes of the source, what a run reports, what is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats

import interp_toolkit as it
from interp_toolkit.analysis import fitting, trained_on
from interp_toolkit.auditing.claims.kinds import as_claim
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.registry import Recipe, find
from interp_toolkit.stats import clopper_pearson
from interp_toolkit.toys.random_attention.variants import VARIANTS, trainable_parameters
from interp_toolkit.training.engine.metrics import final_score_of
from interp_toolkit.training.tasks.problem import SyntheticTraining, TaskProblem, task_rows

NAMES = ("retrieval", "k-hop", "modular-addition", "decimal-addition", "dyck-1", "memorization")
TINY: dict[str, Any] = {"layers": 1, "heads": 2, "d_model": 8, "rows": 8, "steps": 2}
FEW_ROWS: dict[str, Any] = {"examples": 50, "test_examples": 20}
SMALL_TASK: dict[str, dict[str, Any]] = {
    "retrieval": {"most_pairs": 2, "symbols": 8, **FEW_ROWS},
    "k-hop": {"length": 6, **FEW_ROWS},
    "modular-addition": {"modulus": 11, **FEW_ROWS},
    "decimal-addition": {"digits": 2, **FEW_ROWS},
    "dyck-1": {"length": 10, **FEW_ROWS},
    "memorization": {"side": 4},
}
every_recipe = pytest.mark.parametrize("name", NAMES)


def settings_of(name: str, preset: str, **more: Any) -> SyntheticTraining:
    recipe: Recipe = find("recipes", name)
    settings = recipe.config(**{**recipe.presets[preset], **more})
    assert isinstance(settings, SyntheticTraining)
    return settings


def run_of(name: str, **more: Any):
    recipe: Recipe = find("recipes", name)
    return recipe.train(recipe.config(**{**TINY, **SMALL_TASK[name], **more}))


def model_of(settings: SyntheticTraining) -> Transformer:
    task = settings.task
    return settings.new_model(0, d_vocab=task.d_vocab, n_ctx=task.n_ctx, name=task.name)


@pytest.mark.parametrize(
    ("variant", "trainable", "share", "bits"),
    [
        ("standard", 790_400, 1.0, 2.98),
        ("frozen-mlp", 394_880, 0.19, 1.13),
        ("frozen-qk", 724_352, 0.69, 2.25),
        ("mixit", 724_736, 0.67, 2.18),
    ],
)
def test_parameters_and_bits_of_the_sources_table(
    variant: str, trainable: int, share: float, bits: float
) -> None:
    settings = settings_of("memorization", "paper", variant=variant)
    assert (settings.steps, settings.lr) == (10_000, 0.005)
    assert trainable_parameters(model_of(settings)) == trainable
    stored = settings.task.stored_bits
    assert stored is not None
    # the source gives accuracies in whole percents
    assert stored * share / trainable == pytest.approx(bits, abs=0.005 * stored / trainable + 0.01)


@every_recipe
def test_paper_presets_have_the_sources_sizes(name: str) -> None:
    sizes = {  # of its best MixiT: layers, width, heads, rate, batch
        "retrieval": (2, 1_024, 4, 1e-4, 1_024),
        "k-hop": (5, 512, 8, 1e-4, 128),
        "modular-addition": (2, 512, 32, 1e-3, 256),
        "decimal-addition": (8, 512, 64, 1e-3, 128),
        "dyck-1": (4, 512, 64, 1e-3, 512),
        "memorization": (2, 128, 4, 5e-3, 256),  # that of its comparison at one size
    }
    paper = settings_of(name, "paper")
    found = (paper.layers, paper.d_model, paper.heads, paper.lr, paper.rows)
    assert found == sizes[name]
    task = paper.task.record()
    expected: dict[str, Any] = {
        "retrieval": {"most_pairs": 30, "symbols": 256, "repeated_keys": False},
        "k-hop": {"most_hops": 16, "length": 100, "alphabet": 4},
        "modular-addition": {"modulus": 599},
        "decimal-addition": {"digits": 10, "reversed": False},
        "dyck-1": {"length": 40},
        "memorization": {"side": 512, "table_seed": 0},
    }
    assert task == {"name": name, **expected[name]}
    rows = {
        "retrieval": (40_000, 4_000),
        "k-hop": (100_000, 100),
        "modular-addition": (40_000, 4_000),
        "decimal-addition": (50_000, 4_000),
        "dyck-1": (100_000, 4_000),
    }
    if name in rows:
        assert (paper.examples, paper.test_examples) == rows[name]  # type: ignore[attr-defined]


@every_recipe
def test_a_run_reports_what_it_measured(name: str) -> None:
    run = run_of(name, seeds=2)
    training = json.loads(json.dumps(run.training))
    measured = final_score_of(training)
    assert (measured.name, measured.better, measured.unit) == ("accuracy", "higher", "share")
    assert measured.value == max(seed["accuracy"] for seed in training["seeds"])
    assert measured.value == training["accuracy"] == pytest.approx(1 - training["error"])
    recipe: Recipe = find("recipes", name)
    settings = recipe.config(**{**TINY, **SMALL_TASK[name]})
    assert measured.guess == settings.task.guess
    assert measured.examples == settings.tested_rows == (16 if name == "memorization" else 20)
    assert len(training["curve"]["accuracy"]) == len(training["curve"]["step"])
    assert training["trainable"] == sum(p.numel() for p in run.model.parameters())
    assert run.task["name"] == name
    assert f"{name}, standard: {100 * measured.value:.2f} % of " in run.verdict
    guess = f"; {measured.guess_rule} is right in {100 * settings.task.guess:.2f} %; "
    assert measured.guess_rule == settings.task.guess_rule
    assert guess in run.verdict
    assert "best of 2 seeds" in run.verdict
    assert ("95 % interval" in run.verdict) == (name != "memorization")
    assert ("bits" in run.verdict) == (name == "memorization")


@every_recipe
def test_every_variant_trains_in_both_presets_shape(name: str) -> None:
    for preset in ("small", "paper"):
        for variant in VARIANTS:
            settings = settings_of(name, preset, variant=variant)
            assert settings.variant == variant
            assert settings.task.name == name
    for variant in VARIANTS:
        assert run_of(name, variant=variant).training["settings"]["variant"] == variant


def test_bits_of_a_parameter() -> None:
    training = run_of("memorization").training
    bits = 16 * math.log2(4) * training["accuracy"] / training["trainable"]
    assert training["bits_per_parameter"] == pytest.approx(bits)


def test_the_same_settings_give_the_same_figures() -> None:
    first, again = (run_of("dyck-1", examples=0).training for _ in range(2))
    assert first["curve"] == again["curve"]
    assert first["seeds"] == again["seeds"]


def test_tests_are_shared_by_seeds_and_variants() -> None:
    settings = settings_of("k-hop", "small", **TINY)
    first = TaskProblem(settings, seed=0)
    other = TaskProblem(settings.model_copy(update={"variant": "mixit"}), seed=1)
    assert (first.test_rows.tokens == other.test_rows.tokens).all()


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("retrieval", {"symbols": 7}),
        ("retrieval", {"most_pairs": 9, "symbols": 8}),
        ("retrieval", {"heads": 3}),
        ("retrieval", {"d_model": 12, "heads": 4}),
        ("dyck-1", {"length": 7}),
        ("decimal-addition", {"digits": 19}),
        ("modular-addition", {"modulus": 11}),
        ("k-hop", {"alphabet": 1}),
        ("memorization", {"examples": 10}),
    ],
)
def test_sizes_that_cannot_be_are_refused(name: str, settings: dict[str, Any], texts) -> None:
    with pytest.raises(ValidationError, check=texts):
        find("recipes", name).config(**settings)


def test_mixing_needs_no_even_heads() -> None:
    settings = settings_of("retrieval", "small", variant="mixit", d_model=12, heads=4)
    assert model_of(settings).cfg.d_head == 3


@pytest.mark.parametrize(("right", "rows"), [(0, 5), (5, 5), (37, 40), (3_993, 4_000)])
def test_the_interval_of_a_share_is_the_exact_one(right: int, rows: int) -> None:
    exact = stats.binomtest(right, rows).proportion_ci(0.95, method="exact")
    assert clopper_pearson(right, rows) == pytest.approx((exact.low, exact.high), abs=1e-9)


@pytest.mark.parametrize("name", ["modular-addition", "k-hop", "retrieval", "decimal-addition"])
def test_a_checkpoint_is_analyzed_on_held_out_rows_of_its_own_task(name: str, tmp_path) -> None:
    """Rows, answers and positions are the task's, and no row is of the training set."""
    trained = run_of(name)
    config = find("recipes", name).config(**{**TINY, **SMALL_TASK[name]})
    path = tmp_path / "model.pt"
    it.save(trained.model, path, task=trained.task, training=trained.training)
    model = it.load(path)
    rows = trained_on(model)
    assert rows is not None
    train, test = task_rows(config, config.seed)
    assert np.array_equal(np.stack(rows.tokens), test.tokens.numpy())
    assert np.array_equal(rows.answers, test.answer.numpy())
    assert np.array_equal(rows.answer_positions, test.read.numpy())
    assert (rows.wrong != rows.answers).all()
    if train is not None:
        assert not {tuple(row) for row in train.tokens.tolist()} & {tuple(r) for r in rows.tokens}
    fit, _ = fitting(model, None)
    assert {"heads", "circuit", "logit-attribution"} <= fit.keys()


def test_what_runs_by_default_on_a_checkpoint_reads_its_rows(tmp_path) -> None:
    trained = run_of("modular-addition")
    it.save(trained.model, tmp_path / "m.pt", task=trained.task, training=trained.training)
    found = it.analyze(str(tmp_path / "m.pt"), "heads")
    assert "modular-addition" in found.provenance.data["source"]
    assert found.task_check is not None
    assert found.status == "not_tested"  # after one step
    given = it.analyze(str(tmp_path / "m.pt"), "heads", data=[[1, 2, 11], [3, 4, 11]])
    assert "modular-addition" not in given.provenance.data["source"]
    assert trained_on(it.load("toy:induction")) is None


def test_claims_are_tested_on_the_rows_of_the_models_own_task(tmp_path) -> None:
    trained = run_of("k-hop")
    it.save(trained.model, tmp_path / "m.pt", task=trained.task, training=trained.training)
    claim = "L0H0 is an induction head"
    own = it.audit(str(tmp_path / "m.pt"), claim, effort="quick")
    assert "k-hop" in own.provenance.data["source"]
    repeats = it.audit("toy:induction", claim, effort="quick")
    assert "repeated" in repeats.provenance.data["source"]
    synthetic = as_claim(claim, "claim 1").on_synthetic_prompts()
    with pytest.raises(it.InputError, match="repeated"):  # its context is too short for these
        it.audit(str(tmp_path / "m.pt"), synthetic, effort="quick")
