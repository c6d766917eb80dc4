"""Shapes are checked while the tests run, nothing reaches for a hub; fixtures that all may take."""

import functools
import importlib
import os
import re
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # on tiny tensors threads only wait for each other

sys.path.insert(0, str(Path(__file__).parent / "helpers"))  # modules that tests share

import hypothesis
import passed_before
import pytest
import shape_checks
import torch
from tiny_models import D_VOCAB, HAS_HOOKED_TRANSFORMER, KINDS, OWN_HOOKS, build, hooks_on

pytest.register_assert_rewrite("golden")  # before it is imported, so that failures show both texts
import golden  # noqa: E402

# no test fails on a clock: a busy machine draws and runs examples slowly
hypothesis.settings.register_profile(
    "no clock", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("no clock")
shape_checks.install()


@pytest.fixture(autouse=True)
def _shapes_are_checked_anew():
    shape_checks.begin_test()


@pytest.fixture
def texts(request):
    """`texts(text)` asserts that a complete text is as in `tests/texts`; of an error, its message.

    They are compared where all libraries are the pinned ones, whose words they may quote, and not
    in tests that take long, so that `make texts` takes minutes.
    """
    pinned = HAS_HOOKED_TRANSFORMER and sys.version_info[:2] == (3, 11)
    if not pinned or request.node.get_closest_marker("long"):
        return lambda text, **options: True
    here = request.getfixturevalue("tmp_path_factory").getbasetemp()
    return golden.comparison(request.getfixturevalue("snapshot"), here)


@pytest.fixture(scope="session")
def benchmarks():
    """A module of `benchmarks/` by its name: tests take studies and oracles from there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
        yield importlib.import_module


@pytest.fixture(scope="session")
def analyzed():
    """`analyzed("toy:induction", "heads")`: a result that is made once, and only read."""
    analyze = importlib.import_module("interp_toolkit").analyze

    @functools.cache
    def result(model, name, **options):
        return analyze(model, name, **options)

    return result


@pytest.fixture(scope="session")
def zoo():
    """Kind -> model, made once; tests must leave it as it was."""
    return build


@pytest.fixture(scope="session")
def has_hooked_transformer():
    return HAS_HOOKED_TRANSFORMER


@pytest.fixture(params=list(KINDS))
def model(request):
    return build(request.param)


@pytest.fixture
def tokens():
    return torch.randint(D_VOCAB, (5, 7), generator=torch.Generator().manual_seed(3))


@pytest.fixture
def count_hooks():
    """How many hooks are on a model, beside those it was made with."""
    return lambda model: hooks_on(model) - OWN_HOOKS.get(id(model), 0)


@pytest.fixture
def call(capfd, monkeypatch: pytest.MonkeyPatch):
    """`main(...)` in this process, much faster than a new one: (code, stdout, stderr)."""
    main = importlib.import_module("interp_toolkit.cli.main").main

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["interp", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        out, err = capfd.readouterr()
        return code, out, err

    return run


LONG = 20  # seconds
LONG_TESTS = Path(__file__).with_name("long_tests.txt")

#: a model of ours among a test's parameters, which is the same on every TransformerLens
OF_OUR_OWN = re.compile(r"[\[-]own(-rotary|-bare)?[\]-]")


def pytest_addoption(parser):
    group = parser.getgroup("what is run", "tests that take long (helpers/passed_before.py)")
    group.addoption("--unless-passed", action="store_true", help="not what passed on these files")
    group.addoption("--one-in", type=int, default=1, metavar="N", help="one in N of these")
    group.addoption("--only-texts", action="store_true", help="what compares golden texts")


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(passed_before.Recorder())


def pytest_collection_modifyitems(config, items):
    """Mark long tests, skip GPU tests where there is none; of others' models leave out our own."""
    long = tuple(line.split(": ")[0] for line in LONG_TESTS.read_text().splitlines())
    for item in items:
        if item.nodeid.startswith(long):
            item.add_marker(pytest.mark.long)
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
    if os.environ.get("INTERP_NOT_OWN"):
        own = [item for item in items if OF_OUR_OWN.search(item.nodeid)]
        config.hook.pytest_deselected(items=own)
        items[:] = [item for item in items if not OF_OUR_OWN.search(item.nodeid)]
    if config.option.only_texts:
        items[:] = [item for item in items if "texts" in item.fixturenames]
    options = {"unless_passed": config.option.unless_passed, "one_in": config.option.one_in}
    if options != {"unless_passed": False, "one_in": 1}:
        selected = passed_before.left(items, **options)
        ids = set(map(id, selected))
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in ids])
        items[:] = selected


def pytest_terminal_summary(terminalreporter):
    """Name the tests that took long and have no reason in `long_tests.txt`; nothing fails."""
    for report in terminalreporter.stats.get("passed", []):
        if report.duration > LONG and "long" not in report.keywords:
            terminalreporter.write_line(
                f"{report.nodeid} took {report.duration:.0f} s: make it shorter, or give the "
                f"reason in {LONG_TESTS.name}"
            )
