"""A search for a circuit that was stopped goes on, and ends as one that was not."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from family_models import loaded_or_skipped

import interp_toolkit as it
from interp_toolkit.circuits.edges import screened, search
from interp_toolkit.circuits.edges.passes.edge_ablation import EdgeAblation
from interp_toolkit.circuits.edges.passes.patched_pass import PatchedModel
from interp_toolkit.circuits.metrics.metrics import LogitDifference
from interp_toolkit.circuits.metrics.prompts import prompts_from_tokens
from interp_toolkit.errors import InputError
from interp_toolkit.finding import InterruptedAnalysis
from interp_toolkit.models.running.stages import not_stored


@pytest.fixture(autouse=True)
def large(monkeypatch):
    """The search of large models, on a small one."""
    monkeypatch.setattr(search, "MANY", 0)
    monkeypatch.setattr(screened, "FEWEST_NODES", 1)
    monkeypatch.setattr(screened, "FEWEST_EDGES", 2)


def analyzed(folder, stop=None, model="toy:induction", early=None, **options):
    def progress(step):
        if stop is not None and stop in step:
            raise KeyboardInterrupt

    return it.analyze(
        model, "circuit", resume=folder, progress=progress, early=early, seed=1, **options
    )


def numbers(result):
    return json.dumps(result.to_dict(), sort_keys=True)


@pytest.fixture(scope="module")
def unbroken():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "MANY", 0)
        patch.setattr(screened, "FEWEST_NODES", 1)
        patch.setattr(screened, "FEWEST_EDGES", 2)
        return numbers(analyzed(None))


@pytest.mark.parametrize("stop", ["trial circuit", "ablating nodes", "comparing"])
def test_a_stopped_search_shows_the_estimates_and_ends_as_an_unbroken_one(tmp_path, stop, unbroken):
    with pytest.raises(InterruptedAnalysis) as stopped:
        analyzed(tmp_path, stop)
    finding = stopped.value.finding
    assert finding.status == "undecided"
    assert {edge.edge for edge in finding.edges} >= {"L0H1->L1H0<k>", "L1H0->logits"}
    assert all(edge.effect is None and edge.estimate is not None for edge in finding.edges)
    assert "L1H0" in finding.headline
    before = set(tmp_path.iterdir())
    assert before
    assert numbers(analyzed(tmp_path)) == unbroken
    assert set(tmp_path.iterdir()) > before


def test_a_second_run_measures_nothing(tmp_path, unbroken, monkeypatch):
    analyzed(tmp_path)

    class PassMadeError(Exception):
        pass

    def refuse(*arguments, **named):
        raise PassMadeError

    monkeypatch.setattr(search.EdgeAblation, "_passes", refuse)
    monkeypatch.setattr(search.EdgeAblation, "_all_attributed", refuse)
    assert numbers(analyzed(tmp_path)) == unbroken
    with pytest.raises(PassMadeError):
        analyzed(tmp_path, level=0.01)
    other = it.load("toy:induction")
    with torch.no_grad():
        other.blocks[0].attn.W_V.mul_(1.01)
    with pytest.raises(PassMadeError):
        analyzed(tmp_path, model=other)


def test_stages_of_other_rows_and_ablation_values_are_stored_apart():
    _, model = loaded_or_skipped("Qwen3")
    stored, tokens = {}, torch.randint(3, 50, (12, 8), generator=torch.Generator().manual_seed(0))
    prompts = dataclasses.replace(
        prompts_from_tokens(tokens, model),
        answers=tokens[:, :1].contiguous(),
        answer_positions=torch.full((12, 1), 7),
        wrong=tokens[:, 1:2].contiguous(),
    )
    engine = PatchedModel(model)
    half = engine.wiring.masked(np.arange(len(engine.wiring.edges)) % 2 == 0)
    parts = torch.arange(6), torch.arange(6, 12)

    def measured(store):
        return np.stack(
            [
                EdgeAblation(engine, prompts, *rows, LogitDifference(prompts), 2**30, kind, store)
                .values([half])
                .ravel()
                for kind in ("mean", "zero")
                for rows in (parts, parts[::-1])
            ]
        )

    def store(name, measure):
        return stored.setdefault(name, measure())

    alone = measured(not_stored)
    assert len(np.unique(alone.round(4), axis=0)) == 4
    np.testing.assert_array_equal(measured(store), alone)
    assert len(stored) == 4


def test_files_are_numbers_or_refused(tmp_path):
    analyzed(tmp_path)
    stored = sorted(tmp_path.iterdir())
    assert all(np.load(path, allow_pickle=False).dtype.kind == "f" for path in stored)
    for path in stored:
        path.write_bytes(b"no array")
    with pytest.raises(InputError, match="delete"):
        analyzed(tmp_path)
    with pytest.raises(InputError, match="resume"):
        analyzed(stored[0])


@pytest.mark.parametrize("change", ["scale", "hook"])
def test_another_computation_with_the_same_weights_is_refused(tmp_path, change):
    """Weights and settings do not say all that a model computes."""
    model, other = it.load("toy:induction"), it.load("toy:induction")
    analyzed(tmp_path, model=model)
    if change == "scale":
        other.blocks[1].attn.scale *= 50
    else:
        other.blocks[0].register_forward_hook(lambda module, args, output: output * 1.1)
    assert all(map(torch.equal, model.state_dict().values(), other.state_dict().values()))
    with pytest.raises(InputError, match="hooks"):
        analyzed(tmp_path, model=other)
