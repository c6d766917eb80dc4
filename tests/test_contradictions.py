"""A machine reads results against their own records, and objects where these are altered."""

import copy
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from contradictions import contradictions, contradictions_in
from golden import FOLDER
from planted_roles import movers, noisy_movers, rows
from records import record

import interp_toolkit as it
from interp_toolkit.circuits.edges import screened, search
from interp_toolkit.circuits.edges.checks import Checks
from interp_toolkit.data import FeatureData
from interp_toolkit.toys.hand_set.untrained import random_model

GOLDEN = sorted(FOLDER.rglob("*.ambr"))
CASES = [
    ("toy:xor-2head", "xor"),
    ("toy:xor-1head", "xor"),
    ("toy:xor-1head", "and"),
    ("toy:induction", "heads"),
    ("toy:induction-trained", "heads"),
    ("toy:decoy", "heads"),
    ("toy:induction", "circuit"),
    ("toy:induction", "composition"),
    ("toy:induction-trained", "composition"),
    ("toy:induction", "logit-attribution"),
    ("toy:induction-trained", "logit-attribution"),
    ("toy:induction-trained", "patching"),
    ("toy:induction", "collapse"),
    ("toy:skip-bigrams", "skip-bigrams"),
    ("toy:sort-argmax", "sorting"),
]


@pytest.fixture(scope="module")
def recorded(analyzed):
    """The plain record of an analysis of a toy, or of roles."""
    made = {}

    def of(model, name):
        if (model, name) not in made:
            result = roles(model) if name == "roles" else analyzed(model, name)
            made[model, name] = record(result)
        return copy.deepcopy(made[model, name])

    return of


def roles(name):
    prompts = rows(32, 0)
    data = FeatureData(
        prompts.tokens.numpy(),
        prompts.tokens.numpy()[:, :0].astype(bool),
        (),
        answers=prompts.answers.numpy(),
        wrong=prompts.wrong.numpy(),
        source="planted",
    )
    model = movers() if name == "movers" else noisy_movers(0.05, 1)
    return it.analyze(model, "roles", data=data)


@pytest.mark.parametrize(("model", "name"), [*CASES, ("movers", "roles"), ("noisy", "roles")])
def test_results_say_what_their_records_hold(model, name, recorded):
    assert contradictions(recorded(model, name)) == []


def setting(*path, to):
    """An alteration: one value of the record is another."""

    def altered(plain):
        *steps, last = path
        at = plain
        for step in steps:
            at = at[step]
        at[last] = to(at[last]) if callable(to) else to

    return altered


def with_headline(text):
    return setting("result", "headline", to=text)


def raise_another_effect(plain):
    """The head with the smallest effect alone has the largest."""
    same = [h for h in plain["result"]["heads"] if h["own"] and h["detector"] == "induction"]
    least = min(same, key=lambda head: head["own"]["mean"][0])
    least["own"] = {way: [9.0, 8.0, 10.0] for way in least["own"]}


def largest_elsewhere(plain):
    """The strongest composition is another pair's."""
    pairs = plain["result"]["pairs"]
    pairs[-1]["score"], pairs[-1]["p_adjusted"] = 9.0, 1e-9


def sorted_up(edges):
    return sorted(edges, key=lambda edge: abs(edge["effect"]))


EVIDENCE = ("result", "evidence")
ALTERED = [
    ("toy:xor-2head", "xor", setting("result", "sites", 0, "labelings", to=None)),
    ("toy:xor-2head", "xor", setting("result", "heads", 0, "status_ablated", to="separable")),
    ("toy:xor-2head", "xor", setting(*EVIDENCE, "reason", to="a control failed")),
    ("toy:xor-2head", "xor", setting("result", "status", to="undecided")),
    ("toy:xor-1head", "xor", setting("result", "sites", 0, "status", to="separable")),
    ("toy:induction", "heads", setting("result", "heads", to=lambda heads: heads[:0])),
    ("toy:induction", "circuit", setting("result", "edges", to=lambda edges: edges[1:])),
    ("toy:induction", "circuit", setting("result", "edges", to=sorted_up)),
    ("toy:induction", "circuit", setting(*EVIDENCE, "edges", to=7)),
    ("toy:induction", "circuit", setting(*EVIDENCE, "faithfulness_low", to=0.3)),
    ("toy:induction", "circuit", setting(*EVIDENCE, "rivals_as_good", to=3)),
    ("toy:induction", "circuit", setting(*EVIDENCE, "best_rival_keeps", to=2.0)),
    ("toy:induction-trained", "composition", setting(*EVIDENCE, "significant", to=77)),
    ("toy:induction-trained", "composition", largest_elsewhere),
    ("movers", "roles", with_headline("L1H3 writes most, with no role shown.")),
]


@pytest.mark.parametrize(("model", "name", "alter"), ALTERED)
def test_what_altered_records_contradict_is_objected_to(model, name, alter, recorded):
    plain = recorded(model, name)
    alter(plain)
    assert contradictions(plain)


def test_a_detected_head_has_a_significant_attention(recorded):
    plain = recorded("toy:induction", "heads")
    for head in plain["result"]["heads"]:
        head["deciding_p"] = 0.077
    assert contradictions(plain)


def test_the_strongest_of_a_kind_has_the_largest_effect(recorded):
    plain = recorded("toy:induction-trained", "heads")
    before = len(contradictions(plain))
    raise_another_effect(plain)
    assert len(contradictions(plain)) > before


