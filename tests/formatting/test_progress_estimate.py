"""What is said of a long run while it lasts."""

import re

import pytest

from interp_toolkit import formatting


def test_time_left_is_told_when_it_is_known(monkeypatch):
    clock = iter([0.0, 1.0, 10.0, 39.0, 40.0])
    monkeypatch.setattr(formatting.time, "monotonic", lambda: next(clock))
    said = []
    count = formatting.ProgressEstimate(said.append, 40, "ablating edges")
    count.step()
    count.step(9)
    count.step(29)
    count.step()
    assert said == [
        "ablating edges: 1 of 40 passes",
        "ablating edges: 10 of 40 passes, 30 s left",
        "ablating edges: 39 of 40 passes",
        "ablating edges: 40 of 40 passes",
    ]


@pytest.mark.parametrize(("seconds", "said"), [(99, "99 s"), (101, "2 min"), (7200, "2.0 h")])
def test_durations_are_said_as_people_say_them(seconds, said):
    assert formatting.in_words(seconds) == said


def test_stages_share_one_estimate(monkeypatch):
    clock = iter([0.0, 1.0, 10.0, 30.0, 40.0, 60.0])
    monkeypatch.setattr(formatting.time, "monotonic", lambda: next(clock))
    said = []
    stages = formatting.Stages(said.append, {"task": 1, "edges": 4, "circuits": 5})
    stages.begin("task")("checking")  # too early for an estimate
    edges = stages.begin("edges")
    edges("ablating: 1 of 4 passes, 7 s left")  # 2 of 10 units in 10 s
    edges("ablating: 0 of 2 passes")  # another count of the stage never goes back
    circuits = stages.begin("circuits")
    circuits("trial 1 of at most 5")  # 6 of 10 units in 40 s
    circuits("trial 5 of at most 5")
    assert [line.split("]")[0] for line in said] == ["[1/3", "[2/3", "[2/3", "[3/3", "[3/3"]
    left = [re.findall(r", (\d+ \w+) left", line) for line in said]
    assert left == [[], ["40 s"], ["2 min"], ["27 s"], []]


def test_the_command_line_adds_no_second_estimate(capsys, monkeypatch):
    from interp_toolkit.cli import outputs

    clock = iter([0.0, 10.0, 20.0, 30.0])
    monkeypatch.setattr(outputs.time, "monotonic", lambda: next(clock))
    steps = outputs._Steps()
    steps.say("[2/3] ablating: 1 of 4 passes, 40 s left in all")
    steps.say("[2/3] ablating: 4 of 4 passes, 20 s left in all")
    assert capsys.readouterr().err.count("left") == 2
