"""The models trained on other tasks do those, by rows made in plain Python, and do not sort."""

from __future__ import annotations

import random

import pytest
import torch

ORDER = [3, 8, 1, 6, 0, 9, 4, 7, 2, 5]
ANSWERS = {
    "copy": list,
    "reverse": lambda items: items[::-1],
    "descending": lambda items: sorted(items, reverse=True),
    "scrambled": lambda items: sorted(items, key=lambda value: ORDER[value]),
}


def whole(model, lists, answers, written: bool) -> float:
    """Share of whole lists answered so."""
    right = 0
    for items, answer in zip(lists, answers, strict=True):
        n = len(items)
        rest = answer if written else [12] * (10 - n)
        logits = model(torch.tensor([[10, *items, 11, *rest]]))[0]
        start = n + 1 if written else 1
        right += logits[start : start + n].argmax(-1).tolist() == answer
    return right / len(lists)


@pytest.mark.parametrize("task", ["copy", "reverse", "descending", "scrambled"])
@pytest.mark.parametrize("written", [True, False])
def test_a_model_learns_its_task_in_seconds(trained_otherwise, task: str, written: bool) -> None:
    if task == "reverse" and not written:
        pytest.skip("where an item of a reversed list is depends on the list's length")
    layout = "10 list10 11 sorted10" if written else "10 list1-10 11 pad12"
    model, accuracy = trained_otherwise(task, layout)
    draw = random.Random(7)
    lengths = [10] * 200 if written else [draw.randint(1, 10) for _ in range(200)]
    lists = [[draw.randrange(10) for _ in range(n)] for n in lengths]
    found = whole(model, lists, [ANSWERS[task](items) for items in lists], written)
    assert found > 0.9
    assert found == pytest.approx(accuracy, abs=0.06)
    assert whole(model, lists, [sorted(items) for items in lists], written) < 0.3
