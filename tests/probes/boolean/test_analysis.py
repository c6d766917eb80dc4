"""The analysis on models: the toys' known answers, sampled data with planted features, errors."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
import torch

import interp_toolkit as it
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.probes.boolean import result as verdict
from interp_toolkit.probes.boolean.analysis import BOOLEAN
from interp_toolkit.probes.boolean.inputs import equal_inputs_at, groups_with
from interp_toolkit.probes.boolean.result import CopyNull, LabelingNull
from interp_toolkit.probes.estimators.separability import check_separability
from interp_toolkit.report.html import to_json
from interp_toolkit.toys.hand_set.untrained import random_model

SITE = "blocks.0.hook_resid_post"
TOKENS = {"0": 0, "1": 1, "query": 2}


def test_two_heads_are_separable_with_the_known_gap(tiny_xor_model, texts) -> None:
    truth = tiny_xor_model.ground_truth
    result = it.analyze(tiny_xor_model, "xor", tokens=TOKENS)
    (site,) = result.sites
    assert (site.hook, site.position, site.function) == (truth.hook, 2, "XOR")
    assert site.status == "separable"
    assert site.margin == pytest.approx(truth.margin, rel=1e-9)
    assert site.accuracy == 1
    normal = np.abs(site.hyperplane.direction)
    np.testing.assert_allclose(normal, [0.5**0.5, 0.5**0.5, 0], atol=1e-6)
    texts(site.theorem)
    assert site.denominator_residual is None
    # 01 and 10 coincide here (no positions), so every other labeling contradicts itself.
    assert site.labelings == LabelingNull(separable=0, tried=4, contradictory=4, as_good=0)
    assert site.separability.n_points == 3


def test_the_score_splits_evenly_over_the_two_heads_and_needs_both(tiny_xor_model) -> None:
    result = it.analyze(tiny_xor_model, "xor", tokens=TOKENS)
    assert [(h.layer, h.head) for h in result.heads] == [(0, 0), (0, 1)]
    for effect in result.heads:
        assert effect.share == pytest.approx(0.5)
        assert effect.contrast == pytest.approx(result.sites[0].margin / 2)
        assert effect.status_ablated == "not_separable"
        assert effect.accuracy_ablated == 0.75
    assert result.headline.endswith("position 2; L0H0 and L0H1 are each necessary.")


def test_one_head_has_the_denominators_as_certificate(tiny_one_head_model) -> None:
    truth = tiny_one_head_model.ground_truth
    result = it.analyze(tiny_one_head_model, "xor", tokens=TOKENS)
    (site,) = result.sites
    assert (site.status, site.basis, site.theorem) == ("not_separable", "points", "applies")
    assert site.denominator_residual < 1e-15
    np.testing.assert_allclose(
        site.denominators.negative_weights, [truth.certificate["00"], truth.certificate["11"]]
    )
    expected = truth.certificate
    weights = site.certificate
    np.testing.assert_allclose(weights.positive_weights, [expected["01"], expected["10"]])
    np.testing.assert_allclose(weights.negative_weights, [expected["00"], expected["11"]])
    assert site.accuracy == 0.75
    assert (site.labelings.separable, site.labelings.tried) == (4, 4)
    assert result.heads == []


@pytest.mark.parametrize(
    ("toy", "probe", "status"),
    [
        ("or-1head", "or", "separable"),
        ("or-1head", "and", "separable"),
        ("and-1head", "and", "separable"),
        ("and-1head", "xor", "not_separable"),
        ("xor-1head", "or", "separable"),
        ("xor-2head", "xor", "separable"),
    ],
)
def test_the_toys(toy: str, probe: str, status: str) -> None:
    result = it.analyze(it.load(f"toy:{toy}"), probe)
    assert [site.status for site in result.sites] == [status]
    assert result.probe == probe


def test_an_mlp_separates_what_its_head_cannot(texts) -> None:
    result = it.analyze(it.load("toy:xor-1head-mlp"), "xor")
    found = {site.hook: site for site in result.sites}
    assert found["blocks.0.hook_resid_mid"].status == "not_separable"
    assert found[SITE].status == "separable"
    texts(found["blocks.0.hook_resid_mid"].theorem)
    assert result.sites[result.focus].hook == SITE


def test_any_truth_table_and_more_features() -> None:
    model = it.load("toy:or-1head")
    assert it.analyze(model, "boolean", table="0100").sites[0].status == "not_separable"
    assert it.analyze(model, "boolean", table="1000").sites[0].status == "separable"
    config = TransformerConfig(
        n_layers=1, d_model=8, n_ctx=4, d_head=4, n_heads=2, d_vocab=3, attn_only=True, seed=0
    )
    three = it.analyze(Transformer(config).eval(), "boolean", table="01101001", tokens=TOKENS)
    assert three.sites[0].n_rows == 8
    assert three.sites[0].status in ("separable", "not_separable")


def test_every_position_and_hook_asked_for(tiny_one_head_model) -> None:
    result = it.analyze(
        tiny_one_head_model,
        "xor",
        tokens=TOKENS,
        hooks=["hook_attn_out", "blocks.*.hook_resid_post"],
        position="all",
    )
    assert len(result.sites) == 6
    claimed = {(s.hook, s.position) for s in result.sites if s.theorem == "applies"}
    assert claimed == {("blocks.0.hook_attn_out", 2), (SITE, 2)}
    with_tail = it.analyze(tiny_one_head_model, "xor", tokens=TOKENS, position=-1)
    assert with_tail.sites[0].position == 2


def test_a_coarse_dtype_is_settled_by_the_theorem_where_the_points_cannot() -> None:
    model = it.load("toy:xor-1head").to(torch.bfloat16)
    (site,) = it.analyze(model, "xor", tokens=TOKENS).sites
    assert site.status == "not_separable"
    assert site.theorem == "applies"
    assert site.certificate is not None


def planted(n: int, seed: int, what: str) -> tuple[Transformer, FeatureData]:
    """A model whose embedding of the last token carries a, b and, perhaps, their XOR."""
    rng = np.random.default_rng(seed)
    features = rng.random((n, 2)) < 0.5
    a, b = features.T
    config = TransformerConfig(
        n_layers=1,
        d_model=12,
        n_ctx=2,
        d_head=4,
        n_heads=1,
        d_vocab=n,
        attn_only=True,
        normalization_type=None,
        seed=seed,
    )
    model = Transformer(config).eval()
    directions = np.linalg.qr(rng.normal(size=(12, 3)))[0].T
    carried = {"xor": a ^ b, "nothing": np.zeros(n, dtype=bool)}[what]
    signs = np.stack([a, b, carried], axis=1) * 2.0 - 1
    embedding = 2 * signs @ directions + rng.normal(size=(n, 12))
    with torch.no_grad():
        model.embed.W_E.copy_(torch.from_numpy(embedding))
    tokens = np.stack([rng.integers(0, n, n), np.arange(n)], axis=1)
    return model, FeatureData(tokens, features, ("a", "b"), source="planted")


def test_sampled_data_is_judged_held_out_against_shuffled_labels(texts) -> None:
    model, data = planted(300, 0, "xor")
    result = BOOLEAN(model, table="0110", data=data)
    (site,) = result.sites
    assert site.held_out.balanced_accuracy > 0.9
    assert site.held_out.p_value == pytest.approx(0.01)
    assert site.held_out.null_balanced_accuracy == pytest.approx(0.5, abs=0.03)
    assert site.controls["a"] > 0.9
    assert site.labelings == LabelingNull(separable=0, tried=20, contradictory=0, as_good=0)
    # The query's embedding carries it all: the probe does as well with the head's mean instead.
    (head,) = result.heads
    assert abs(head.share) < 0.2
    assert head.accuracy_intact > 0.9
    assert head.accuracy_ablated == pytest.approx(head.accuracy_intact, abs=0.05)
    texts(result.verdict)


def test_what_is_not_there_is_not_called_above_chance() -> None:
    model, data = planted(300, 1, "nothing")
    result = BOOLEAN(model, table="0110", data=data)
    (site,) = result.sites
    assert site.held_out.p_value > 0.05
    assert site.held_out.balanced_accuracy < 0.62
    assert site.status == "not_separable"
    assert site.separability.chance < 1e-10
    assert site.controls["a"] > 0.9  # though the features themselves are
    assert (result.status, site.unread) == ("not_separable", ())


@pytest.mark.parametrize("missing", [(0,), (1,), (0, 1)])
def test_features_that_cannot_be_read_do_not_test_their_function(missing) -> None:
    model, data = planted(300, 1, "nothing")
    rng = np.random.default_rng(5)
    features = data.features.copy()
    for number in missing:
        features[:, number] = rng.random(300) < 0.5
    result = BOOLEAN(model, table="0110", data=FeatureData(data.tokens, features, ("a", "b")))
    (site,) = result.sites
    assert site.status == "not_separable"  # a fact about these points
    assert site.unread == tuple("ab"[number] for number in missing)
    assert result.status == "undecided"
    first = BOOLEAN(model, table="0011", data=FeatureData(data.tokens, features, ("a", "b")))
    assert first.sites[0].unread == (("a",) if 0 in missing else ())


def test_the_unit_of_the_activations_does_not_matter() -> None:
    """A probe regularized in the model's own units would find nothing where they are small."""
    found = []
    for size in (1e-4, 1.0, 1e4):
        model, data = planted(300, 0, "xor")
        with torch.no_grad():
            model.embed.W_E.mul_(size)
        hook = "blocks.0.hook_resid_pre"
        (site,) = BOOLEAN(model, table="0110", data=data, hooks=hook, reinitialisations=0).sites
        found.append([site.held_out.balanced_accuracy, site.held_out.auroc])
    np.testing.assert_allclose(found, [found[1]] * 3, atol=1e-3)
    assert found[0][0] > 0.9


