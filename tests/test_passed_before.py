"""What decides which of the long tests run: the files on which a module of tests depends."""

import passed_before
import pytest
from passed_before import ROOT, Recorder, digest, files_of, left, records


def depends(module: str, on: str) -> bool:
    return ROOT / on in files_of(ROOT / "tests" / module)


@pytest.mark.parametrize(
    ("module", "on", "does"),
    [
        ("test_stats.py", "interp_toolkit/stats.py", True),
        ("test_stats.py", "tests/helpers/golden.py", True),
        ("test_stats.py", "interp_toolkit/circuits/heads/rule.py", False),
        # `it.analyze(model, "collapse")`, and what that imports
        ("circuits/test_collapse.py", "interp_toolkit/circuits/collapse.py", True),
        ("circuits/test_collapse.py", "interp_toolkit/analysis.py", True),
        ("circuits/test_collapse.py", "interp_toolkit/stats.py", True),
        ("circuits/test_collapse.py", "interp_toolkit/probes/uand/analysis.py", False),
        # the data beside a module
        ("toys/test_trained.py", "interp_toolkit/toys/induction.safetensors", True),
        ("test_calibration.py", "tests/conftest.py", True),
        ("circuits/heads/test_rule.py", "benchmarks/decoys.py", True),  # the fixture `benchmarks`
        # f"interp_studies.challenge.families.{module}" in `suite`
        ("studies/challenge/test_run.py", "interp_studies/challenge/families/xor.py", True),
        ("studies/test_claims.py", "tests/texts/studies/test_claims.ambr", True),
        ("test_readme.py", "README.md", True),  # starts processes
        ("test_readme.py", "CHANGELOG.md", False),
    ],
)
def test_on_what_a_module_depends(module, on, does):
    assert depends(module, on) is does


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


class Item:
    def __init__(self, nodeid):
        self.nodeid, self.path = nodeid, ROOT / nodeid.split("::")[0]


class Report:
    def __init__(self, nodeid, when, outcome="passed", keywords=("long",)):
        self.nodeid, self.when, self.outcome, self.keywords = nodeid, when, outcome, keywords


PHASES = ("setup", "call", "teardown")


def test_what_passed_is_left_out_until_a_file_changes(own_cache, monkeypatch):
    names = ("passed", "failed", "stopped", "short")
    passed, failed, stopped, short = (f"tests/test_stats.py::test_{name}" for name in names)
    recorder = Recorder()
    for when in PHASES:
        recorder.pytest_runtest_logreport(Report(passed, when))
        recorder.pytest_runtest_logreport(Report(short, when, keywords=()))
        outcome = "failed" if when == "call" else "passed"
        recorder.pytest_runtest_logreport(Report(failed, when, outcome))
    recorder.pytest_runtest_logreport(Report(stopped, "setup"))
    recorder.pytest_sessionfinish()
    assert set(records()) == {passed}
    items = [Item(passed), Item(failed)]
    assert left(items, unless_passed=True, one_in=1) == items[1:]
    assert left(items, unless_passed=False, one_in=1) == items
    changed = ROOT / "interp_toolkit" / "stats.py"
    monkeypatch.setattr(passed_before, "_content", Contents(changed))
    digest.cache_clear()
    assert left(items, unless_passed=True, one_in=1) == items
    digest.cache_clear()


class Contents:
    """The contents of all files, but that one is another than it is."""

    def __init__(self, changed):
        self.changed, self.true = changed, passed_before._content

    def __call__(self, path):
        return b"new" if path == self.changed else self.true(path)

    def cache_clear(self):
        pass


def test_what_passed_while_a_file_was_changed_is_not_recorded(own_cache, monkeypatch):
    recorder = Recorder()
    recorder.pytest_runtest_logreport(Report("tests/test_stats.py::test_a", "setup"))
    monkeypatch.setattr(passed_before, "_content", Contents(ROOT / "interp_toolkit" / "stats.py"))
    for when in PHASES[1:]:
        recorder.pytest_runtest_logreport(Report("tests/test_stats.py::test_a", when))
    recorder.pytest_sessionfinish()
    assert records() == {}
    digest.cache_clear()


def test_a_draw_is_the_same_twice_and_about_one_in_n(own_cache):
    items = [Item(f"tests/test_stats.py::test_{n}") for n in range(2000)]
    drawn = left(items, unless_passed=True, one_in=10)
    assert drawn == left(items, unless_passed=True, one_in=10)
    assert 140 <= len(drawn) <= 260  # 200, and more than four standard deviations


def test_damaged_records_are_none(own_cache):
    path = passed_before.record_file()
    path.parent.mkdir(parents=True)
    path.write_text("{")
    assert records() == {}
