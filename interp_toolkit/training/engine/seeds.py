"""Train several seeds one after another and keep the best: what every recipe does.

Small models are bimodal by seed, so one seed says little: all are reported. Seeds that a resumed
run has finished are read from their state and not trained again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

from interp_toolkit.errors import InputError
from interp_toolkit.models.about.info import find_device
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.registry import Progress, Session
from interp_toolkit.training.engine.acceleration import Ranks, ranks
from interp_toolkit.training.engine.run_files import RunFiles
from interp_toolkit.training.engine.settings import Problem, TrainingSettings
from interp_toolkit.training.engine.trainer import Fitted, fit

AnyProblem = TypeVar("AnyProblem", bound=Problem)


@dataclass(frozen=True)
class SeedRuns:
    """The best seed's model, and how every seed did.

    Attributes:
        recipe, settings: of the run.
        model: the best seed's.
        best: how its training went.
        scores: its scores, by name.
        by_seed: every seed's scores, by seed.
    """

    recipe: str
    settings: TrainingSettings
    model: Transformer
    best: Fitted
    scores: Mapping[str, Any]
    by_seed: Mapping[int, Mapping[str, Any]]

    @property
    def columns(self) -> list[str]:
        """The seed and the scores' names, for a table."""
        return ["seed", *self.scores]

    @property
    def rows(self) -> list[Sequence[Any]]:
        """The seeds and their scores, for a table."""
        return [[seed, *scores.values()] for seed, scores in self.by_seed.items()]

    def record(self) -> dict[str, Any]:
        """The training record of a checkpoint: settings, every seed's scores, the best's curve."""
        return {
            "recipe": self.recipe,
            "settings": self.settings.recorded(),
            "loss": self.best.loss,
            **self.scores,
            "seeds": [{"seed": seed, **scores} for seed, scores in self.by_seed.items()],
            "curve": {
                "step": [step for step, _ in self.best.curve],
                "loss": [loss for _, loss in self.best.curve],
                **{name: list(values) for name, values in self.best.measured.items()},
            },
        }


def train_seeds(
    recipe: str,
    settings: TrainingSettings,
    start: Callable[[int], AnyProblem],
    score: Callable[[AnyProblem, Fitted], Mapping[str, Any]],
    session: Session | None = None,
    *,
    by: str = "loss",
    task: Mapping[str, Any] | None = None,
) -> SeedRuns:
    """Train every seed and keep the one with the lowest score.

    Args:
        recipe: its name.
        settings: of the run.
        start: makes a seed's problem.
        score: what a seed has reached, by name, given its problem (trained) and its course.
        session: where to keep files and whom to tell.
        by: which score decides; the lowest is best, the first of equals.
        task: the task record of the checkpoints of chosen steps.

    Raises:
        InputError: the device is not there, a loss is not finite, or a file is in the way.
    """
    session = session or Session()
    find_device(settings.device)
    if settings.checkpoints and session.folder is None:
        raise InputError("the checkpoints of chosen steps are kept beside --out: give --out")
    seeds = range(settings.seed, settings.seed + settings.seeds)
    best: tuple[Transformer, Fitted] | None = None
    by_seed: dict[int, Mapping[str, Any]] = {}
    with ranks(settings.device) as here, _files(recipe, settings, session, seeds, here) as files:
        for number, seed in enumerate(seeds, start=1):
            problem = start(seed)
            report = _reporter(session, settings, seed, number)
            fitted = fit(
                problem, settings, seed, files=files, task=task, report=report, log=session.log,
                ranks=here,
            )  # fmt: skip
            by_seed[seed] = score(problem, fitted)
            if best is None or by_seed[seed][by] < by_seed[best[1].seed][by]:
                best = problem.model, fitted
    assert best is not None
    model, fitted = best
    return SeedRuns(recipe, settings, model.eval(), fitted, by_seed[fitted.seed], by_seed)


@contextmanager
def _files(
    recipe: str, settings: TrainingSettings, session: Session, seeds: Sequence[int], here: Ranks
) -> Iterator[RunFiles | None]:
    """The run's files, looked at by every rank before the first one touches them."""
    if session.folder is None:
        yield None
        return
    files = RunFiles(session.folder, recipe, settings, resume=session.resume)
    here.gathered(None)
    with files.opened(seeds) if here.writes else nullcontext():
        here.gathered(None)
        yield files


def _reporter(
    session: Session, settings: TrainingSettings, seed: int, number: int
) -> Callable[[int, float], None]:
    def report(step: int, loss: float) -> None:
        session.report(Progress(seed, number, settings.seeds, step, settings.steps, loss))

    return report
