import json

from interp_toolkit.registry import TaskRecord

SORTING = {"name": "sorting", "layout": "10 list10 11 sorted10", "distinct": False, "own": [1]}


def test_a_record_is_written_as_it_was_read() -> None:
    assert json.dumps(TaskRecord.from_json(SORTING).to_json()) == json.dumps(SORTING)


def test_what_a_record_does_not_say_is_none() -> None:
    found = TaskRecord.from_json(SORTING)
    assert (found.name, found.layout, found.distinct) == ("sorting", SORTING["layout"], False)
    assert found.function is None
    assert TaskRecord.from_json(None) == TaskRecord()


def test_sizes_that_are_no_numbers_are_not_known() -> None:
    found = TaskRecord.from_json({"n_features": "6", "most_on": 2})
    assert (found.n_features, found.most_on) == (None, 2)
