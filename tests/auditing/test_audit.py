"""Audits as a whole: seals, corrections, rows, what the result holds."""

import json

import numpy as np
import pytest

import interp_toolkit as it
from interp_toolkit.auditing.claims.kinds import as_claim
from interp_toolkit.auditing.claims.seal import read_seal, write_seal
from interp_toolkit.auditing.context import MADE_ROWS, audit_context
from interp_toolkit.circuits.metrics import task_check
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.report.html import to_json
from interp_toolkit.toys.hand_set.induction import induction

CLAIM = {"heads": ["L1H0"], "relation": "induction", "says": "attends"}


@pytest.fixture(scope="module")
def model():
    return induction(32, 24)


def test_a_sealed_audit_says_which_claims_were_sealed(tmp_path, model):
    sealed = write_seal([as_claim(CLAIM)], tmp_path / "s.json", seed=3, level=0.01)
    assert read_seal(tmp_path / "s.json") == sealed
    found = it.audit(model, ["L0H1 attends to the previous token"], sealed=sealed)
    assert [claim.sealed for claim in found.claims] == [True, False]
    assert found.evidence.seal == sealed.sha256
    assert found.evidence.level == 0.01
    assert found.provenance.seed == 3
    assert any("1 of 2 claims were sealed" in note for note in found.notes)


@pytest.mark.parametrize("change", ["seed", "level", "claims", "plan", "sealed_at"])
def test_a_seal_shows_every_change(tmp_path, change, texts):
    path = tmp_path / "s.json"
    write_seal([as_claim(CLAIM)], path)
    content = json.loads(path.read_text())
    content[change] = 1 if change != "claims" else [CLAIM | {"says": "carries"}]
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, check=texts):
        read_seal(path)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"schema": "interp-toolkit/seal/1"}', "[" * 9999),
        *(  # one of them is read, and too deep to be written for its hash
            f'{{"schema": "interp-toolkit/seal/1", "x": {"[" * deep}{"]" * deep}}}'
            for deep in range(880, 1_000)
        ),
    ],
)
def test_what_is_no_seal(tmp_path, text):
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(InputError):
        read_seal(path)


def test_the_plan_tells_how_sure_each_answer_must_be(tmp_path):
    claims = [as_claim({"heads": ["L1H0", "L0H1"], "relation": "induction"}), as_claim(CLAIM)]
    write_seal(claims, tmp_path / "s.json", level=0.06)
    plan = json.loads((tmp_path / "s.json").read_text())["plan"]
    assert [one["asserts"] for one in plan] == [["there", "matters", "special"]] * 2 + [["there"]]
    assert [one["error_of_a_part"] for one in plan] == pytest.approx([0.02 / 3, 0.02 / 3, 0.02])


def test_more_claims_make_wider_intervals(model):
    few, _ = audit_context(model, None, seed=0, level=0.05, claims=1)
    many, _ = audit_context(model, None, seed=0, level=0.05, claims=10)
    assert many.coverage(2) > few.coverage(2) > few.coverage(1)


def test_copies_of_rows_are_no_more_rows(model, texts):
    rows = np.array([[1, 2, 3, 1, 2, 3], [4, 5, 6, 4, 5, 6]] * 8)
    data = FeatureData(rows, np.zeros((16, 0), bool), ())
    context, notes = audit_context(model, data, seed=0, level=0.05, claims=1)
    assert len(context.data) == 2
    texts(notes)


def test_the_result_is_json_and_a_frame(model):
    found = it.audit(model, [CLAIM])
    document = json.loads(json.dumps(to_json([found]), allow_nan=False))
    (result,) = document["results"]
    assert result["claims"][0]["answer"] == found.claims[0].answer
    assert result["evidence"]["status"] == found.status
    frame = found.to_frame()
    assert set(frame.question) >= {"there", "matters", "special", "sentence"}
    assert found.figures()


def test_the_same_seed_gives_the_same(model):
    first, second = (it.audit(model, [CLAIM], seed=4).to_dict() for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    "more",
    [
        {"level": 0.7},
        {"claims": []},
    ],
)
def test_options_that_cannot_be(model, more, texts):
    claims = more.pop("claims", [CLAIM])
    with pytest.raises(InputError, check=texts):
        it.audit(model, claims, **more)


def test_effort_sets_the_prompts_of_a_large_model_and_quick_knocks_nothing_out(model, monkeypatch):
    claim = "L1H0 is an induction head"
    quick = it.audit(model, claim, effort="quick")
    assert quick.claims[0].answer == "not_testable"
    assert "effort: quick" in json.dumps(quick.to_dict())
    monkeypatch.setattr(task_check, "LARGE", 0.0)
    standard, thorough = (it.audit(model, claim, effort=e) for e in ("standard", "thorough"))
    assert standard.provenance.data["rows"] == task_check.LARGE_ROWS
    assert any("--effort thorough" in note for note in standard.notes)
    assert thorough.provenance.data["rows"] == MADE_ROWS
    assert [one.claims[0].answer for one in (standard, thorough)] == ["confirmed"] * 2


def test_what_was_sealed_is_tested_with_the_effort_it_was_sealed_for(model, tmp_path, texts):
    sealed = write_seal([as_claim(CLAIM)], tmp_path / "s.json")
    with pytest.raises(InputError, check=texts):
        it.audit(model, sealed=sealed, effort="thorough")