def test_rare_labels_are_separable_whatever_they_are(texts) -> None:
    """Cover's chance is of labels that are as often true as false; rare ones separate easily."""
    model, data = planted(100, 0, "nothing")
    rare = np.zeros((100, 2), dtype=bool)
    rare[:5, 0] = True
    with torch.no_grad():
        model.embed.W_E[:5, 0] += 10
    result = BOOLEAN(model, table="0110", data=FeatureData(data.tokens, rare, ("a", "b")))
    (site,) = result.sites
    assert site.status == "separable"
    assert site.separability.chance < 1e-6
    assert site.labelings.separable > 5
    texts(result.verdict)


def test_many_rows_of_few_prompts_are_few_inputs() -> None:
    """Two hundred copies of the truth table say what the truth table does."""
    model = it.load("toy:xor-2head")
    bits = np.random.default_rng(0).random((200, 2)) < 0.5
    tokens = np.column_stack([bits, np.full(200, 2)]).astype(int)
    data = FeatureData(tokens, bits, ("a", "b"))
    (site,) = BOOLEAN(model, table="0110", data=data).sites
    assert (site.held_out, site.n_rows) == (None, 200)
    assert site.outcome == "separable"
    assert site.labelings == it.analyze(model, "xor").sites[0].labelings


@pytest.mark.parametrize("copies", [2, 3])
@pytest.mark.parametrize("tail", [False, True])
def test_copies_of_a_prompt_are_on_one_side(copies: int, tail: bool) -> None:
    """Labels drawn by prompt: prompts as often in both folds would be read off their copies."""
    significant, separable = 0, 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        tokens, bits = rng.integers(0, 16, (60, 6)), rng.random((60, 2)) < 0.5
        tokens, bits = np.tile(tokens, (copies, 1)), np.tile(bits, (copies, 1))
        if tail:  # different only after the position that is read
            tokens = np.column_stack([tokens, rng.integers(0, 16, len(tokens))])
        data = FeatureData(tokens, bits, ("a", "b"), np.full(len(tokens), 5))
        model = random_model(seed, n_layers=1, d_model=16, d_head=4, n_heads=2)
        result = BOOLEAN(
            model, table="0110", data=data, shuffles=19, hooks=SITE, reinitialisations=0
        )
        significant += result.sites[0].held_out.p_value <= 0.05
        separable += result.status == "separable"
    assert significant <= 2  # 0.4 at the level
    assert separable <= 1


