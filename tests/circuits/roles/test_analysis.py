"""The analysis: asks first whether the model does the task; the verdict, the table, the report."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import plotly.graph_objects as go
import pytest
from planted_roles import D_VOCAB, N_POS, movers, noisy_movers, rows

import interp_toolkit as it
from interp_toolkit.circuits.roles import analysis, find
from interp_toolkit.circuits.roles.analysis import ROLES
from interp_toolkit.circuits.roles.find import find_roles
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Head
from interp_toolkit.report.html import dumps, to_html
from interp_toolkit.results import jsonable
from interp_toolkit.toys.hand_set.untrained import random_model


def data(n: int = 64, seed: int = 0) -> FeatureData:
    prompts = rows(n, seed)
    return FeatureData(
        prompts.tokens.numpy(),
        np.zeros((n, 0), bool),
        (),
        answers=prompts.answers.numpy(),
        wrong=prompts.wrong.numpy(),
        source="planted",
    )


def test_the_verdict_says_what_carries_what_feeds_and_what_is_not_there(texts) -> None:
    result = it.analyze(movers(), "roles", data=data())
    assert result.status == "detected"
    assert "1 name mover, L1H0 (" in result.verdict
    assert "1 S-inhibition head, L0H0 (" in result.verdict
    texts(result.headline)
    texts([s for s in result.findings if "L1H3" in s])
    assert [writer.name for writer in result.writers] == ["L1H3"]
    assert "0 attention sinks" in result.verdict
    assert len(result.findings) == 6
    named = [[row[0], row[1]] for row in result.tables()[0].rows if row[2] == "named"]
    kinds = ["name-mover", "negative-name-mover", "s-inhibition"]
    assert named == [["L1H0", kinds[0]], ["L1H1", kinds[1]], ["L0H0", kinds[2]]]
    assert len(result.to_frame()) == len(result.heads)


def test_quick_effort_describes_roles_and_takes_no_head_out(texts) -> None:
    quick = it.analyze(movers(), "roles", data=data(), effort="quick")
    assert quick.status == "described"
    texts(quick.headline)
    assert len(quick.headline.split()) <= 20
    assert not any(head.check for head in quick.heads)
    assert any("effort: quick" in note for note in quick.notes)
    thorough = it.analyze(movers(), "roles", data=data(), effort="thorough")
    assert thorough.status == "detected"
    assert thorough.provenance.settings["effort"] == "thorough"


def with_direct(roles, at, mean, low, high):
    """The same roles, with another direct effect of one head."""
    values = {name: getattr(roles.direct, name).copy() for name in ("mean", "low", "high")}
    for name, value in zip(values, (mean, low, high), strict=True):
        values[name][at] = value
    return dataclasses.replace(roles, direct=dataclasses.replace(roles.direct, **values))


def test_a_writer_writes_most_only_if_no_other_head_does() -> None:
    """Whatever the other head is: named, undecided, or tested for no role."""
    roles = find_roles(movers(), rows(64))
    writer = Head(1, 3)
    [found] = roles.writers
    assert (found.layer, found.head) == writer
    assert analysis.largest_writer(roles) is None  # the name mover writes more
    small = roles
    for at in ((1, 0), (1, 1)):
        small = with_direct(small, at, 0.1, 0.05, 0.2)
    assert analysis.largest_writer(small) == found
    least = max(found.direct.low, -found.direct.high)
    for other in np.ndindex(2, 4):
        if other != writer:
            for sign in (1, -1):
                more = sorted([sign * least * 0.1, sign * least * 1.01])
                more = with_direct(small, other, sign * least / 2, *more)
                assert analysis.largest_writer(more) is None


def test_what_few_rows_cannot_show_is_not_said_to_be_absent() -> None:
    result = it.analyze(noisy_movers(0.05, 1), "roles", data=data(7, 1))
    assert result.status == "undecided"
    absent = result.verdict.lower().partition("looked for and not found: ")[2].partition(";")[0]
    assert "name-mover" not in absent.split(", ")
    assert re.search(r"undecided: l\dh\d \(", result.verdict.lower())


def test_the_result_is_json_and_a_page_and_plotly_draws_it() -> None:
    result = it.analyze(movers(), "roles", data=data())
    assert json.loads(dumps([result]))["results"][0]["probe"] == "roles"
    assert "Direct effects" in to_html([result])
    for figure in result.figures():
        plain = json.loads(json.dumps(jsonable(figure), allow_nan=False))
        assert go.Figure(data=plain["data"], layout=plain["layout"]).data


def test_of_a_model_that_does_not_do_the_task_nothing_is_said() -> None:
    result = it.analyze(random_model(0, d_vocab=D_VOCAB, n_ctx=N_POS), "roles", data=data())
    assert result.status == "not_tested"
    assert "chance is 50 %" in result.verdict
    assert not result.heads


def test_rows_without_answers_are_refused() -> None:
    assert ROLES.unfit(movers(), None)
    with pytest.raises(InputError, match="answers"):
        it.analyze(movers(), "roles")


def test_lists_may_be_given_as_text() -> None:
    result = it.analyze(movers(), "roles", data=data(), lists="8,9,10,11;12,13,14,15")
    assert "list" in result.untested.get("successor", "list")
    with pytest.raises(InputError, match="lists"):
        it.analyze(movers(), "roles", data=data(), lists="a,b")


def test_a_writer_that_may_inhibit_is_a_writer_until_it_is_named() -> None:
    """What is undecided of a kind that needs no writing takes no head from the list."""
    roles = find_roles(movers(), rows(64))
    name, direct = Head(1, 3), roles.direct

    def writers_if_undecided(kind: str) -> list[tuple[int, int]]:
        heads = [
            dataclasses.replace(head, word="undecided")
            if (head.layer, head.head, head.kind) == (*name, kind)
            else head
            for head in roles.heads
        ]
        listed = find._writers(heads, direct, direct, roles.difference)
        return [(writer.layer, writer.head) for writer in listed]

    assert name in writers_if_undecided("s-inhibition")
    assert name not in writers_if_undecided("name-mover")