def test_many_rows_are_drawn_with_all_that_belongs_to_them(model):
    rows = np.random.default_rng(0).integers(0, 32, (700, 6))
    features = rows[:, :1] % 2 == 1
    data = FeatureData(rows, features, ("odd",), groups=rows[:, 0])
    context, notes = audit_context(model, data, seed=0, level=0.05, claims=1)
    assert notes == ["512 of 700 prompts were sampled"]
    tokens = context.data.token_matrix()
    assert (context.data.features[:, 0] == (tokens[:, 0] % 2 == 1)).all()
    assert (context.groups == tokens[:, 0]).all()


def test_an_effect_of_one_template_alone_is_not_stable(texts):
    from interp_toolkit.auditing.threshold import stable_part

    effect = np.concatenate([np.full(60, 1.0), np.full(20, 0.0)])
    groups = np.repeat(["a", "b", "c", "d"], 20)
    found = stable_part(effect, 0.5, groups, np.random.default_rng(0))
    assert found.answer == "undecided"
    texts(found.summary)
    assert stable_part(effect, 0.5, None, np.random.default_rng(0)).answer == "confirmed"


def test_claims_beside_sealed_ones_do_not_change_their_answers(tmp_path, model):
    sealed = write_seal([as_claim(CLAIM)], tmp_path / "s.json")
    alone = it.audit(model, sealed=sealed).claims[0]
    more = [{"heads": [f"L{n}H{h}"], "relation": "induction", "says": "attends"}
            for n in (0, 1) for h in (0, 1)]  # fmt: skip
    beside = it.audit(model, more, sealed=sealed)
    assert beside.claims[0] == alone
    assert "over 1 and 4 claims" in beside.evidence.correction


@pytest.mark.parametrize("level", [0.0, 0.5, 0.9, float("nan")])
def test_no_audit_is_sealed_with_a_level_out_of_range(tmp_path, level):
    with pytest.raises(InputError, match=r"must lie between 0 and 0\.5"):
        write_seal([as_claim(CLAIM)], tmp_path / "s.json", level=level)
    assert not (tmp_path / "s.json").exists()


def test_a_seal_is_not_replaced_and_its_plan_is_kept_to(tmp_path, texts):
    path = tmp_path / "s.json"
    write_seal([as_claim(CLAIM)], path)
    with pytest.raises(InputError, match="already exists"):
        write_seal([as_claim(CLAIM)], path)
    from interp_toolkit.auditing.claims.seal import _digest

    content = json.loads(path.read_text())
    for version in (content["version"], "0.0.1"):
        forged = content | {"plan": [content["plan"][0] | {"error_of_a_part": 1e-9}]}
        forged["version"] = version
        path.write_text(json.dumps(forged | {"sha256": _digest(forged)}))
        with pytest.raises(InputError, match=rf"its plan \(version {version}\) differs from how"):
            read_seal(path)
    path.write_text(json.dumps(content | {"exhaustive": True}))
    with pytest.raises(InputError, match="no longer supported"):
        read_seal(path)
    named = content | {"claims": [{"circuit": "e.json"}]}
    path.write_text(json.dumps(named | {"sha256": _digest(named)}))
    with pytest.raises(InputError, check=texts):
        read_seal(path)
    for claims in ([[1, 2]], ["L0H1 attends to the previous token"], {"a": 1}, 3):
        odd = content | {"claims": claims}
        path.write_text(json.dumps(odd | {"sha256": _digest(odd)}))
        with pytest.raises(InputError, check=texts):
            read_seal(path)


def test_rows_that_ask_something_else_are_no_copies(model, texts):
    rows = np.array([[1, 2, 3, 1, 2, 3]] * 3)
    data = FeatureData(rows, np.zeros((3, 0), bool), (), answers=np.array([1, 2, 1]))
    context, notes = audit_context(model, data, seed=0, level=0.05, claims=1)
    assert len(context.data) == 2
    texts(notes)


@pytest.mark.parametrize("coverage", [0.95, 0.999])
def test_the_behaviours_own_interval_is_corrected_too(coverage):
    """A share of a behavior errs by both: at every level no more often than it says."""
    from interp_toolkit.auditing.context import AuditContext
    from interp_toolkit.circuits.metrics.task import TaskCheck
    from interp_toolkit.stats import estimate

    class Task:
        def interval(self, values, at):
            return estimate(values, at)

    rng, runs, n, wrong = np.random.default_rng(3), 3000, 64, 0
    for _ in range(runs):
        whole = 1.0 + rng.standard_normal(n)
        lost = 0.5 * (1.0 + rng.standard_normal(n))  # half of the behavior, told apart from it
        checked = TaskCheck(True, estimate(whole, 0.95), 0.0, 0.0, "", "", whole)
        context = AuditContext(None, None, 0, 0.05, 1)
        known = {"task": (Task(), None), "task_check": checked, "readings": whole[:, None]}
        context.__dict__.update(known)
        wrong += context.share(lost, coverage).low > 0.5
    error = (1 - coverage) / 2
    assert wrong / runs <= error + 4 * np.sqrt(error / runs)