def test_groups_of_the_data_are_joined_with_equal_prompts() -> None:
    model, data = planted(120, 3, "xor")
    tokens = np.concatenate([data.token_matrix()[:60]] * 2)
    features = np.concatenate([data.features[:60]] * 2)
    groups = np.arange(120) // 2
    equal = equal_inputs_at(
        model, FeatureData(tokens, features, ("a", "b")), 1, np.arange(120.0)[:, None]
    )
    found = groups_with(equal, groups)
    assert len(np.unique(found)) == 30
    assert (found[:60] == found[60:]).all()
    assert (found[0::2] == found[1::2]).all()
    assert groups_with(np.arange(120), groups) is groups
    assert groups_with(np.arange(120), None) is None


def test_what_re_initialised_models_show_as_well_is_uninformative(texts) -> None:
    """XOR of two random bits is whether the row is long, which any weights show."""
    for seed in range(2):
        rng = np.random.default_rng(seed)
        long, a = rng.random((2, 160)) < 0.5
        tokens = [rng.integers(0, 16, 9 if one else 5) for one in long]
        data = FeatureData(tokens, np.stack([a, a ^ long], axis=1), ("a", "b"))
        model = random_model(seed, n_layers=1, d_model=32)
        result = BOOLEAN(model, table="0110", data=data, shuffles=19, hooks=SITE)
        (site,) = result.sites
        assert site.held_out.p_value <= 0.05
        assert result.status in ("uninformative", "not_separable")
        if site.status == "separable":
            texts(result.verdict)


