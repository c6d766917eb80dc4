"""Table 6 on text: language models of several depths, untrained and trained, on held-out text.

The small preset trains briefly on the generated text of `toy-text`, from weights with standard
deviation 0.02. The paper preset trains the `wikitext` recipe. `--set toy-text.text=FOLDER` selects
another text.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from interp_studies.jobs.attempt import Job, Outcome
from interp_studies.random_attention.cells import TableCell
from interp_studies.random_attention.depth.likeness import MEASURES, before_and_after
from interp_studies.result import Quantity, compare
from interp_studies.study import Plan
from interp_studies.train_seed import train_seed
from interp_toolkit.results import Table
from interp_toolkit.toys.random_attention.variants import Variant
from interp_toolkit.training.engine.metrics import final_score_of
from interp_toolkit.training.engine.run_files import end_run
from interp_toolkit.training.text.language import LanguageProblem
from interp_toolkit.training.text.store import text_store

VARIANTS: tuple[Variant, ...] = ("random", "mixit")
NAMES: Mapping[str, str] = {"random": "random transformer", "mixit": "MixiT"}
RECIPES = {"small": "toy-text", "paper": "wikitext"}
TEXT_DEPTHS: Mapping[str, Sequence[int]] = {"small": (2, 4, 8), "paper": (2, 4, 8, 16, 32)}
SMALL: Mapping[str, Any] = {"steps": 200, "warm_up": 20}
START = 0.02  # the standard deviation of initial weights
SEEDS = 1
ROWS = 64  # held out, on which hidden states are compared
STATES = ("untrained", "trained")

Read = Mapping[TableCell, Sequence[Mapping[str, Any]]]  # what each seed's job found, by model


def grid(plan: Plan) -> dict[TableCell, list[Job]]:
    """The models and their jobs, with one seed each unless the user asks for more.

    Raises:
        InputError: the user's settings do not fit.
    """
    recipe = RECIPES[plan.preset]
    seeds = plan.runner.seeds(plan.n_seeds or SEEDS)
    jobs = {}
    for depth in TEXT_DEPTHS[plan.preset]:
        for variant in VARIANTS:
            own = {"layers": depth, "initial_std": START}
            own |= SMALL if plan.preset == "small" else {}
            cell = TableCell(f"{depth} layers", variant, recipe, variant, differs=own)
            cell = cell.with_settings(plan.preset, plan.runner.settings_for(recipe, variant))
            jobs[cell] = plan.each_seed(
                f"text-{variant}-layers-{depth}",
                text_job,
                cost=100.0 * depth,
                seeds=seeds,
                recipe=recipe,
                settings=cell.settings(plan.preset),
                rows=ROWS,
                device=plan.runner.device,
            )
    return jobs


def text_job(
    *, folder: Path, recipe: str, settings: Mapping[str, Any], rows: int, seed: int, device: str
) -> Outcome:
    """Train one seed; similarity of hidden states on held-out text, before and after training."""
    config, run = train_seed(recipe, settings, seed, device, folder)
    end_run(folder)
    problem = LanguageProblem(config, seed, text_store(config), recipe)
    return Outcome(
        {
            "seed": seed,
            "log_perplexity": final_score_of(run.training).value,
            **before_and_after(problem, run.model, rows),
        },
        run.model,
        run.task,
        run.training,
    )


def medians(read: Read) -> dict[TableCell, dict[str, dict[str, float]]]:
    """Each measure of every model, before and after training."""
    return {
        cell: {
            state: {m: statistics.median(one[state][m] for one in seeds) for m in MEASURES}
            for state in STATES
        }
        for cell, seeds in read.items()
    }


def sentence(read: Read) -> str:
    """Cosines on text from the shallowest models to the deepest, in a sentence."""
    by_model, clauses = medians(read), []
    for variant in VARIANTS:
        cells = [cell for cell in by_model if cell.variant == variant]
        ends = [by_model[cells[0]], by_model[cells[-1]]]
        before, after = (
            " to ".join(f"{end[state]['cosine']:.3f}" for end in ends) for state in STATES
        )
        starts = dict.fromkeys(f"{_start(cell):g}" for cell in cells)
        clauses.append(
            f"{NAMES[variant]} {before} untrained (weights {' and '.join(starts)}), {after} trained"
        )
    depths = f"{cells[0].group} to {cells[-1].group}"
    return f"On text, from {depths}: {'; '.join(clauses)}."


def _start(cell: TableCell) -> float:
    """The standard deviation of the model's initial weights."""
    return float(cell.given.get("initial_std", cell.differs["initial_std"]))


def quantities(read: Read) -> list[Quantity]:
    """Every measure of every model, without the paper's values, whose scale is not known."""
    return [
        compare(
            f"{NAMES[cell.variant]} on text, {cell.group}",
            f"{measure}, {state}",
            [one[state][measure] for one in seeds],
            unit="",
        )
        for cell, seeds in read.items()
        for state in STATES
        for measure in MEASURES
    ]


def table(read: Read) -> Table:
    """All models on text."""
    by_model = medians(read)
    rows = [
        [
            *(NAMES[cell.variant], cell.differs["layers"]),
            *(100 * by_model[cell][state][m] for m in MEASURES for state in STATES),
            statistics.median(one["log_perplexity"] for one in read[cell]),
        ]
        for cell in sorted(by_model, key=lambda cell: cell.variant)
    ]
    columns = ["model", "layers"]
    columns += [f"{measure}, {state}" for measure in MEASURES for state in STATES]
    caption = (
        "In units of 0.01, the median over seeds, on held-out rows: the mean over pairs of "
        "different tokens of a row, then over rows. Covariance: over coordinates, before the final "
        "norm; normed: behind it. Log perplexity in nats."
    )
    return Table("On text", [*columns, "log perplexity"], rows, caption)
