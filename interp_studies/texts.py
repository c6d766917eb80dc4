"""Check once, before any job starts, whether the training texts of all jobs can be read."""

from __future__ import annotations

from collections.abc import Iterable

from interp_studies.jobs.attempt import Job
from interp_studies.jobs.runner import Runner
from interp_toolkit.registry import find
from interp_toolkit.training.text.store import TextTraining, check_text


def check_texts(jobs: Iterable[Job], runner: Runner) -> None:
    """Check all texts that the recipes and settings of training jobs name.

    Texts on the machines of a remote cluster are not checked.

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