def test_a_hyperplane_that_nothing_supports_is_not_separable() -> None:
    """Few labels as often true as false, yet held out no better than shuffled ones."""
    model, data = planted(120, 3, "xor")
    (site,) = BOOLEAN(model, table="0110", data=data, hooks="*hook_resid_pre", shuffles=19).sites
    held_out = dataclasses.replace(site.held_out, p_value=0.4)
    unsupported = dataclasses.replace(site, held_out=held_out, labelings=LabelingNull(0, 20, 0, 0))
    if site.status == "separable":
        assert unsupported.outcome == "uninformative"
        assert "shuffled labels" in unsupported.judgement[1]
    pair = check_separability(np.array([[1.0]]), np.array([[0.0]]), precision="float64")
    two = dataclasses.replace(
        site, separability=pair, held_out=None, labelings=LabelingNull(0, 0, 0, 0)
    )
    assert (two.status, two.outcome) == ("separable", "uninformative")


def test_few_points_in_many_dimensions_say_little(texts) -> None:
    rng = np.random.default_rng(3)
    config = TransformerConfig(
        n_layers=1, d_model=96, n_ctx=2, d_head=8, n_heads=2, d_vocab=60, attn_only=True, seed=2
    )
    tokens = np.stack([rng.integers(0, 60, 60), np.arange(60)], axis=1)
    data = FeatureData(tokens, rng.random((60, 2)) < 0.5, ("a", "b"), source="noise")
    result = BOOLEAN(Transformer(config).eval(), table="0110", data=data)
    assert result.sites[0].status == "separable"
    assert result.sites[0].separability.chance == 1
    texts(result.verdict)


