"""The litmus test: does a task need in-context reasoning?

Standard transformers, and MixiT, whose attention is random and does not depend on the input, are
trained on the task with equal settings and seeds. MixiT lacks only the attention that depends on
the input, so a gap suggests that the task needs such attention. `rules` and `seed_interval` define
when a gap counts, and when no decision is possible.

A decision holds for these two architectures, this budget and this training. If MixiT fails to learn
a task, another MixiT may still learn it: its accuracy depends on its heads and width (in the
source's table 11, 35 % to 92 % on decimal addition with 4 to 256 heads). A seed determines the
model, its mixing matrices and its batches; the test set is equal for all seeds.

Source: "Is random attention sufficient for sequence modeling?", sections 4 and 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interp_studies.jobs.attempt import Job, Outcome
from interp_studies.jobs.runner import Runner
from interp_studies.litmus.result import LitmusResult, litmus_result
from interp_studies.litmus.rules import Seeds, Trained
from interp_studies.texts import check_texts
from interp_studies.train_seed import train_seed
from interp_toolkit.errors import InputError
from interp_toolkit.registry import Recipe, find, load_all
from interp_toolkit.training.engine.metrics import KEY, FinalScore, final_score_of
from interp_toolkit.training.engine.run_files import end_run
from interp_toolkit.training.engine.settings import configure

NAMES = {"standard": "standard", "mixit": "MixiT"}
SEEDS = 3
_OWN = {"variant": "both variants are trained", "seeds": "give --seeds", "device": "give --device"}


def train_and_measure(
    *, folder: Path, recipe: str, settings: Mapping[str, Any], seed: int, device: str
) -> Outcome:
    """Train one seed of a variant; returns its figure and learning curve."""
    _, run = train_seed(recipe, settings, seed, device, folder)
    if KEY not in run.training:
        raise InputError(f"{recipe} records no final score, by which its runs are compared")
    end_run(folder)
    measured, curve = final_score_of(run.training), run.training["curve"]
    values = {
        "seed": seed,
        **measured.recorded(),
        "steps": curve["step"],
        "curve": curve.get(measured.name),
        "settings": run.training["settings"],
    }
    return Outcome(values, run.model, run.task, run.training)


def litmus(
    task: str,
    preset: str = "small",
    seeds: int = SEEDS,
    *,
    settings: Mapping[str, Any] | None = None,
    margin: float | None = None,
    runner: Runner | None = None,
) -> LitmusResult:
    """Train both variants of a task's recipe and interpret the gap between them.

    Args:
        task: name of the recipe.
        preset: preset of the recipe.
        seeds: number of seeds of each variant; the first is the setting `seed`.
        settings: settings of the recipe for both variants, which replace those of the preset.
        margin: smallest gap that counts, in the figure's unit; None: the convention.
        runner: runner of the jobs; None: on the CPU, one process per processor, without files.

    Raises:
        InputError: the recipe lacks one of the variants or records no figure, a setting does not
            fit, or a text cannot be read; also errors of the training.
    """
    if seeds < 1:
        raise InputError(f"seeds must be at least 1, got {seeds}")
    if margin is not None and not margin > 0:
        raise InputError(f"the margin must be above 0, not {margin}")
    runner, given = runner or Runner(), dict(settings or {})
    recipe = find("recipes", task)
    _check(recipe, given)
    jobs = {
        variant: _jobs(recipe, variant, preset, given, seeds, runner.device) for variant in NAMES
    }
    todo = [job for mine in jobs.values() for job in mine]
    check_texts(todo, runner)
    found = runner.run(todo)
    standard, mixit = (
        Seeds(NAMES[variant], [_trained(found[job.name]) for job in mine])
        for variant, mine in jobs.items()
    )
    return litmus_result(
        task,
        standard,
        mixit,
        margin=margin,
        preset=preset,
        given=given,
        settings={variant: found[mine[0].name]["settings"] for variant, mine in jobs.items()},
    )


def _check(recipe: Recipe, given: Mapping[str, Any]) -> None:
    """Raise InputError if the recipe cannot be tested, or a setting is not for both variants."""
    if not NAMES.keys() <= recipe.variants.keys():
        fit = [r.name for r in load_all("recipes").values() if NAMES.keys() <= r.variants.keys()]
        raise InputError(
            f"{recipe.name} has no variants standard and mixit to compare; recipes that have: "
            f"{', '.join(sorted(fit))}"
        )
    for key, instead in _OWN.items():
        if key in given:
            raise InputError(f"{key} is not a setting of the litmus test: {instead}")


def _jobs(
    recipe: Recipe,
    variant: str,
    preset: str,
    given: Mapping[str, Any],
    seeds: int,
    device: str,
) -> list[Job]:
    """One job per seed, with the settings that differ from the recipe's defaults."""
    config = configure(recipe, variant, preset, {**given, "device": device})
    chosen = config.model_dump(mode="json", exclude_unset=True)
    for key in ("seed", "seeds", "device"):
        chosen.pop(key, None)
    return [
        Job(
            name=f"{recipe.name}-{variant}-seed-{seed}",
            function=train_and_measure,
            arguments={
                "recipe": recipe.name,
                "settings": chosen,
                "seed": seed,
                "device": device,
            },
        )
        for seed in range(config.seed, config.seed + seeds)
    ]


def _trained(values: Mapping[str, Any]) -> Trained:
    curve = values["curve"]
    return Trained(
        seed=values["seed"],
        measured=FinalScore(**values[KEY]),
        steps=values["steps"] if curve else (),
        curve=curve or (),
    )