def test_no_head_writes_most_beside_another_that_writes_more(recorded):
    """Once smaller effects of all other heads make it true, nothing is objected to."""
    plain = recorded("movers", "roles")
    plain["result"]["headline"] = "L1H3 writes most, with no role shown."
    assert contradictions(plain)
    [figure] = [f for f in plain["figures"] if f["title"] == "Direct effects"]
    effects = figure["plot"]["data"][0]["z"]
    for layer, heads in enumerate(effects):
        effects[layer] = [0.0 if (layer, head) != (1, 3) else z for head, z in enumerate(heads)]
    assert contradictions(plain) == []
    effects[0][0] = -2 * effects[1][3]
    assert contradictions(plain)


def read_on_held_out_rows():
    """Sixty tokens in 96 dimensions: any labels separate them; half share a direction."""
    model = random_model(0, n_layers=1, d_model=96, d_vocab=64, n_ctx=2)
    tokens = np.stack([np.random.default_rng(1).integers(0, 64, 60), np.arange(60)], axis=1)
    first = np.arange(60) % 2 == 0
    second = np.random.default_rng(2).random(60) < 0.5
    with torch.no_grad():
        model.embed.W_E[:60][torch.from_numpy(first), 0] += 6.0 * model.embed.W_E.std()
    data = FeatureData(tokens, np.stack([first ^ second, second], axis=1), ("a", "b"))
    return it.analyze(model, "boolean", data=data, table="0110", hooks="blocks.0.hook_resid_pre")


def test_where_any_labels_separate_what_is_shown_is_that_held_out_rows_are_read():
    result = read_on_held_out_rows()
    assert result.sites[0].separability.chance > 0.99
    assert result.status == "detected"
    plain = record(result)
    assert contradictions(plain) == []
    plain["result"]["headline"] = "XOR is linearly separable at blocks.0.hook_resid_pre."
    assert contradictions(plain)
    plain = record(result)
    plain["result"]["sites"][0]["held_out"]["p_value"] = 0.3
    assert contradictions(plain)


CLAIMS = [
    {"heads": ["L1H0", "L0H1"], "relation": "induction"},
    {"circuit": ["L0H0->L1H0<k>", "input->L1H0<v>"], "says": "sufficient"},
]


@pytest.fixture(scope="module")
def audited():
    return record(it.audit("toy:induction", CLAIMS))


def alter_answer(plain):
    claim = plain["result"]["claims"][0]
    claim["answer"] = "refuted" if claim["answer"] == "confirmed" else "confirmed"


def alter_interval(plain):
    for claim in plain["result"]["claims"]:
        for part in claim["parts"]:
            if part["question"] == "matters":
                part["low"], part["high"] = part["bound"] - 0.01, part["bound"] + 0.01


def alter_wording(plain):
    """As it was: a claim's own knockout is forgotten."""
    for part in plain["result"]["claims"][0]["parts"]:
        if part["question"] == "sentence":
            part["summary"] = "'is' is interventional, the tests were observational. Supported: -"


def test_an_audit_says_what_its_parts_hold(audited):
    assert contradictions(audited) == []


@pytest.mark.parametrize("alter", [alter_answer, alter_interval, alter_wording])
def test_altered_parts_of_an_audit_are_objected_to(alter, audited):
    plain = copy.deepcopy(audited)
    alter(plain)
    assert contradictions(plain)


@pytest.fixture(scope="module")
def quick():
    """A circuit by estimates alone, of a model small enough to be quick."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "MANY", 0)
        patch.setattr(screened, "FEWEST_NODES", 1)
        patch.setattr(screened, "FEWEST_EDGES", 2)
        return record(it.analyze("toy:induction", "circuit", effort="quick"))


def test_edges_that_were_not_ablated_are_not_said_to_matter(quick):
    assert quick["result"]["evidence"]["edges_ablated_one_by_one"] == 0
    assert contradictions(quick) == []
    plain = copy.deepcopy(quick)
    of = plain["result"]["evidence"]["edges"]
    count = len(plain["result"]["edges"])
    plain["result"]["headline"] = f"{count} of {of} edges matter for the task."
    assert contradictions(plain)


def test_circuits_that_were_not_compared_are_not_too_few(quick):
    """Where none is compared by design, the reason names no number."""
    evidence = quick["result"]["evidence"]
    assert not evidence["rivals"]
    assert "0" not in evidence["reason"]
    plain = copy.deepcopy(quick)
    plain["result"]["evidence"]["reason"] = "too few other circuits (0)"
    assert contradictions(plain)
    control = Checks.control(SimpleNamespace(exchanged=[], random=[]), 1.0)
    assert not control.counts
    assert "0" not in control.reason


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_numbers_of_golden_texts_agree(file):
    """Intervals hold their estimates, parts are no more than wholes, p-values fit their words."""
    text = re.sub(r"\s+", " ", file.read_text(encoding="utf-8"))
    for sentence in re.split(r"(?<=[.!?]) (?=[A-Z•])|# ---", text):
        assert contradictions_in(sentence) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("It removes 12 % [3, 9] of the metric", 1),
        ("5 of 3 heads", 1),
        ("1,204 of 1,203 edges", 1),
        ("not significant against shuffled labels (p = 0.01)", 1),
        ("significantly more (p = 0.2)", 1),
        ("It removes 12 % [3, 29]; 3 of 3 heads; not significant (p = 0.2)", 0),
    ],
)
def test_numbers_that_contradict_each_other_are_objected_to(text, count):
    assert len(contradictions_in(text)) == count