def test_contradictions_in_the_data_are_said(texts) -> None:
    model = it.load("toy:xor-2head")
    tokens = np.array([[0, 0, 2], [0, 0, 2], [0, 1, 2], [1, 1, 2]])
    features = np.array([[0, 0], [0, 1], [0, 1], [1, 1]], dtype=bool)
    result = BOOLEAN(model, table="0110", data=FeatureData(tokens, features, ("a", "b")))
    assert result.sites[0].separability.contradictions == 1
    texts(result.verdict)


def test_inputs_that_the_model_merges_are_no_contradiction_in_the_data(texts) -> None:
    result = it.analyze(it.load("toy:and-1head"), "boolean", table="0100")  # 01 but not 10
    assert result.sites[0].separability.contradictions == 1
    texts(result.verdict)


def test_the_same_seed_gives_the_same_result_bit_for_bit() -> None:
    model, data = planted(120, 3, "xor")
    first, second = (
        json.dumps(to_json([BOOLEAN(model, table="0110", data=data, shuffles=19)]))
        for _ in range(2)
    )
    assert first == second


def test_json_is_what_the_interface_says(tiny_xor_model, tiny_one_head_model) -> None:
    document = to_json([it.analyze(tiny_one_head_model, "xor", tokens=TOKENS)])
    assert document["schema"] == "interp-toolkit/3"
    (result,) = document["results"]
    assert result["probe"] == "xor"
    (site,) = result["sites"]
    assert {"hook", "position", "function", "status", "margin", "accuracy"} <= set(site)
    certificate = site["certificate"]
    assert set(certificate) == {"positive_weights", "negative_weights", "residual"}
    assert math.isclose(sum(certificate["positive_weights"]), 1)
    assert isinstance(site["denominator_residual"], float)
    # in the evidence relative to the largest activation, in the certificate in its units
    rows = [[TOKENS[a], TOKENS[b], TOKENS["query"]] for a in "01" for b in "01"]
    _, cache = tiny_one_head_model.run_with_cache(torch.tensor(rows))
    largest = float(cache[site["hook"]][:, site["position"]].norm(dim=-1).max())
    relative = result["evidence"]["certificate_residual"]
    assert relative == pytest.approx(certificate["residual"] / largest, rel=1e-5, abs=0)
    assert abs(largest - 1) > 0.1
    other = to_json([it.analyze(tiny_xor_model, "xor", tokens=TOKENS)])["results"][0]["sites"][0]
    assert other["certificate"] is None
    assert other["denominator_residual"] is None
    assert len(other["hyperplane"]["direction"]) == 3
    json.dumps(document, allow_nan=False)


def test_figures_show_the_witness(tiny_xor_model, tiny_one_head_model) -> None:
    separable = it.analyze(tiny_xor_model, "xor", tokens=TOKENS).figures()[0]
    names = [trace.get("name") for trace in separable.data]
    assert "hyperplane" in names
    points = {t["name"]: t for t in separable.data if t.get("mode") == "markers+text"}
    gap = min(points["XOR = 1"]["x"]) - max(points["XOR = 0"]["x"])
    assert gap == pytest.approx(0.307596 / 2**0.5, abs=1e-6)
    assert points["XOR = 1"]["text"] == ["01, 10"]
    meeting = it.analyze(tiny_one_head_model, "xor", tokens=TOKENS).figures()[0]
    cross = next(t for t in meeting.data if t.get("name") == "the hulls meet")
    mixed = next(t for t in meeting.data if t.get("name") == "XOR = 1")
    assert cross["x"][0] == pytest.approx(np.mean(mixed["x"]))
    assert cross["y"][0] == pytest.approx(np.mean(mixed["y"]), abs=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"tokens": {"0": 0, "1": 9, "query": 2}},
        {"tokens": TOKENS, "position": 7},
        {"tokens": TOKENS, "hooks": "blocks.0.hook_nowhere"},
        {"tokens": TOKENS, "table": "01101"},
        {"tokens": TOKENS, "table": "01101001", "layout": ["a", "b", "query"]},
        {},
    ],
)
def test_bad_input_is_one_clear_line(options, texts) -> None:
    model = it.load("toy:xor-2head")
    fresh = Transformer(model.cfg)  # without a record of its task
    name = "boolean" if "table" in options else "xor"
    with pytest.raises(InputError, check=texts) as caught:
        it.analyze(fresh, name, **options)
    assert "\n" not in str(caught.value)


