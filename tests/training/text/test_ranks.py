"""Two processes that train a language model together do what one does on both their batches."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from interp_toolkit.training.engine.acceleration import Ranks
from interp_toolkit.training.engine.trainer import fit
from interp_toolkit.training.text.language import LanguageProblem, LanguageTraining
from interp_toolkit.training.text.store import text_store

WORKER = Path(__file__).with_name("text_ranks.py")


@pytest.mark.slow
def test_two_ranks_are_one_on_the_batches_joined(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, WORKER, tmp_path], capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = [torch.load(tmp_path / f"rank-{number}.pt", weights_only=True) for number in range(2)]
    assert sum(len(rank["said"]) for rank in found) == 1  # one made the token ids
    assert found[0]["rows"] == found[1]["rows"]
    assert (tmp_path / "run" / "tokenizer.json").is_file()

    spec = importlib.util.spec_from_file_location("text_ranks", WORKER)
    assert spec is not None
    assert spec.loader is not None
    code = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(code)
    generators = [torch.Generator().manual_seed(Ranks(rank, 2).seed(3)) for rank in range(2)]

    class Joined(LanguageProblem):
        def draw(self, generator: torch.Generator) -> torch.Tensor:
            return torch.cat([super(Joined, self).draw(own) for own in generators])

    config = LanguageTraining(**code.SETTINGS, cache=str(tmp_path / "cache"))
    alone = Joined(config, 3, text_store(config), "toy-text")
    before = {name: weight.clone() for name, weight in alone.model.state_dict().items()}
    fit(alone, config, 3)
    for name, expected in alone.model.state_dict().items():
        assert torch.equal(found[0]["model"][name], found[1]["model"][name])
        torch.testing.assert_close(found[0]["model"][name], expected, rtol=0, atol=1e-6)
        assert torch.equal(expected, before[name]) == name.endswith(("W_Q", "W_K"))
