"""What is said of a long run while it lasts."""

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