def test_unknown_names_and_options_are_suggested(texts) -> None:
    model = it.load("toy:xor-2head")
    with pytest.raises(InputError, check=texts):
        it.analyze(model, "xro")
    with pytest.raises(InputError, check=texts):
        it.analyze(model, "xor", positon=1)
    with pytest.raises(InputError, match="takes no option 'table'"):
        it.analyze(model, "xor", table="0111")
    flat = FeatureData(np.zeros((4, 3), dtype=int), np.array([[False, True]] * 4), ("a", "b"))
    with pytest.raises(InputError, match="true on all 4 rows"):
        BOOLEAN(model, table="0110", data=flat)


@pytest.mark.parametrize(
    "training",
    [{"curve": 3}, {"curve": {"step": [0, 1], "loss": [1.0]}}, {"curve": {"step": ["a"]}}, {}],
)
def test_a_malformed_training_record_only_costs_its_figure(training) -> None:
    from interp_toolkit.probes.boolean.analysis import training_curve

    assert training_curve(training) is None
    good = {"curve": {"step": [0, 1], "loss": [1.0, 0.5]}, "loss_floor": "none"}
    assert len(training_curve(good).data) == 1


def test_a_pattern_leaves_masked_scores_out_and_a_name_does_not(tiny_one_head_model, texts) -> None:
    result = it.analyze(tiny_one_head_model, "xor", tokens=TOKENS, hooks="blocks.*", position=1)
    read = [site.hook for site in result.sites]
    assert "blocks.0.attn.hook_pattern" in read
    assert "blocks.0.attn.hook_attn_scores" not in read
    with pytest.raises(InputError, match="hook_attn_scores", check=texts):
        it.analyze(
            tiny_one_head_model,
            "xor",
            tokens=TOKENS,
            hooks="blocks.0.attn.hook_attn_scores",
            position=1,
        )


def test_data_and_tokens_together_are_refused() -> None:
    model, data = planted(60, 4, "xor")
    with pytest.raises(InputError, match="--tokens and --layout make prompts"):
        it.analyze(model, "xor", data=data, tokens=TOKENS)


def test_the_precision_is_said(texts) -> None:
    model = it.load("toy:xor-1head")
    texts(it.analyze(model, "xor").verdict)
    texts(it.analyze(model.to(torch.float32), "xor").verdict)


def test_controls_on_sampled_data_are_balanced() -> None:
    """AND is rare: the accuracy of always saying no would flatter a probe that reads nothing."""
    model, data = planted(400, 5, "nothing")
    rare = np.asarray(data.features).copy()
    rare[:, 0] &= np.random.default_rng(5).random(400) < 0.1
    noise = FeatureData(data.tokens, rare, ("a", "b"), source="rare")
    with torch.no_grad():
        model.embed.W_E.normal_(generator=torch.Generator().manual_seed(0))
    (site,) = BOOLEAN(model, table="0110", data=noise, shuffles=9).sites
    error = np.sqrt(0.25 / rare.all(axis=1).sum()) / 2  # of the share of the few that are true
    assert site.controls["AND"] == pytest.approx(0.5, abs=3 * error)


