"""The trainer, against a loop written out by hand, and what it says of itself."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F

from interp_toolkit.errors import InputError
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.registry import Progress, Session
from interp_toolkit.training.engine.acceleration import Ranks, records
from interp_toolkit.training.engine.settings import Problem, TrainingSettings
from interp_toolkit.training.engine.trainer import fit, train_seeds

CFG = TransformerConfig(
    n_layers=1, d_model=8, n_ctx=4, d_head=4, n_heads=2, d_vocab=5, attn_only=True
)


class Copying(Problem):
    """Say the row's first token at its last position."""

    def __init__(self, seed: int, dtype: torch.dtype = torch.float32):
        self.model = Transformer(CFG.model_copy(update={"seed": seed, "dtype": dtype}))

    def draw(self, generator: torch.Generator) -> torch.Tensor:
        return torch.randint(5, (16, 4), generator=generator)

    def loss(self, batch: torch.Tensor) -> torch.Tensor:
        assert not self.model.check_tokens
        return F.cross_entropy(self.model(batch)[:, -1], batch[:, 0])


class Recorded(Copying):
    capturable: ClassVar[bool] = True


def by_hand(settings: TrainingSettings, seed: int) -> tuple[Transformer, list[float]]:
    """The same training in the plainest words, and the loss before each update and at the end."""
    problem = Copying(seed)
    problem.model.check_tokens = False
    generator = torch.Generator().manual_seed(seed)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[settings.optimiser]
    optimiser = kind(
        problem.model.parameters(), betas=settings.betas, weight_decay=settings.weight_decay
    )
    losses = []
    for step in range(settings.steps):
        optimiser.param_groups[0]["lr"] = settings.lr * (1 - step / settings.steps)
        loss = problem.loss(problem.draw(generator))
        losses.append(loss.item())
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
    losses.append(problem.loss(problem.draw(generator)).item())
    return problem.model, losses


@pytest.mark.parametrize("optimiser", ["adam", "adamw"])
def test_training_is_what_the_loop_by_hand_does(optimiser: str) -> None:
    settings = TrainingSettings(
        steps=9, lr=0.02, schedule="linear", optimiser=optimiser, weight_decay=0.3,
        betas=(0.8, 0.9), log_every=4,
    )  # fmt: skip
    problem = Copying(3)
    fitted = fit(problem, settings, 3)
    model, losses = by_hand(settings, 3)
    close = {"rel": 1e-4}  # the optimizer's kernel rounds otherwise than its plain operations
    assert [step for step, _ in fitted.curve] == [0, 4, 8, 9]
    said = [losses[step] for step in (0, 4, 8, 9)]
    assert [loss for _, loss in fitted.curve] == pytest.approx(said, **close)
    assert (fitted.seed, fitted.steps, fitted.stopped_early) == (3, 9, False)
    assert fitted.loss == fitted.curve[-1][1]
    tokens = torch.arange(5).repeat(4)[:, None].expand(-1, 4)
    found, expected = problem.model(tokens), model(tokens)  # b_K has noise for a gradient
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert problem.model.check_tokens


def test_it_stops_at_the_first_measurement_below_the_target() -> None:
    settings = TrainingSettings(steps=400, lr=0.03, log_every=5)
    whole = fit(Copying(0), settings, 0)
    stopped = fit(Copying(0), settings.model_copy(update={"target": 0.5}), 0)
    below = [loss < 0.5 for _, loss in whole.curve].index(True)
    assert 0 < below < len(whole.curve) - 1
    assert stopped.curve == whole.curve[: below + 1]
    assert (stopped.steps, stopped.stopped_early) == (whole.curve[below][0], True)


def test_a_target_of_the_smoothed_loss_and_of_what_is_evaluated() -> None:
    class Smoothed(Copying):
        watched = "smoothed"

    class Evaluated(Copying):
        watched = "left"
        left = 5

        def evaluate(self) -> dict[str, float]:
            assert not torch.is_grad_enabled()
            self.left -= 1
            return {"left": float(self.left)}

    settings = TrainingSettings(steps=400, lr=0.03, log_every=5, target=0.5)
    losses = [loss for _, loss in fit(Smoothed(0), settings, 0).curve]
    means = [sum(losses[i - 10 : i]) / 10 for i in range(10, len(losses) + 1)]
    assert [mean < 0.5 for mean in means] == [False] * (len(means) - 1) + [True]
    assert fit(Evaluated(0), settings, 0).steps == 20  # the fifth measurement finds none left


