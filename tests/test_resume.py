"""Analyses that were stopped go on from their finished stages, and end as ones that were not."""

import dataclasses
import json
from functools import partial

import numpy as np
import pytest
import torch
from planted_roles import movers, rows

import interp_toolkit as it
from interp_toolkit.auditing import analysis as auditing
from interp_toolkit.circuits.heads import patterns
from interp_toolkit.circuits.heads.attention_knockout import KnockoutRunner
from interp_toolkit.circuits.heads.detectors import as_detector
from interp_toolkit.circuits.roles.causal import RoleChecks
from interp_toolkit.circuits.skip_bigrams import analysis as skip_bigrams_analysis
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.models.running import stages
from interp_toolkit.probes.boolean import analysis as boolean
from interp_toolkit.probes.uand import analysis as uand_analysis

CLAIMS = ["L1H0 is an induction head", "L0H1 is a previous-token head", "L0H0 is an induction head"]


def numbers(result):
    return json.dumps(result.to_dict(), sort_keys=True)


def stopping(after):
    """A progress function that interrupts at the `after`-th step."""
    steps = []

    def progress(step):
        steps.append(step)
        if len(steps) > after:
            raise KeyboardInterrupt

    return progress


def heads(**more):
    return it.analyze("toy:induction", "heads", seed=1, **more)


def xor(**more):
    return it.analyze("toy:xor-2head", "xor", seed=1, **more)


def audit(**more):
    return it.audit("toy:induction", CLAIMS, seed=1, **more)