@pytest.mark.parametrize(("kind", "split"), [("xor", True), ("nothing", False)])
def test_the_score_of_a_probe_that_reads_nothing_is_not_split(kind: str, split: bool) -> None:
    model, data = planted(200, 5, kind)
    result = BOOLEAN(model, table="0110", data=data, shuffles=39, reinitialisations=0)
    assert bool(result.heads) == split


def test_no_shuffles_are_none() -> None:
    model, data = planted(120, 3, "xor")
    without, some = (
        BOOLEAN(model, table="0110", data=data, shuffles=n, reinitialisations=0).sites[-1]
        for n in (0, 9)
    )
    assert without.status == some.status
    assert without.accuracy == pytest.approx(some.accuracy)


def test_what_any_labels_would_show_is_uninformative(texts, analyzed) -> None:
    result = analyzed("toy:xor-1head", "and")
    (site,) = result.sites
    assert (site.status, site.outcome) == ("separable", "uninformative")
    assert (site.labelings.separable, site.labelings.tried) == (3, 3)
    assert result.status == "uninformative"
    texts(result.evidence.reason)
    texts(result.headline)
    assert result.to_dict()["sites"][0]["explained_by_null"] is True


def test_what_other_labels_do_not_show_is_no_matter_of_the_null(texts, analyzed) -> None:
    result = analyzed("toy:xor-2head", "xor")
    assert result.status == "separable"
    assert result.evidence.reason is None
    assert result.evidence.labelings.contradictory == 4
    texts(result.verdict)
    no = analyzed("toy:xor-1head", "xor")  # no null makes a certificate worth less
    assert (no.status, no.sites[0].explained_by_null) == ("not_separable", False)


def test_on_sampled_data_a_probe_that_beats_shuffled_labels_is_informative() -> None:
    """In enough dimensions any labels separate; rows held out tell."""
    model, data = planted(120, 3, "xor")
    (site,) = BOOLEAN(model, table="0110", data=data, hooks="*hook_resid_pre", shuffles=19).sites
    every = dataclasses.replace(site, labelings=LabelingNull(20, 20, 0, 20))
    for status, p_value, outcome in (
        ("separable", 0.01, "detected"),
        ("separable", 0.3, "uninformative"),
        ("separable", math.nan, "uninformative"),
    ):
        held_out = dataclasses.replace(site.held_out, p_value=p_value)
        separability = dataclasses.replace(site.separability, status=status)
        judged = dataclasses.replace(every, held_out=held_out, separability=separability)
        assert judged.outcome == outcome


def test_accuracy_with_all_heads_is_a_share_and_no_count(analyzed) -> None:
    result = analyzed("toy:xor-2head", "xor")
    table = result.tables()[-1]
    assert table.columns[-1] == "all heads"
    assert [row[-1] for row in table.rows] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("as_good", "separable", "tried", "outcome"),
    [
        (2, 68, 68, "passed"),  # p = 3 / 69
        (3, 68, 68, "failed"),  # p = 4 / 69
        (44, 60, 68, "failed"),
        (0, 3, 4, "powerless"),  # p cannot fall below 1 / 5
        (3, 3, 4, "powerless"),
        (0, 4, 4, "failed"),  # all are separable
    ],
)
def test_other_labelings_with_as_large_a_margin_explain_a_separable_function(
    as_good, separable, tried, outcome, analyzed
) -> None:
    (site,) = analyzed("toy:xor-1head", "and").sites
    null = LabelingNull(separable, tried, 0, as_good)
    assert dataclasses.replace(site, labelings=null)._labels_control().outcome == outcome


@pytest.mark.parametrize(
    ("best", "status"),
    [
        ((0.0,) * 39, "separable"),
        ((0.0,) * 38 + (9.0,), "uninformative"),
        ((0.0,) * 38, "undecided"),  # p cannot fall below 1 / 39
        ((0.0, 0.16616323664505872 * (1 - 1e-9)), "uninformative"),  # its own, but for rounding
        ((), "undecided"),
    ],
)
def test_nothing_is_confirmed_without_copies_of_which_none_is_as_good(
    best, status, analyzed
) -> None:
    (site,) = analyzed("toy:xor-2head", "xor").sites
    null = CopyNull(0, len(best), best)
    assert dataclasses.replace(site, reinitialised=null).outcome == status


