"""What differs between two files of results."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interp_toolkit.errors import InputError
from interp_toolkit.report.compare import (
    Difference,
    compare,
)
from interp_toolkit.report.html import dumps


def document(*results: dict[str, Any]) -> dict[str, Any]:
    return {"schema": "interp-toolkit/3", "version": "0", "model": None, "results": list(results)}


def result(probe: str = "p", model: str = "m", **parts: Any) -> dict[str, Any]:
    evidence = {"status": "detected", "reason": None} | parts.pop("evidence", {})
    provenance = {"model": {"name": model}, "data": {}, "settings": {}, "seed": 0, "versions": {}}
    return {
        "probe": probe,
        "verdict": "v",
        "evidence": evidence,
        "provenance": provenance,
        **parts,
    }


@pytest.fixture
def compared(tmp_path: Path) -> Any:
    def run(first: dict[str, Any], second: dict[str, Any]) -> Any:
        for name, content in (("a.json", first), ("b.json", second)):
            (tmp_path / name).write_text(json.dumps(content))
        return compare(tmp_path / "a.json", tmp_path / "b.json")

    return run


def test_the_same_results_do_not_differ(compared: Any, texts, analyzed) -> None:
    written = json.loads(dumps([analyzed("toy:induction", "heads")]))
    found = compared(written, written)
    assert found.status == "described"
    assert found.differences == []
    assert found.evidence.numbers_with_intervals > 0
    texts(found.headline)


def test_a_changed_verdict_and_a_changed_head_are_found(compared: Any, texts, analyzed) -> None:
    first = json.loads(dumps([analyzed("toy:induction", "heads")]))
    second = copy.deepcopy(first)
    [changed] = second["results"]
    changed["evidence"]["status"] = "not_detected"
    head = next(h for h in changed["heads"] if h["causal"] == "major")
    head |= {"causal": "no effect found", "effect": 0.0, "effect_low": -0.01, "effect_high": 0.01}
    found = compared(first, second)
    assert found.status == "differs"
    texts(found.headline)
    name = f"heads: {head['detector']} L{head['layer']}H{head['head']}"
    words = [d for d in found.differences if isinstance(d.first, str)]
    assert [(d.of, d.field, d.second) for d in words] == [(name, "causal", "no effect found")]
    [number] = [d for d in found.differences if d.beyond]
    assert (number.of, number.field) == (name, "effect")
    assert number.high < -0.9


def test_intervals_that_could_be_one_value_do_not_differ(compared: Any) -> None:
    first = result(evidence={"x": 1.0, "x_low": 0.0, "x_high": 2.0, "n": 3})
    second = result(evidence={"x": 2.5, "x_low": 1.5, "x_high": 3.5, "n": 4})
    found = compared(document(first), document(second))
    [with_interval] = [d for d in found.differences if d.beyond is not None]
    assert (with_interval.low, with_interval.high) == (-0.5, 3.5)
    assert not with_interval.beyond
    [plain] = [d for d in found.differences if d.beyond is None]
    assert (plain.field, plain.first, plain.second) == ("n", 3.0, 4.0)
    assert found.evidence.numbers_differ == 0


@given(
    ends=st.lists(st.floats(-100, 100), min_size=2, max_size=2).map(sorted),
    others=st.lists(st.floats(-100, 100), min_size=2, max_size=2).map(sorted),
    inside=st.floats(0, 1),
    beside=st.floats(0, 1),
)
def test_the_interval_of_a_difference_holds_every_difference(
    ends: list[float], others: list[float], inside: float, beside: float
) -> None:
    from interp_toolkit.report.compare import _numbers

    mine = {"x": ends[0], "x_low": ends[0], "x_high": ends[1]}
    theirs = {"x": others[1], "x_low": others[0], "x_high": others[1]}
    for difference, has_interval in _numbers(("p", "m", "", "x"), mine, theirs, plain=True):
        assert has_interval
        if difference is None:
            assert ends == others
            continue
        a = ends[0] + inside * (ends[1] - ends[0])
        b = others[0] + beside * (others[1] - others[0])
        assert difference.low - 1e-9 <= b - a <= difference.high + 1e-9


def test_what_one_file_has_not_is_told(compared: Any, texts) -> None:
    first = result(
        evidence={"equivalent": True, "x": 1.0, "gap": 0.1, "interval": [0.0, 0.2]},
        edges=[{"edge": "a->b", "effect": 1.0}, {"edge": "a->c", "effect": 1.0}],
        partners=[{"weight": 1.0}, {"weight": 2.0}],
    )
    second = result(
        evidence={"equivalent": None, "x": None, "gap": 0.9, "interval": [0.8, 1.0]},
        edges=[{"edge": "a->b", "effect": 2.0, "low": 1.9, "high": 2.1}],
        partners=[{"weight": 1.0}],
    )
    found = compared(document(first), document(second))
    told = {(d.of, d.field): (d.first, d.second) for d in found.differences}
    assert told == {
        ("", "equivalent"): (True, None),
        ("", "x"): (1.0, None),
        ("", "gap"): (0.1, 0.9),
    }
    assert [d.field for d in found.differences if d.beyond] == ["gap"]
    assert found.alone == [("p", "m", "edges: a->c", "a.json")]
    assert (found.evidence.entries, found.evidence.entries_alone) == (1, 1)
    assert found.evidence.entries_unnamed == 3
    assert found.status == "differs"
    texts(found.headline)
    texts(found.findings)
    texts([table.title for table in found.tables()][-1])


def test_without_intervals_nothing_is_said_to_be_within_them(compared: Any, texts) -> None:
    found = compared(document(result()), document(result()))
    texts(found.headline)


def test_files_of_another_schema_are_refused(compared: Any) -> None:
    with pytest.raises(InputError):
        compared(document(result()) | {"schema": "interp-toolkit/2"}, document(result()))


def test_files_of_one_name_are_matched_by_what_they_are(compared: Any, texts) -> None:
    def of(number: int, status: str) -> dict[str, Any]:
        found = result(model="model.pt", evidence={"status": status})
        found["provenance"]["model"] |= {"sha256": f"{number}" * 64, "path": f"runs/{number}/m.pt"}
        return found

    first = document(of(1, "absent"), of(2, "detected"), of(3, "detected"))
    second = document(of(2, "detected"), of(3, "not_detected"))
    found = compared(first, second)
    assert sorted(found.verdicts) == [
        ("p", "model.pt", "detected", "detected"),
        ("p", "model.pt", "detected", "not_detected"),
    ]
    assert found.evidence.only_first == ["p of model.pt"]
    again = document(*(result(model="m", evidence={"n": n}) for n in (1, 2)))
    with pytest.raises(InputError, check=texts):
        compared(again, again)  # two results that nothing tells apart belong to no other


def test_models_are_matched_by_name_and_what_is_alone_is_told(compared: Any) -> None:
    first = document(result(model="x"), result(model="y"), result("q"))
    second = document(result(model="y", evidence={"status": "not_detected"}), result(model="z"))
    found = compared(first, second)
    assert found.verdicts == [("p", "y", "detected", "not_detected")]
    assert found.evidence.only_first == ["p of x", "q of m"]
    assert found.evidence.only_second == ["p of z"]


def test_claims_of_studies_are_compared(compared: Any) -> None:
    def study(value: float) -> dict[str, Any]:
        claim = {"claim": "c", "value": value, "low": value - 0.1, "high": value + 0.1}
        return document(result(claims=[claim]))

    found = compared(study(0.2), study(0.9))
    assert [d for d in found.differences if d.beyond] == [
        Difference("p", "m", "claims: c", "value", 0.2, 0.9, *found_interval(0.2, 0.9), True)
    ]


def found_interval(a: float, b: float) -> tuple[float, float]:
    return (b - 0.1) - (a + 0.1), (b + 0.1) - (a - 0.1)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"schema": ' + "9" * 400 + "}",
        "[" * 100_000,
        '{"schema": "interp-toolkit/3", "results": [NaN]}',
        "[]",
        '{"schema": "other"}',
        '{"schema": "interp-toolkit/3", "results": [{"probe": 3}]}',
        '{"schema": "interp-toolkit/3", "results": {}}',
        '{"schema": "interp-toolkit/3", "results": []}',
    ],
)
def test_other_files_are_one_clear_line(tmp_path: Path, text: str, texts) -> None:
    (tmp_path / "a.json").write_text(text)
    (tmp_path / "b.json").write_text(json.dumps(document(result())))
    with pytest.raises(InputError, check=texts):
        compare(tmp_path / "a.json", tmp_path / "b.json")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["low", "high", "value", "name", "x", "x_low"]), inner)
    ),
    max_leaves=12,
)


@given(evidence=json_values, entries=json_values)
def test_any_evidence_is_compared_or_left_alone(
    tmp_path_factory: pytest.TempPathFactory, evidence: Any, entries: Any
) -> None:
    folder = tmp_path_factory.mktemp("c")
    held = evidence if isinstance(evidence, dict) else {"held": evidence}
    content = document(result(evidence=held, entries=entries))
    (folder / "a.json").write_text(json.dumps(content))
    found = compare(folder / "a.json", folder / "a.json")
    assert found.differences == []
    found.tables()
    changed = document(result(evidence={"other": 1}, entries=[{"name": "x", "value": 1.0}]))
    (folder / "b.json").write_text(json.dumps(changed))
    for one, other in (("a.json", "b.json"), ("b.json", "a.json")):
        compare(folder / one, folder / other).tables()


HEAD = {"detector": "induction", "layer": 0, "head": 1, "effect": 0.9}
HEAD |= {"effect_low": 0.8, "effect_high": 1.0, "others": "intact"}


def test_effects_under_other_conditions_are_not_compared(compared: Any) -> None:
    other = HEAD | {"effect": 0.1, "effect_low": 0.0, "effect_high": 0.2, "others": "knocked out"}
    found = compared(document(result(heads=[HEAD])), document(result(heads=[other])))
    [difference] = found.differences
    assert (difference.field, difference.beyond) == ("others", None)
    assert found.evidence.numbers_with_intervals == 0
    again = compared(
        document(result(heads=[HEAD])), document(result(heads=[other | {"others": "intact"}]))
    )
    assert again.evidence.numbers_differ == 1


@pytest.mark.parametrize("key", ["metric", "unit"])
@pytest.mark.parametrize("place", ["evidence", "task_check"])
def test_effects_on_other_metrics_are_not_compared(compared: Any, key: str, place: str) -> None:
    def one(name: str) -> dict[str, Any]:
        edge = {"edge": "a->b", "effect": len(name), "low": len(name) - 0.1, "high": len(name)}
        return document(result(edges=[edge], **{place: {key: name}}))

    found = compared(one("nats"), one("logits"))
    [difference] = found.differences
    assert (difference.field, difference.first, difference.second) == ("metric", "nats", "logits")
    assert found.evidence.numbers_with_intervals == 0
    assert compared(one("nats"), one("nats")).evidence.numbers_with_intervals == 1
