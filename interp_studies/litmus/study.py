"""The litmus test: does a task need in-context reasoning?

Standard transformers and MixiT, whose attention is fixed at random and looks at nothing, are
trained on the task with the same settings and from the same seeds. Attention that depends on the
input is all that MixiT lacks, so a gap says that the task needs it and no gap that it does not.
`rules` and `seed_interval` define when a gap counts, and when neither sentence is allowed.

What a sentence holds for: these two architectures, this budget, this training. That MixiT fails
to learn a task is no proof that it cannot; its result depends on its heads and its width (the
source's table 11: 35 % to 92 % on decimal addition from 4 to 256 heads). A seed draws the model,
its mixing matrices and its batches; the test is the same for all.

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
    """Train one seed of a variant; its figure, and the figure's curve."""
    _, run = train_seed(recipe, settings, seed, device, folder)
    if KEY not in run.training:
        raise InputError(f"{recipe} does not record the number by which its runs are compared")
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
    """Train both variants of a task's recipe and say what the gap between them means.

    Args:
        task: the recipe's name.
        preset: preset of the recipe.
        seeds: seeds of each variant; the first is the setting `seed`.
        settings: settings of the recipe, for both variants, on top of the preset.
        margin: what counts as a gap, in the figure's unit; None: the convention.
        runner: where and how to train; None: on the CPU, a process a processor, nothing kept.

    Raises:
        InputError: the recipe has not both variants, or records no figure; a setting does not
            fit, or a text cannot be read; or what training raises.
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
    """Raise InputError where the recipe cannot be tested, or a setting is not for both variants."""
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
    """A job a seed, with what differs from the recipe's defaults."""
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
