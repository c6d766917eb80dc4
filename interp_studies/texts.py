"""Whether the texts that jobs train on can be read, asked once before any of the jobs starts."""

from __future__ import annotations

from collections.abc import Iterable

from interp_studies.jobs.attempt import Job
from interp_studies.jobs.runner import Runner
from interp_toolkit.registry import find
from interp_toolkit.training.text.store import TextTraining, check_text


def check_texts(jobs: Iterable[Job], runner: Runner) -> None:
    """Ask for every text that the recipes and settings of jobs which train one name.

    The machines of a cluster at an address may have texts of their own: they are not asked for.

    Raises:
        InputError: a text cannot be read.
    """
    if runner.engine.address is not None:
        return
    asked = {}
    for job in jobs:
        if "recipe" not in job.arguments:
            continue
        recipe, settings = job.arguments["recipe"], job.arguments["settings"]
        asked[recipe, settings.get("text"), settings.get("test_documents")] = settings
    for (recipe, _, _), settings in asked.items():
        config = find("recipes", recipe).config(**settings)
        if isinstance(config, TextTraining):
            check_text(config)
