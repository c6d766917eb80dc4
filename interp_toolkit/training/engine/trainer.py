"""Training of one seed, or of several in sequence, of which the best is kept.

Each step draws a batch, computes its loss, and updates the weights by Adam or AdamW. At every log
interval, and at the end, the loss of the current weights is measured on that step's batch, before
the update. The next step depends only on the model, the optimizer, the generator, the number of the
step and, with a plateau schedule, the measured losses. A saved state holds all of these, so a
resumed run on a CPU ends with the same bits as an uninterrupted one.

Small models have bimodal results by seed, so one seed says little: all are reported. Seeds that a
resumed run has finished are read from their state and not trained again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.about.info import find_device
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.registry import Progress, Session
from interp_toolkit.training.engine.acceleration import (
    Ranks,
    RecordedStep,
    flushed_denormals,
    ranks,
    records,
)
from interp_toolkit.training.engine.run_files import RunFiles, State
from interp_toolkit.training.engine.settings import (
    Plateau,
    Problem,
    TrainingSettings,
    learning_rate,
)

SMOOTHED_OVER = 10  # measurements


@dataclass(frozen=True)
class Fitted:
    """The result of training one seed.

    Attributes:
        seed: random seed of the model and its batches.
        curve: (step, loss) at each measurement; the loss is that of the model after `step`
            updates, on a new batch, and the last one is that of the final model.
        measured: other metrics of the problem at each measurement, by name.
        steps: updates done.
        stopped_early: whether the target was met before the last step.
        seconds: time spent, over all resumptions.
    """

    seed: int
    curve: tuple[tuple[int, float], ...]
    measured: Mapping[str, tuple[float, ...]]
    steps: int
    stopped_early: bool
    seconds: float

    @property
    def loss(self) -> float:
        """The last loss of the curve."""
        return self.curve[-1][1]


def fit(
    problem: Problem,
    settings: TrainingSettings,
    seed: int,
    *,
    files: RunFiles | None = None,
    task: Mapping[str, Any] | None = None,
    report: Callable[[int, float], None] | None = None,
    log: Callable[[Mapping[str, Any]], None] | None = None,
    ranks: Ranks | None = None,
) -> Fitted:
    """Train the problem's model in place.

    Args:
        problem: the model, its batches and its loss.
        settings: see `TrainingSettings`; its number of seeds is ignored here.
        seed: random seed of the batches.
        files: folder for metrics, states and checkpoints; training resumes from a state in it.
        task: the task record for the checkpoints.
        report: called with step and loss at each measurement.
        log: called with each measurement, as in the metrics file.
        ranks: the processes that train together.

    Raises:
        InputError: the loss is no longer finite; a file cannot be written, or a state not resumed.
    """
    return _Fit(problem, settings, seed, files, task, report, log, ranks or Ranks()).run()


class _Fit:
    """The training of one seed."""

    def __init__(
        self,
        problem: Problem,
        settings: TrainingSettings,
        seed: int,
        files: RunFiles | None,
        task: Mapping[str, Any] | None,
        report: Callable[[int, float], None] | None,
        log: Callable[[Mapping[str, Any]], None] | None,
        ranks: Ranks,
    ):
        self.problem, self.settings, self.seed = problem, settings, seed
        self.files, self.task, self.ranks = files, task, ranks
        self.report, self.log = report, log
        self.generator = torch.Generator(settings.device).manual_seed(ranks.seed(seed))
        recorded = records(problem, settings, ranks)
        self.optimiser = optimiser_of(problem.model, settings, capturable=recorded)
        self.update = self._update
        if recorded:
            self.update = RecordedStep(self._update, self.optimiser, self.generator)
        self.log_every, self.save_every = settings.log_interval(), settings.save_interval()
        self.save_at = settings.steps_to_save() if files is not None else frozenset()
        self.lines: list[dict[str, Any]] = []
        self.plateau = Plateau(settings) if settings.schedule == "plateau" else None
        self.step, self.finished = 0, False
        self.began = time.monotonic()

    def run(self) -> Fitted:
        """Train, or resume, to the end."""
        self._restore()
        self.ranks.share_parameters(self.problem.model)
        with _unchecked(self.problem.model), flushed_denormals():
            while not self.finished:
                self._one_step()
        return Fitted(
            seed=self.seed,
            curve=tuple((line["step"], line["loss"]) for line in self.lines),
            measured={
                name: tuple(line[name] for line in self.lines)
                for name in self.lines[0]
                if name not in ("seed", "step", "lr", "loss")
            },
            steps=self.step,
            stopped_early=self.step < self.settings.steps,
            seconds=time.monotonic() - self.began,
        )

    def _one_step(self) -> None:
        """Store a checkpoint and measure if due, update the weights, and save the state if due."""
        if self.step in self.save_at:
            self._keep()
        _set_learning_rate(self.optimiser, self._rate())
        last = self.step == self.settings.steps
        if last or self.step % self.log_every == 0:
            loss = self._loss()
            self.finished = self._measure(loss) or last
            if not self.finished:
                self._move(loss)
        else:
            self.update()
        if not self.finished:
            self.step += 1
        if self.finished or self.step % self.save_every == 0:
            self._save()

    def _update(self) -> None:
        self._move(self._loss())

    def _loss(self) -> Float[Tensor, ""]:
        return self.problem.loss(self.problem.draw(self.generator))

    def _move(self, loss: Float[Tensor, ""]) -> None:
        """Update the weights by the gradient of this loss."""
        self.optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        self.ranks.average_gradients(self.problem.model)
        self.optimiser.step()

    def _measure(self, loss: Float[Tensor, ""]) -> bool:
        """Record the loss and further metrics; returns whether the target is met."""
        with torch.no_grad():
            measured = {"loss": loss.item(), **self.problem.evaluate()}
        measured = self.ranks.means(measured, self.settings.device)
        if not math.isfinite(measured["loss"]):
            raise InputError(
                f"the loss of seed {self.seed} is {measured['loss']} after {self.step} steps: "
                "give a lower lr"
            )
        line = {"seed": self.seed, "step": self.step, "lr": self._rate(), **measured}
        self.lines.append(line)
        self._note(line)
        if self.ranks.writes and self.files is not None:
            self.files.metrics.add(line)
        if self.ranks.writes and self.report is not None:
            self.report(self.step, measured["loss"])
        if self.ranks.writes and self.log is not None:
            self.log(line)
        return self._watched() < self.settings.target

    def _rate(self) -> float:
        return learning_rate(self.settings, self.step, self.plateau)

    def _note(self, line: Mapping[str, Any]) -> None:
        """Pass a measurement to a schedule that depends on the loss."""
        if self.plateau is not None:
            self.plateau.measured(line["loss"])

    def _watched(self) -> float:
        """The measurement that is compared with the target."""
        if self.problem.watched != "smoothed":
            return float(self.lines[-1][self.problem.watched])
        if len(self.lines) < SMOOTHED_OVER:
            return math.inf
        return math.fsum(line["loss"] for line in self.lines[-SMOOTHED_OVER:]) / SMOOTHED_OVER

    def _keep(self) -> None:
        if self.ranks.writes and self.files is not None:
            self.files.keep(self.problem.model, self.seed, self.step, self.task)

    def _save(self) -> None:
        """Save the state; all ranks take part, because it includes their generators."""
        if self.files is None:
            return
        generators = self.ranks.gathered(self.generator.get_state())
        if self.ranks.writes:
            self.files.save_state(
                seed=self.seed,
                step=self.step,
                model=self.problem.model.state_dict(),
                optimiser=None if self.finished else self.optimiser.state_dict(),
                generators=generators,
                lines=self.lines,
                seconds=time.monotonic() - self.began,
                finished=self.finished,
            )

    def _restore(self) -> None:
        """Restore the saved state, if there is one."""
        state = self.files.state(self.seed) if self.files is not None else None
        if state is None:
            return
        if len(state.generators) != self.ranks.world:
            raise InputError(
                f"the run was started on {len(state.generators)} processes, not "
                f"{self.ranks.world}: continue with the same number"
            )
        try:
            self._take(state)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
            raise InputError(
                f"the saved state of seed {self.seed} does not match the run, or is damaged: "
                f"remove seed-{self.seed}.state from its folder to train that seed again"
            ) from error
        self.lines = [dict(line) for line in state.lines]
        for line in self.lines:
            self._note(line)
        self.step, self.finished = state.step, state.finished
        self.began -= state.seconds

    def _take(self, state: State) -> None:
        """Set model, generator and optimizer to the saved state."""
        self.problem.model.load_state_dict(state.model)
        self.generator.set_state(state.generators[self.ranks.rank])
        if state.optimiser is None:
            return
        self.optimiser.load_state_dict(dict(state.optimiser))
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):  # loaded on the CPU, unlike the other tensors
                group["lr"] = group["lr"].to(self.settings.device)
        for parameter, moments in self.optimiser.state.items():
            if any(moments[name].shape != parameter.shape for name in ("exp_avg", "exp_avg_sq")):
                raise ValueError("moments of another shape")


@contextmanager
def _unchecked(model: Transformer) -> Iterator[None]:
    """Disable the check of token ids, which synchronizes with the device."""
    model.check_tokens = False
    try:
        yield
    finally:
        model.check_tokens = True


def optimiser_of(
    model: Transformer, settings: TrainingSettings, *, capturable: bool
) -> torch.optim.Optimizer:
    """The optimizer of the settings; a capturable one keeps all its numbers on the GPU.

    On a CPU a fused kernel updates each tensor, instead of a dozen operations that would take as
    long as the model itself.
    """
    kind = torch.optim.AdamW if settings.optimiser == "adamw" else torch.optim.Adam
    lr = torch.tensor(settings.lr, device=settings.device) if capturable else settings.lr
    return kind(
        model.parameters(),
        lr=lr,
        betas=settings.betas,
        weight_decay=settings.weight_decay,
        capturable=capturable,
        fused=settings.device == "cpu" or None,
    )


def _set_learning_rate(optimiser: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of the next update, in place if it is a tensor."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


AnyProblem = TypeVar("AnyProblem", bound=Problem)


@dataclass(frozen=True)
class SeedRuns:
    """The best seed's model, and the results of every seed.

    Attributes:
        recipe, settings: those of the run.
        model: the best seed's.
        best: the result of its training.
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
        settings: settings of the run.
        start: makes a seed's problem.
        score: returns a seed's scores by name, from its trained problem and its result.
        session: folder and callbacks.
        by: name of the score to minimize; of equal seeds the first is kept.
        task: the task record for the checkpoints of selected steps.

    Raises:
        InputError: the device is missing, a loss is not finite, a file cannot be written, a run
            cannot be resumed, or checkpoints are requested without a folder.
    """
    session = session or Session()
    find_device(settings.device)
    if settings.checkpoints and session.folder is None:
        raise InputError("checkpoints at chosen steps are saved beside --out: give --out")
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
    """The run's files, inspected by every rank before the first rank changes them."""
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
