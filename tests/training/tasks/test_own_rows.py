"""A user's own prompts as a task: what is read, held out and refused."""

import json

import numpy as np
import pytest
import torch

from interp_studies.litmus.study import litmus
from interp_toolkit.errors import InputError
from interp_toolkit.registry import find
from interp_toolkit.training.tasks.problem import TaskProblem

TINY = {"layers": 1, "heads": 2, "d_model": 16, "rows": 32, "steps": 2}


@pytest.fixture
def rows(tmp_path):
    def written(n=60, extra=()):
        rng = np.random.default_rng(0)
        tokens = [rng.integers(1, 9, int(rng.integers(3, 6))).tolist() for _ in range(n)]
        every = [
            {"tokens": [*row, 10 + i % 3], "answer": row[i % 3]} for i, row in enumerate(tokens)
        ]
        path = tmp_path / "rows.jsonl"
        path.write_text("\n".join(json.dumps(row) for row in [*every, *extra]) + "\n")
        return path, every

    return written


def problem_of(path, **more):
    config = find("recipes", "rows").config(**{**TINY, "data": str(path), **more})
    return config, TaskProblem(config, 0)


def test_every_prompt_is_a_row_once_and_a_fifth_is_held_out(rows):
    path, every = rows()
    path.write_text(path.read_text() + json.dumps(every[3]) + "\n")
    config, problem = problem_of(path)
    different = {tuple(row["tokens"]) for row in every}
    task = config.task
    assert task.n_rows == len(different)
    assert config.test_examples == round(0.2 * len(different))
    assert task.d_vocab == 13
    assert task.n_ctx == max(map(len, different))
    by_tokens = {tuple(row["tokens"]): row["answer"] for row in every}
    for tokens, read, answer in zip(*task.rows, strict=True):
        end = int(read[0])
        assert by_tokens[tuple(tokens[: end + 1].tolist())] == int(answer[0])
        assert not tokens[end + 1 :].any()
    commonest = max(np.bincount([by_tokens[row] for row in different])) / len(different)
    assert task.guess == pytest.approx(commonest)
    held_out = {tuple(row) for row in problem.test_rows.tokens.tolist()}
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        batch = problem.draw(generator)
        for row, answer in zip(batch.tokens.tolist(), batch.answer.tolist(), strict=True):
            assert (answer == [-100]) == (tuple(row) in held_out)


def test_a_model_learns_them(rows):
    path, _ = rows(400)
    recipe = find("recipes", "rows")
    run = recipe.train(
        recipe.config(**{**TINY, "data": str(path), "steps": 400, "lr": 1e-2, "d_model": 32})
    )
    assert run.task["rows"] == len(find_different(path))
    config, _ = problem_of(path)
    assert run.rows
    assert run.training["measured"]["value"] > config.task.guess + 0.1


def find_different(path):
    return {tuple(json.loads(line)["tokens"]) for line in path.read_text().splitlines()}


def test_what_cannot_be_learned_is_one_line(rows, tmp_path):
    config = find("recipes", "rows").config
    with pytest.raises(InputError, match="--set data=FILE"):
        config().task  # noqa: B018
    with pytest.raises(ValueError, match="no such file"):
        config(data=str(tmp_path / "absent.jsonl"))
    path, every = rows(10)
    with pytest.raises(ValueError, match="at least 20"):
        config(data=str(path))
    other = {**every[0], "answer": every[0]["answer"] + 1}
    path, _ = rows(60, [other])
    with pytest.raises(ValueError, match="another answer"):
        config(data=str(path))
    path.write_text("\n".join(json.dumps({"tokens": [i, 2]}) for i in range(30)))
    with pytest.raises(ValueError, match="answer"):
        config(data=str(path))


def test_litmus_takes_them(rows):
    path, _ = rows()
    result = litmus("rows", "small", 2, settings={**TINY, "data": str(path)})
    assert result.status in ("undecided", "needs", "does_not_need")
    with pytest.raises(InputError, match="data=FILE"):
        litmus("rows", "small", 2, settings=TINY)


@pytest.mark.parametrize("name", ["nope.jsonl", "folder/nope.csv"])
def test_a_file_that_is_not_there_is_not_taken_for_a_recipe(name, capsys, monkeypatch):
    from interp_toolkit.cli.main import main

    monkeypatch.setattr("sys.argv", ["interp", "litmus", name])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert "no such file" in capsys.readouterr().err
