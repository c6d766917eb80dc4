"""Two ranks train together, stop in the middle, and go on: `two_ranks.py FOLDER`.

Each has the environment that torchrun gives it.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import torch

from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer, next_token_loss
from interp_toolkit.registry import Session
from interp_toolkit.training.engine.settings import Problem, TrainingSettings
from interp_toolkit.training.engine.trainer import Fitted, train_seeds

SETTINGS = TrainingSettings(
    steps=8, lr=0.02, seed=3, dtype="float64", log_every=4, save_every=3, checkpoints=2
)
CFG = TransformerConfig(
    n_layers=1, d_model=8, n_ctx=4, d_head=4, n_heads=2, d_vocab=5, attn_only=True, dtype="float64"
)
STOP_AT = 5


class Guessing(Problem):
    """Learn that tokens come in order; stop in the middle unless told not to."""

    def __init__(self, seed: int, stops: bool = False):
        self.model = Transformer(CFG.model_copy(update={"seed": seed}))
        self.left = STOP_AT if stops else None

    def draw(self, generator: torch.Generator) -> torch.Tensor:
        start = torch.randint(5, (8, 1), generator=generator)
        return (start + torch.arange(4)) % 5

    def loss(self, batch: torch.Tensor) -> torch.Tensor:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise InterruptedError
        return next_token_loss(self.model(batch), batch)


def score(problem: Guessing, fitted: Fitted) -> dict[str, float]:
    return {"loss": fitted.loss}


def rank(number: int, folder: Path, how: str) -> None:
    """What one rank does; what it is told and ends with goes to FOLDER."""
    os.environ.update(RANK=str(number), LOCAL_RANK=str(number))
    told: list[int] = []
    session = Session(
        folder / "run", resume=how == "resume", report=lambda at: told.append(at.step)
    )
    found: dict[str, object] = {"told": told}
    try:
        runs = train_seeds(
            "guessing", SETTINGS, lambda seed: Guessing(seed, how == "stop"), score, session
        )
        found |= {"model": runs.model.state_dict(), "curve": list(runs.best.curve)}
    except InterruptedError:
        pass
    torch.save(found, folder / f"{how}-{number}.pt")


def fork(folder: Path, how: str) -> None:
    """Both ranks, each a fork of this process, which has imported all they need."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    os.environ.update(WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    started = []
    for number in range(2):
        started.append(os.fork())
        if started[-1] == 0:
            try:
                rank(number, folder, how)
                os._exit(0)
            finally:
                os._exit(1)
    assert [os.waitpid(process, 0)[1] for process in started] == [0, 0], how


if __name__ == "__main__":
    torch.set_num_threads(1)
    for chosen in ("stop", "resume"):
        fork(Path(sys.argv[1]), chosen)
