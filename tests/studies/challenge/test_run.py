"""The whole: what tools are told, how they are scored, what becomes of those that raise."""

import dataclasses
import functools
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from interp_studies.challenge.families.planted import planted_case
from interp_studies.challenge.families.twins import adding_case, sorting_case, twin_case
from interp_studies.challenge.question import KINDS, questions_of
from interp_studies.challenge.result import as_markdown
from interp_studies.challenge.run import answers_on, run_challenge
from interp_studies.challenge.suite import builder
from interp_studies.challenge.tools.attribution import HALF, AttributionPatching
from interp_studies.challenge.tools.detect_head import DetectHead
from interp_studies.challenge.tools.ours import Ours
from interp_studies.challenge.tools.tool import checked, find_tool
from interp_toolkit.errors import InputError
from interp_toolkit.report.html import write_json, write_report

QUICK = ["xor", "bigrams", "planted"]
HAS_TRACR = find_spec("tracr") is not None


def weight_of(model):
    """A figure that two models hardly share."""
    return sum(float(p.detach().double().abs().sum()) for p in model.parameters())


class Oracle:
    """Knows the truth, since a test gives it."""

    def __init__(self, cases, wrong=False):
        self.cases, self.wrong = {weight_of(case.model): case for case in cases}, wrong

    def score(self, model, question):
        for asked in questions_of(self.cases[weight_of(model)]):
            same = asked.question.kind == question.kind and asked.question.about == question.about
            if same and len(asked.question.items) == len(question.items):
                return [float(truth != self.wrong) for truth in asked.truths]
        raise AssertionError(question.kind)


@pytest.fixture(scope="module")
def cases():
    of_programs = []
    if HAS_TRACR:
        from interp_studies.challenge.families.compiled import compiled_case

        of_programs = [compiled_case("1-hop", 3), twin_case("with a backdoor", 2)]
    return [
        *of_programs,
        planted_case("redundant, 2", "pointer", 4),
        sorting_case("argmax_piecewise_linear", 2),
        adding_case("clock", 2),
        *builder("superposed")(1, 6),
        *builder("xor")(1, 2),
        *builder("bigrams")(1, 1),
    ]


def test_every_kind_is_asked_and_half_of_no_kind_is_unasked(cases):
    asked = [one for case in cases for one in questions_of(case)]
    assert {one.question.kind for one in asked} == set(KINDS) - (
        set() if HAS_TRACR else {"backdoor"}
    )
    for kind in set(KINDS) - {"backdoor"}:
        truths = [t for one in asked if one.question.kind == kind for t in one.truths]
        assert set(truths) == {True, False}


def test_questions_hold_no_truth(cases):
    forbidden = {"truth", "truths", "reads", "carries", "readable", "present", "seed", "variant"}
    for case in cases:
        assert not hasattr(case.model, "ground_truth")
        for asked in questions_of(case):
            question = asked.question
            assert not forbidden & {f.name for f in dataclasses.fields(question)}
            for item in question.items:
                assert not forbidden & set(getattr(item, "__dict__", {}))
            if len(set(asked.truths)) == 2 and question.kind in ("edge", "pair", "direction-reads"):
                # the order gives nothing away: never all the true ones first
                assert list(asked.truths) != sorted(asked.truths, reverse=True)


def test_an_oracle_is_right_and_its_opposite_wrong(cases):
    answers = {
        wrong: [
            a for case in cases for a in answers_on(case, {"o": lambda w=wrong: Oracle(cases, w)})
        ]
        for wrong in (False, True)
    }
    for wrong, found in answers.items():
        assert [a.failed for a in found] == [None] * len(found)
        for a in found:
            assert all((p == t) is not wrong for t, p in zip(a.truths, a.stated, strict=True))


def test_a_wrong_tool_scores_badly():
    def always(model, question):
        return [1.0] * len(question.items)

    card = run_challenge({"always": always}, models=3, families=["bigrams"], seed=5)
    [one] = card.by_kind
    assert one.recall == 1
    assert one.precision == pytest.approx(one.true / one.items)
    assert one.brier > one.reference
    assert [s.what for s in card.weak_spots] == ["precision"] * len(card.weak_spots)
    assert card.weak_spots


