"""A cell of a table of the source: which model on which task, and what the source found.

Settings are the recipe's own preset, read when they are needed, with the variant's and what the
cell says differs. The job's name follows from recipe, variant and differences, so that tables that
need the same model share it in one folder.
Source: "Is random attention sufficient for sequence modeling?".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from interp_studies.jobs.attempt import Job, Outcome
from interp_studies.random_attention.depth.likeness import before_and_after
from interp_studies.recipe_settings import as_read
from interp_studies.result import Better, Unit
from interp_studies.train_seed import train_seed, variant_of
from interp_toolkit.registry import find
from interp_toolkit.toys.random_attention.variants import trainable_parameters
from interp_toolkit.training.engine.metrics import final_score_of
from interp_toolkit.training.engine.run_files import end_run
from interp_toolkit.training.tasks.problem import TaskProblem
from interp_toolkit.training.tasks.verdict import BITS
from interp_toolkit.training.text.settings import GENERATED

SOURCE = "Is random attention sufficient for sequence modeling?"
LOOKED_AT = 64  # test rows
SHORT = 16  # about how many tokens a row has whose recipe does not say


@dataclass(frozen=True, eq=False)
class TableCell:
    """One model on one task.

    Attributes:
        group: what is compared with each other: the task, or the task at a depth or a size.
        member: of the group: the variant, or its number of heads.
        recipe, variant: that train it.
        theirs: the source's figure of merit, as the recipe measures it; None: it gives none.
        better, unit: of that figure.
        differs: from the recipe's preset.
        bits: the source's bits per parameter, where it gives them.
        remark: what else must be known.
        given: by the user, in place of the preset's and of what differs from it.
        look: whether to say how alike its hidden states are (see `depth.likeness`); of a task.
    """

    group: str
    member: str
    recipe: str
    variant: str
    theirs: float | None = None
    better: Better = "higher"
    unit: Unit = "share"
    differs: Mapping[str, Any] = field(default_factory=dict)
    bits: float | None = None
    remark: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    look: bool = False

    def with_settings(self, preset: str, given: Mapping[str, Any]) -> TableCell:
        """The cell with settings that the user gives.

        Raises InputError where they do not fit.
        """
        read = as_read(self.recipe, self.variant, preset, self.differs, given)
        other_text = read.get("text", GENERATED) != GENERATED
        return replace(self, given=read, remark="" if other_text else self.remark)

    def settings(self, preset: str) -> dict[str, Any]:
        """What differs from the recipe's defaults."""
        settings = dict(find("recipes", self.recipe).presets[preset])
        settings.pop("seeds", None)
        return {**settings, **variant_of(self.recipe, self.variant), **self.differs, **self.given}

    def job(self, preset: str, seed: int, device: str) -> Job:
        """The job of one seed."""
        settings = self.settings(preset)
        config = find("recipes", self.recipe).config(**settings)
        said = [f"{key}-{value}" for key, value in sorted(self.differs.items())]
        return Job(
            name="-".join([self.recipe, self.variant, *said, "seed", str(seed)]).replace("/", ":"),
            function=train_variant,
            arguments={
                "recipe": self.recipe,
                "settings": settings,
                "seed": seed,
                "device": device,
                **({"look": LOOKED_AT} if self.look else {}),
            },
            cost=config.steps
            * config.layers
            * config.rows
            * math.sqrt(config.d_model)
            * getattr(config, "length", SHORT),
        )


def train_variant(
    *,
    folder: Path,
    recipe: str,
    settings: Mapping[str, Any],
    seed: int,
    device: str,
    look: int = 0,
) -> Outcome:
    """Train one seed of a variant and say what it reaches.

    Args:
        folder: for the training run's files.
        recipe: of the task.
        settings: what differs from the recipe's defaults.
        seed: of the model and its batches.
        device: where to train.
        look: on how many test rows to say how alike hidden states are, before and after; of a
            task's recipe.
    """
    config, run = train_seed(recipe, settings, seed, device, folder)
    end_run(folder)
    values: dict[str, Any] = {
        "seed": seed,
        "measured": asdict(final_score_of(run.training)),
        "loss": run.training["loss"],
        "trainable": trainable_parameters(run.model),
        **{name: run.training[name] for name in (BITS,) if name in run.training},
        "curve": run.training["curve"],
    }
    if look:
        problem = TaskProblem(config, seed)
        values["likeness"] = before_and_after(problem, run.model, look)
    return Outcome(values, run.model, run.task, run.training)
