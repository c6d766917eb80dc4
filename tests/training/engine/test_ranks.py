"""Two processes that train together do what one does on both their batches."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from interp_toolkit.errors import InputError
from interp_toolkit.training.engine.acceleration import Ranks, named_ranks, ranks
from interp_toolkit.training.engine.run_files import saved_checkpoints
from interp_toolkit.training.engine.trainer import fit

WORKER = Path(__file__).with_name("two_ranks.py")


def worker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("two_ranks", WORKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_two_ranks_are_one_on_the_batches_joined_also_when_resumed(tmp_path: Path) -> None:
    code = worker()
    generators = [torch.Generator().manual_seed(Ranks(rank, 2).seed(3)) for rank in range(2)]

    class Joined(code.Guessing):
        def draw(self, generator: torch.Generator) -> torch.Tensor:
            return torch.cat([super(Joined, self).draw(own) for own in generators])

    alone = Joined(3)
    fitted = fit(alone, code.SETTINGS, 3)

    done = subprocess.run([sys.executable, WORKER, tmp_path], capture_output=True, timeout=200)
    assert done.returncode == 0, done.stderr
    found = {path.stem: torch.load(path, weights_only=True) for path in tmp_path.glob("*.pt")}
    told = {name: ended["told"] for name, ended in found.items()}
    assert told == {"stop-0": [0, 4], "stop-1": [], "resume-0": [4, 8], "resume-1": []}
    first, second = found["resume-0"], found["resume-1"]
    for name, expected in alone.model.state_dict().items():
        assert torch.equal(first["model"][name], second["model"][name])
        assert torch.allclose(first["model"][name], expected, rtol=0, atol=1e-6)
    assert first["curve"] == second["curve"]
    for point, expected in zip(first["curve"], fitted.curve, strict=True):
        assert point == pytest.approx(expected, abs=1e-6)
    assert [kept.step for kept in saved_checkpoints(tmp_path / "run")] == [0, 8]
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 3


def test_ranks_draw_apart_and_one_alone_draws_from_the_seed() -> None:
    assert Ranks().seed(5) == 5
    seeds = {Ranks(rank, 8).seed(seed) for rank in range(8) for seed in range(8)}
    assert len(seeds) == 64
    assert max(seeds) < 2**32


def test_alone_nothing_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with ranks("cpu") as here:
        assert (here, here.writes) == (Ranks(0, 1), True)
        assert not torch.distributed.is_initialized()
        assert here.gathered("x") == ["x"]


@pytest.mark.parametrize(
    ("world", "rank", "found"),
    [(None, None, (0, 1)), (None, "3", (0, 1)), ("1", "x", (0, 1)), ("4", "3", (3, 4))],
)
def test_the_environment_names_the_ranks(monkeypatch, world, rank, found) -> None:
    for name, value in {"WORLD_SIZE": world, "RANK": rank}.items():
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert named_ranks() == Ranks(*found)


@pytest.mark.parametrize(("world", "rank"), [("two", "0"), ("2", None), ("2", "one")])
def test_ranks_that_cannot_be_are_one_clear_line(monkeypatch, world, rank, texts) -> None:
    monkeypatch.setenv("WORLD_SIZE", world)
    monkeypatch.delenv("RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    with pytest.raises(InputError, check=texts), ranks("cpu"):
        pass


def test_ranks_cannot_share_one_numbered_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(InputError, match="give --device cuda"), ranks("cuda:0"):
        pass