def test_a_tool_that_raises_is_recorded(capsys, texts):
    def broken(model, question):
        raise RuntimeError("out of ideas")

    def long(model, question):
        return [0.5]

    def wild(model, question):
        return [2.0] * len(question.items)

    tools = {"broken": broken, "long": long, "wild": wild}
    card = run_challenge(tools, models=2, families=["xor"])
    reasons = {tool: reason for tool, _, reason in card.failures}
    texts(reasons["broken"])
    assert "answers to" in reasons["long"]
    texts(reasons["wild"])
    assert {one.answered for one in card.by_kind} == {0}
    assert "out of ideas" in as_markdown(card)


def test_the_card_is_the_same_again_and_other_with_another_seed(tmp_path):
    def guess(model, question):
        drawn = np.random.default_rng(len(question.items)).random(len(question.items))
        return [float(p) for p in drawn]

    cards = [
        run_challenge({"guess": guess}, models=6, families=QUICK, seed=seed) for seed in (3, 3, 4)
    ]
    one, again, other = ([(a.seed, a.truths, a.stated) for a in c.answers] for c in cards)
    assert one == again != other
    assert cards[0].evidence.public is False
    assert cards[0].to_frame().shape[0] == cards[0].evidence.items
    write_json([cards[0]], tmp_path / "card.json")
    write_report([cards[0]], tmp_path / "card.html")
    assert "Reliability" in (tmp_path / "card.html").read_text(encoding="utf-8")


def test_rows_are_counted_and_no_hook_stays():
    case = builder("xor")(0, 1)
    case = next(case)

    def twice(model, question):
        tokens = torch.from_numpy(question.data.token_matrix())
        model(tokens), model(tokens[:3])
        return None

    [found] = answers_on(case, {"twice": lambda: type("T", (), {"score": staticmethod(twice)})()})
    assert found.rows == 7
    assert not case.model._forward_pre_hooks


def test_a_tool_that_spoils_the_model_spoils_its_own_copy():
    def spoil(model, question):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        return None

    case = next(builder("xor")(0, 1))
    before = weight_of(case.model)
    answers_on(case, {"spoil": lambda: type("T", (), {"score": staticmethod(spoil)})()})
    assert weight_of(case.model) == before > 0