def test_a_loss_that_is_no_number_is_one_clear_line(texts) -> None:
    class Diverging(Copying):
        def loss(self, batch: torch.Tensor) -> torch.Tensor:
            return super().loss(batch) / 0

    problem = Diverging(0)
    with pytest.raises(InputError, check=texts):
        fit(problem, TrainingSettings(), 4)
    assert problem.model.check_tokens


def test_all_seeds_are_trained_and_the_lowest_score_is_kept() -> None:
    told: list[Progress] = []
    settings = TrainingSettings(steps=6, seeds=3, seed=7, log_every=3)
    runs = train_seeds(
        "copying",
        settings,
        Copying,
        lambda problem, fitted: {"loss": fitted.loss, "distance": abs(fitted.seed - 8)},
        Session(report=told.append),
        by="distance",
    )
    alone = {seed: fit(Copying(seed), settings, seed) for seed in (7, 8, 9)}
    assert runs.columns == ["seed", "loss", "distance"]
    assert runs.rows == [[seed, alone[seed].loss, abs(seed - 8)] for seed in alone]
    assert runs.best.curve == alone[8].curve
    assert runs.model.cfg.seed == 8
    assert not runs.model.training
    assert [(at.seed, at.number, at.step) for at in told] == [
        (seed, number, step) for number, seed in enumerate(alone, 1) for step in (0, 3, 6)
    ]
    record = runs.record()
    assert (record["recipe"], record["settings"]) == ("copying", settings.recorded())
    assert record["curve"] == {"step": [0, 3, 6], "loss": [x for _, x in alone[8].curve]}
    assert [seed["seed"] for seed in record["seeds"]] == [7, 8, 9]


def test_the_first_of_equals_is_kept() -> None:
    settings = TrainingSettings(steps=1, seeds=2)
    runs = train_seeds("copying", settings, Copying, lambda problem, fitted: {"loss": 1.0})
    assert runs.best.seed == 0


def test_only_what_can_be_recorded_is_recorded() -> None:
    auto, on = TrainingSettings(device="cuda"), TrainingSettings(device="cuda", graphs="on")
    off = TrainingSettings(device="cuda", graphs="off")
    alone, two = Ranks(), Ranks(0, 2)
    assert records(Recorded(0), auto, alone)
    assert records(Recorded(0), on, alone)
    assert not records(Recorded(0), off, alone)
    assert not records(Recorded(0), auto, two)
    assert not records(Copying(0), auto, alone)
    assert not records(Recorded(0), TrainingSettings(), alone)
    for problem, settings, ranks, said in [
        (Copying(0), on, alone, "this recipe's step cannot be recorded"),
        (Recorded(0), on, two, "several processes"),
        (Recorded(0), TrainingSettings(graphs="on"), alone, "the device is no GPU"),
    ]:
        with pytest.raises(InputError, match=said):
            records(problem, settings, ranks)


@pytest.mark.gpu
def test_recorded_steps_train_like_the_others() -> None:
    class OnGpu(Recorded):
        def __init__(self, seed: int):
            super().__init__(seed, torch.float64)
            self.model.cuda()

        def draw(self, generator: torch.Generator) -> torch.Tensor:
            return torch.randint(5, (16, 4), generator=generator, device="cuda")

    settings = TrainingSettings(
        steps=40, lr=0.02, schedule="cosine", log_every=10, device="cuda", dtype="float64"
    )
    recorded = fit(OnGpu(0), settings, 0).curve
    plain = fit(OnGpu(0), settings.model_copy(update={"graphs": "off"}), 0).curve
    # recorded optimizers count their steps, and correct for them, in float32
    assert recorded == tuple(pytest.approx(point, rel=1e-5) for point in plain)
