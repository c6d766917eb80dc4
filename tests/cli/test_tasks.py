"""`--task` and `--prompt` on the command line."""

import importlib
import json

import pytest
from tiny_tokenizers import word_level

from interp_toolkit.toys.hand_set.induction import decoy, induction


@pytest.fixture
def loaded(monkeypatch):
    """Make `interp analyze` load a hand-set model that has a tokenizer of 64 tokens."""

    importlib.import_module("interp_toolkit.analysis")  # keeps the loader that it is imported with

    def give(model):
        model.tokenizer = word_level([f"w{i}" for i in range(62)], digits=False)
        monkeypatch.setattr("interp_toolkit.models.loading.loader.load", lambda *a, **k: model)
        return model

    return give


def test_a_task_tells_first_what_the_model_does(call, loaded, texts):
    loaded(induction())
    line = ("analyze", "toy:induction", "--task", "copy-random", "--task-rows", "48")
    code, out, err = call(*line, "--probe", "circuit", "--json", "-")
    assert code == 0, err
    (told,) = [line for line in err.splitlines() if line.startswith("copy-random: ")]
    texts(told)
    (circuit,) = json.loads(out)["results"]
    source = circuit["provenance"]["data"]["source"]
    assert source.startswith("copy-random, 48 rows, seed 0: rows with answers, 48 × 25")
    assert circuit["evidence"]["measured"].startswith("logit difference")
    assert circuit["evidence"]["status"] == "detected", circuit["evidence"]


def test_seed_and_memory_reach_the_task_without_a_probe_too(call, loaded, monkeypatch):
    loaded(induction())
    checked = {}
    from interp_toolkit.circuits.metrics import task_check

    def noted(model, prompts, memory):
        checked["source"], checked["memory"] = prompts.source, memory
        return was(model, prompts, memory)

    was = task_check.task_performance
    monkeypatch.setattr(task_check, "task_performance", noted)
    line = ("analyze", "toy:induction", "--quiet", "--task", "copy-random", "--task-rows", "8")
    given = ("--seed", "5", "--memory", "3MB")
    call(*line, *given)
    assert "seed 5" in checked["source"]
    assert checked["memory"] == "3MB"
    code, _, err = call(*line, "--seed", "-1")
    assert code == 2
    assert "--seed '-1' cannot be used" in err
    assert len(err.strip().splitlines()) == 1


def test_heads_of_a_task_are_judged_by_the_preference(call, loaded, texts):
    loaded(induction())
    line = ("analyze", "toy:induction", "--quiet", "--task", "copy-random", "--probe", "heads")
    code, out, err = call(*line, "--json", "-")
    assert code == 0, err
    assert err == ""  # quiet
    (heads,) = json.loads(out)["results"]
    assert heads["performs_task"] is True
    texts(heads["verdict"])
    heads = {(h["detector"], h["layer"], h["head"]): h for h in heads["heads"]}
    assert heads["previous-token", 0, 1]["causal"] == "major"
    assert heads["induction", 1, 0]["attends"] is True


def test_a_model_that_does_not_do_the_task_is_refused_with_the_figure(call, loaded, texts):
    loaded(decoy())
    line = ("analyze", "toy:decoy", "--quiet", "--task", "copy-random", "--probe", "circuit")
    code, out, err = call(*line)
    assert code == 2
    assert out == ""
    assert len(err.strip().splitlines()) == 1
    texts(err)


def test_plain_prompts_are_rows(call, loaded, texts):
    loaded(induction())
    two = ("--prompt", "w1 w2 w3", "--prompt", "w3 w4 w5")
    line = ("analyze", "toy:induction", "--quiet", "--probe", "collapse", "--json", "-")
    code, out, err = call(*line, *two)
    assert code == 0, err
    (result,) = json.loads(out)["results"]
    assert result["provenance"]["data"]["source"] == "2 given prompts"
    code, out, _ = call(*line, *two, "--prompt", "w1 w2")
    assert code == 0
    (result,) = json.loads(out)["results"]
    texts(result["provenance"]["data"]["source"])


def test_a_text_is_cut_into_prompts_and_a_file_of_lines_is_one_each(call, loaded, tmp_path, texts):
    loaded(induction())
    story, lines = tmp_path / "story.txt", tmp_path / "lines.txt"
    story.write_text("w1 w2 w3 w4 w5 w6 w7")
    lines.write_text("w1 w2\nw3 w4\n")
    line = ("analyze", "toy:induction", "--quiet", "--probe", "collapse", "--json", "-")
    code, out, err = call(*line, "--text", story, "--text-length", 3)
    assert code == 0, err
    (result,) = json.loads(out)["results"]
    assert result["provenance"]["data"]["source"].startswith(f"{story} in ")
    assert result["provenance"]["data"]["source"].endswith(" pieces of 3 tokens")
    code, _, err = call(*line, "--text", story, "--text-length", 9_999)
    assert code == 2
    texts(err)
    code, out, err = call(*line, "--prompts", lines)
    assert code == 0, err
    (result,) = json.loads(out)["results"]
    assert result["provenance"]["data"]["rows"] == 2


@pytest.mark.parametrize(
    "flags",
    [
        ("--text", "a.txt", "--prompt", "a"),
        ("--text-length", "9"),
        ("--text", "none.txt"),
        ("--task", "copy-random", "--data", "rows.npz"),
        ("--task", "copy-random", "--prompt", "a"),
        ("--task", "copy-randon"),
        ("--task-rows", "9"),
        ("--task", "copy-random"),
        ("--prompt", "a"),
    ],
)
def test_what_does_not_go_together_is_one_line(call, flags, texts):
    code, _, err = call("analyze", "toy:induction", "--quiet", "--probe", "circuit", *flags)
    assert code == 2
    texts(err)
    assert len(err.strip().splitlines()) == 1


def test_tasks_are_listed_and_shown(call, texts):
    code, out, _ = call("list", "tasks")
    assert code == 0
    assert "indirect-object" in out
    code, out, _ = call("show", "indirect-object")
    assert code == 0
    assert "task indirect-object" in out
    texts(out)
    assert "interp analyze MODEL --task indirect-object" in out
