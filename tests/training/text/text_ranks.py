"""Two ranks train a language model together: `text_ranks.py FOLDER`.

Each has the environment that torchrun gives it, and finds no token ids yet.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import torch

from interp_toolkit.registry import Session
from interp_toolkit.training.text.language import LanguageTraining, train_language

SETTINGS = {
    "d_model": 16, "heads": 2, "layers": 1, "rows": 4, "steps": 6, "length": 24, "lr": 0.01,
    "documents": 60, "test_documents": 10, "vocabulary": 700, "dtype": "float64", "warm_up": 0,
    "variant": "frozen-qk", "seed": 3, "log_every": 3,
}  # fmt: skip


def rank(number: int, folder: Path) -> None:
    """What one rank does; what it was told and ends with goes to FOLDER."""
    os.environ.update(RANK=str(number), LOCAL_RANK=str(number))
    said: list[str] = []
    config = LanguageTraining(**SETTINGS, cache=str(folder / "cache"))
    run = train_language("toy-text", config, Session(folder / "run", say=said.append))
    found = {"model": run.model.state_dict(), "said": said, "rows": run.rows}
    torch.save(found, folder / f"rank-{number}.pt")


def main(folder: Path) -> None:
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
                rank(number, folder)
                os._exit(0)
            finally:
                os._exit(1)
    assert [os.waitpid(process, 0)[1] for process in started] == [0, 0]


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