def sampled(**more):
    """Many rows, on which probes are tested held out."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, 60, (80, 6))
    data = {"tokens": tokens, "features": tokens[:, 1:3] > 30, "names": ["a", "b"]}
    options = {"shuffles": 5, "reinitialisations": 3, "C": 1.0, "position": -1}
    return it.analyze("toy:induction", "xor", data=data, seed=1, **options, **more)


def uand(**more):
    return it.analyze("toy:uand-trained", "uand", **{"seed": 1, **more})


def skip_bigrams(**more):
    return it.analyze("toy:skip-bigrams", "skip-bigrams", **{"seed": 1, **more})


def roles(**more):
    prompts = rows(32, 0)
    tokens = prompts.tokens.numpy()
    about = {"answers": prompts.answers.numpy(), "wrong": prompts.wrong.numpy()}
    data = FeatureData(tokens, tokens[:, :0].astype(bool), (), **about)
    return it.analyze(movers(), "roles", data=data, **{"seed": 1, **more})


RUNS = {
    "heads": heads,
    "xor": xor,
    "sampled": sampled,
    "audit": audit,
    "uand": uand,
    "skip-bigrams": skip_bigrams,
    "roles": roles,
}


@pytest.fixture(scope="module")
def unbroken():
    return {name: numbers(run()) for name, run in RUNS.items()}


def interrupted_times(name, folder, stride):
    """Stop a run after more and more steps until it ends; its result, and how often it stopped."""
    for stops in range(60):
        try:
            return RUNS[name](resume=folder, progress=stopping(2 + stride * stops)), stops
        except KeyboardInterrupt:
            continue
    raise AssertionError("the run does not end")


@pytest.mark.parametrize(
    ("name", "stride"),
    [
        *(("heads", 7), ("xor", 2), ("sampled", 2), ("audit", 9)),
        *(("uand", 3), ("skip-bigrams", 2), ("roles", 2)),
    ],
)
def test_a_run_that_was_stopped_often_ends_as_an_unbroken_one(tmp_path, unbroken, name, stride):
    result, stops = interrupted_times(name, tmp_path, stride)
    assert stops >= 2
    assert numbers(result) == unbroken[name]
    assert all(np.load(path, allow_pickle=False).dtype.kind in "fu" for path in tmp_path.iterdir())


class MeasuredError(Exception):
    pass


def refuse(*arguments, **named):
    raise MeasuredError


@pytest.mark.parametrize(
    ("name", "where", "what"),
    [
        ("heads", KnockoutRunner, "_readings"),
        ("xor", boolean, "measure"),
        ("sampled", boolean, "measure"),
        ("audit", auditing, "_parts"),
        ("heads", patterns._Batch, "read"),
        ("uand", uand_analysis, "measure_site"),
        ("skip-bigrams", skip_bigrams_analysis, "search_view"),
        ("roles", RoleChecks, "_effects"),
    ],
)
def test_a_second_run_measures_nothing_and_another_run_all(
    tmp_path, unbroken, monkeypatch, name, where, what
):
    RUNS[name](resume=tmp_path)
    monkeypatch.setattr(where, what, refuse)
    assert numbers(RUNS[name](resume=tmp_path)) == unbroken[name]
    changed = {
        "heads": lambda: it.analyze("toy:induction", "heads", seed=2, resume=tmp_path),
        "xor": lambda: it.analyze("toy:xor-1head", "xor", seed=1, resume=tmp_path),
        "sampled": lambda: it.analyze("toy:xor-2head", "or", resume=tmp_path),
        "audit": lambda: it.audit("toy:induction", CLAIMS, seed=1, level=0.01, resume=tmp_path),
        **{n: partial(RUNS[n], seed=2, resume=tmp_path) for n in ("uand", "skip-bigrams", "roles")},
    }
    with pytest.raises(MeasuredError):
        changed[name]()


@dataclasses.dataclass(frozen=True)
class Pair:
    left: np.ndarray
    right: tuple[float, str | None]


@dataclasses.dataclass(frozen=True)
class Other:
    left: int = 0


def test_records_are_stored_exactly_and_read_as_named_kinds_only(tmp_path):
    store = stages._Folder(tmp_path, "run")
    arrays = [np.array([[0.1, np.nan], [np.inf, -0.0]]), np.array([True, False]), np.arange(3)]
    value = {"a": [Pair(array, (1 / 3, None)) for array in arrays], "b": (np.float64(0.1), 2)}
    first = stages.structured(store, lambda: "stage", lambda: value, Pair)
    again = stages.structured(store, lambda: "stage", refuse, Pair)
    assert first is value
    assert again["b"] == (0.1, 2)
    for one, other in zip(value["a"], again["a"], strict=True):
        assert type(other) is Pair
        assert other.right == one.right
        assert other.left.dtype == one.left.dtype
        np.testing.assert_array_equal(other.left, one.left)
        assert np.signbit(other.left).tolist() == np.signbit(one.left).tolist()
    with pytest.raises(InputError):
        stages.structured(store, lambda: "stage", refuse, Other)  # another kind of that stage


def test_what_is_no_number_text_or_record_is_not_stored(tmp_path):
    store = stages._Folder(tmp_path, "run")
    for value in (np.array([object()]), {1: 2}, {1, 2}, object()):
        with pytest.raises(TypeError):
            stages.structured(store, lambda: "stage", lambda value=value: [value])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "content", [b"[", b'{"record": ["Pair", {}]}', b'{"record": ["os", {}]}', b'{"a": 1, "b": 2}']
)
def test_a_damaged_record_is_one_line(tmp_path, content):
    store = stages._Folder(tmp_path, "run")
    store("stage", lambda: np.frombuffer(content, dtype=np.uint8))
    with pytest.raises(InputError) as error:
        stages.structured(store, lambda: "stage", refuse, Pair)
    assert "\n" not in str(error.value)


def test_groups_and_names_of_features_tell_runs_apart(tmp_path):
    rng = np.random.default_rng(0)
    tokens, features = rng.integers(1, 20, (40, 6)), rng.integers(0, 2, (40, 2)).astype(bool)
    groups = [np.repeat(np.arange(20), 2), np.tile(np.arange(20), 2)]
    model = it.load("toy:induction-trained")

    def run(group, names, folder=None):
        data = FeatureData(tokens, features, names, groups=group)
        return it.analyze(model, "xor", data=data, reinitialisations=0, resume=folder)

    for group, names in ((groups[0], ("a", "b")), (groups[1], ("a", "b")), (groups[0], ("b", "a"))):
        assert run(group, names, tmp_path).to_dict() == run(group, names).to_dict()


def test_a_hook_that_only_other_prompts_feel_is_noticed(tmp_path):
    rng = np.random.default_rng(1)
    tokens, features = rng.integers(4, 20, (40, 6)), rng.integers(0, 2, (40, 2)).astype(bool)
    tokens[20:, 0] = 3
    data = FeatureData(tokens, features, ("a", "b"))
    model = it.load("toy:induction-trained")
    it.analyze(model, "xor", data=data, reinitialisations=0, resume=tmp_path)
    felt = torch.zeros(len(tokens), dtype=bool)

    def edit(module, inputs, output):
        (ids,) = inputs
        felt[: len(ids)] |= (ids == 3).any(1)
        return output + 0.5 * (ids == 3).any(1)[:, None, None]

    model.embed.register_forward_hook(edit)
    with pytest.raises(InputError, match="hooks"):
        it.analyze(model, "xor", data=data, reinitialisations=0, resume=tmp_path)
    assert felt.any()


def test_what_cannot_be_stored_or_made_is_refused(tmp_path):
    own = dataclasses.replace(as_detector("induction"), name="mine")
    with pytest.raises(InputError, match="resume"):
        it.analyze("toy:induction", "heads", detectors=[own], resume=tmp_path)
    for folder in ("~no-such-user/x", "a\0b"):
        with pytest.raises(InputError, match="resume"):
            it.analyze("toy:induction", "heads", resume=folder)


def test_claims_after_others_tell_the_prompts_that_they_used_themselves(tmp_path):
    head = {"heads": ["L1H0"], "relation": "induction"}
    pair = {"pair": {"head": "L1H0", "key": 3, "query": 4}}
    it.audit("toy:induction", [head, pair], resume=tmp_path)
    claims = [{"pair": {"head": "L1H0", "key": 5, "query": 4}}, pair]
    resumed, fresh = (it.audit("toy:induction", claims, resume=f) for f in (tmp_path, None))
    assert resumed.to_dict() == fresh.to_dict()


@pytest.mark.parametrize(
    "stage",
    [b'{"record":["P",[1,2]]}', b'{"mapping":[1]}', b"[" * 5000, b'{"array":["<f8",[-1],"AA"]}'],
)
def test_damaged_stages_are_refused(tmp_path, stage):
    with stages.resuming(tmp_path):
        store = stages.store_of(
            it.load("toy:xor-2head"), lambda: 0, lambda: torch.tensor([[0, 1, 2]])
        )
        stages.structured(store, lambda: "x", lambda: [1.0])
        (path,) = (p for p in tmp_path.iterdir() if np.load(p).dtype == np.uint8)
        np.save(path, np.frombuffer(stage, dtype=np.uint8))
        with pytest.raises(InputError, match="damaged"):
            stages.structured(store, lambda: "x", lambda: [1.0])
        path.write_bytes(b"\x93NUMPY\x01\x00v\x00{")
        with pytest.raises(InputError, match="delete"):
            stages.structured(store, lambda: "x", lambda: [1.0])