def test_a_tool_of_ones_own_is_imported_on_request(tmp_path, monkeypatch):
    (tmp_path / "my_tools.py").write_text(
        "def score(model, question):\n    return [0.25] * len(question.items)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    made = find_tool("my_tools:score")
    assert "my_tools" in sys.modules
    case = next(builder("xor")(0, 1))
    [answer] = answers_on(case, {"mine": made})
    assert set(answer.stated) == {0.25}


class Half:
    """A tool that says 0.5."""

    def score(self, model, question):
        return [0.5] * len(question.items)


def half(model, question):
    return Half().score(model, question)


def failing():
    raise OSError("no weights\nin the folder")


class Needy(Half):
    def __init__(self, path):
        self.path = path


class Closed(Half):
    def __init__(self):
        raise RuntimeError("closed today")


@pytest.mark.parametrize(
    "given",
    [Half, Half(), half, lambda: Half(), functools.partial(Half), lambda *given: half(*given)],
    ids=["class", "object", "function", "function that makes", "partial", "any arguments"],
)
def test_every_form_of_a_tool_answers(given):
    card = run_challenge({"mine": given}, models=1, families=["xor"])
    assert card.failures == []
    assert {one.abstained for one in card.by_kind} == {0}


@pytest.mark.parametrize(
    "given",
    [
        Closed,
        Needy,
        failing,
        lambda: 3,
        dict,
        lambda model: None,
    ],
)
def test_what_makes_no_tool_is_one_clear_line(given, texts):
    with pytest.raises(InputError, check=texts) as told:
        run_challenge({"mine": given}, models=1, families=["xor"])
    assert "\n" not in str(told.value)


def test_no_tool_sees_what_another_has_changed():
    """Nor what it has changed itself in an earlier question."""
    seen = []

    def spoil(model, question):
        data = question.data
        sums = [int(row.sum()) for row in data.tokens] + [float(data.features.sum())]
        sums += [float(np.abs(getattr(i, "vector", np.ones(1))).sum()) for i in question.items]
        seen.append(sums)
        for row in (*data.tokens, data.features):
            row[...] = 0
        for item in question.items:
            if hasattr(item, "vector"):
                item.vector[...] = 0.0
        question.context["spoilt"] = "yes"
        return None

    for family in ("xor", "superposed"):
        case = next(builder(family)(0, 1))
        seen.clear()
        untouched = [a.question for a in questions_of(case)]
        answers = answers_on(case, {"one": lambda: Tooled(spoil), "two": lambda: Tooled(spoil)})
        assert [a.failed for a in answers] == [None] * len(answers)
        assert seen[::2] == seen[1::2]
        assert len(seen) == 2 * len(untouched)
        assert all(sums[0] > 0 for sums in seen)
        assert all(int(q.data.tokens[0].sum()) == seen[0][0] for q in untouched)
        assert "spoilt" not in case.context


class Tooled:
    """A tool of a function."""

    def __init__(self, function):
        self.score = function


@pytest.mark.parametrize(
    "name", ["nothing", "no_such_module:f", "math:no_such", "math:pi", ":", ""]
)
def test_what_is_no_tool_is_one_clear_line(name):
    with pytest.raises(InputError) as told:
        find_tool(name)
    assert "\n" not in str(told.value)


def test_bad_settings_are_one_clear_line(texts):
    with pytest.raises(InputError, match="seed"):
        run_challenge(seed=-1)
    with pytest.raises(InputError, check=texts):
        run_challenge([])
    with pytest.raises(InputError, check=texts):
        run_challenge({})


def test_probabilities_are_checked():
    assert checked(None, 2) == [None, None]
    assert checked([0, None, np.float32(0.5)], 3) == [0.0, None, 0.5]
    for wrong in ([0.1], [0.1, float("nan")], [0.1, -0.1]):
        with pytest.raises(ValueError, match=r"answers to 2|not a probability"):
            checked(wrong, 2)


@pytest.mark.slow
def test_ours_on_one_model_of_every_kind(cases):
    chosen = ("1-hop", "sorting by a sum's maximum", "one feature", "no AND", "one head")
    some = [case for case in cases if case.variant.startswith(chosen) or case.family == "bigrams"]
    some[0] = dataclasses.replace(some[0], data=some[0].data.at(np.arange(64)))
    found = [a for case in some for a in answers_on(case, {"ours": Ours})]
    assert [a.failed for a in found if a.failed] == []
    by_kind = {}
    for a in found:
        for truth, p in zip(a.truths, a.stated, strict=True):
            if p is not None:
                by_kind.setdefault(a.kind, []).append((p > 0.5) == truth)
    of_programs = {"edge", "head-in-circuit", "head-relation"}
    assert set(by_kind) == set(KINDS) - {"backdoor"} - (set() if HAS_TRACR else of_programs)
    if HAS_TRACR:
        assert np.mean(by_kind["edge"]) > 0.95
    assert np.mean(by_kind["readable"]) > 0.95
    assert np.mean(by_kind["pair"]) > 0.7


def test_detect_head_sees_attention_alone():
    """Of a previous-token head and its decoys, all get the attention they pay, near 1."""
    case = planted_case("undone", "previous-token", 1)
    [asked] = [a for a in questions_of(case) if a.question.kind == "head-relation"]
    stated = DetectHead().score(case.model, asked.question)
    there = case.truth.attends["previous-token"]
    for head, p in zip(asked.question.items, stated, strict=True):
        assert (p > 0.5) is (head in there)
    pytest.importorskip("tracr")
    from interp_studies.challenge.families.compiled import compiled_case

    both_ways = compiled_case("reverse", 1)
    for a in questions_of(both_ways):
        assert DetectHead().score(both_ways.model, a.question) is None


def test_attribution_is_gradient_times_change():
    """Redundant heads' attribution, where the model is linear in what they write: the whole."""
    case = planted_case("one head", "first-token", 3)
    [head] = case.truth.heads
    [asked] = [a for a in questions_of(case) if a.question.kind == "head-in-circuit"]
    stated = AttributionPatching().score(case.model, asked.question)
    by_head = dict(zip(asked.question.items, stated, strict=True))
    # its attention is fixed: all of the difference goes through what it writes, share 1
    assert by_head.pop(head) == pytest.approx(1 / (1 + HALF), abs=1e-3)
    assert max(by_head.values()) < 0.01
    [edges] = [a for a in questions_of(case) if a.question.kind == "edge"]
    stated = AttributionPatching().score(case.model, edges.question)
    for truth, p in zip(edges.truths, stated, strict=True):
        assert p == pytest.approx(1 / (1 + HALF) if truth else 0, abs=1e-2)