@pytest.mark.parametrize("table", ["01101001", "00010111"])
def test_untrained_models_are_seldom_said_to_separate_all_inputs(table) -> None:
    """Embeddings drawn at random separate many labelings of eight points in four dimensions."""
    bits = np.array(list(itertools.product([0, 1], repeat=3)), dtype=bool)
    data = FeatureData(np.arange(8)[:, None], bits, ("a", "b", "c"))
    said = 0
    for seed in range(20):
        model = random_model(seed, n_layers=1, d_model=4, n_heads=1, d_head=4, d_vocab=8, n_ctx=2)
        result = BOOLEAN(model, table=table, data=data, hooks="hook_embed", seed=seed)
        said += result.status == "separable"
    assert said <= 2


def test_the_reason_says_no_more_than_the_null(analyzed) -> None:
    (site,) = analyzed("toy:xor-1head", "and").sites
    few = dataclasses.replace(site.separability, chance=0.06)
    by_chance = dataclasses.replace(site, labelings=None, separability=few)
    assert "with chance 0.06" in verdict.evidence_of(by_chance).reason
    assert "any labels" not in verdict.evidence_of(by_chance).reason


def test_the_headline_names_the_null_that_is_as_good(analyzed) -> None:
    (site,) = analyzed("toy:xor-1head", "and").sites
    likely = dataclasses.replace(site.separability, chance=0.6)
    passed = LabelingNull(0, 4, 0, 0)
    model, data = planted(120, 3, "xor")
    (sampled,) = BOOLEAN(model, table="0110", data=data, hooks=SITE, shuffles=19).sites
    held_out = dataclasses.replace(sampled.held_out, p_value=0.4)
    by_copies = dataclasses.replace(
        sampled.held_out, p_value=0.01, reinitialised_balanced_accuracy=1.0
    )
    copies = CopyNull(None, 19, (1.0,) * 19)
    for judged, ending in (
        (site, "but so are other labelings of the same points."),
        (
            dataclasses.replace(site, labelings=None, separability=likely),
            "but so are random labels with chance 0.6.",
        ),
        (
            dataclasses.replace(site, labelings=passed, reinitialised=CopyNull(3, 3, (9.0,) * 3)),
            "but also in weight-shuffled models, with as large a margin.",
        ),
        (
            dataclasses.replace(sampled, held_out=held_out),
            "but held-out rows are not read significantly better than shuffled labels.",
        ),
        (
            dataclasses.replace(sampled, held_out=by_copies, reinitialised=copies),
            "but weight-shuffled models read it as well.",
        ),
    ):
        assert judged.outcome == "uninformative"
        headline = verdict.headline(judged, [])
        assert headline.endswith(ending)
        assert len(headline.split()) <= 20


def test_a_feature_with_the_name_of_a_function_keeps_its_own_accuracy() -> None:
    model, data = planted(120, 3, "xor")
    plain, named = (
        BOOLEAN(
            model, table="0110", data=dataclasses.replace(data, names=names), hooks=SITE, shuffles=0
        )
        .sites[0]
        .controls
        for names in (("a", "b"), ("AND", "XOR"))
    )
    assert named == pytest.approx(
        {"AND (feature)": plain["a"], "XOR (feature)": plain["b"]}
        | {name: plain[name] for name in ("AND", "OR")}
    )


def test_a_fixture_s_own_task_is_analyzed_without_data(tiny_xor_model, tiny_one_head_model):
    assert it.analyze(tiny_xor_model, "xor").status == "separable"
    assert it.analyze(tiny_one_head_model, "xor").status == "not_separable"
