"""The pass on every kind of model: effects against another road to them, and the model's logits."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from family_models import loaded_or_skipped
from head_outputs import head_outputs

import interp_toolkit as it
from interp_toolkit.circuits.metrics.prompts import Prompts, prompts_from_data
from interp_toolkit.circuits.roles.find import find_roles
from interp_toolkit.circuits.roles.measures import answer_sources
from interp_toolkit.circuits.roles.permuted import (
    asked_alone,
    permutation_p_values,
    permuted_means,
)
from interp_toolkit.circuits.roles.reading import Writing, queries_of, read
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.models.running.forward import run
from interp_toolkit.models.running.hooks import hook_points
from interp_toolkit.models.weights.view import weights


def asked(n: int = 8, slots: int = 1) -> Prompts:
    rng = np.random.default_rng(0)
    tokens = torch.from_numpy(rng.integers(0, 11, (n, 7)))
    answers = torch.from_numpy(rng.integers(0, 11, (n, slots)))
    places = torch.tensor([[6, 4][:slots]]).repeat(n, 1)
    return Prompts(tokens, 0, np.zeros(n, int), "rows", answers, places, (answers + 3) % 11)


def test_direct_effects_on_every_kind_of_model(model) -> None:
    prompts = asked()
    if int(getattr(model.cfg, "d_vocab_out", 11)) < 11:
        pytest.skip("its logits do not name the answers")
    try:
        found = find_roles(model, prompts, checked=1)
    except InputError:
        return
    view, last = weights(model), int(model.cfg.n_layers) - 1
    outputs = head_outputs(model, prompts.tokens, last, 6)
    seen: dict[str, torch.Tensor] = {}

    def keep(value, hook) -> None:
        seen["final"] = value[:, 6].detach().clone()

    run(model, prompts.tokens, [(hook_points(model)[f"blocks.{last}.hook_resid_post"], keep)])
    final = seen["final"].double()
    centred = final - final.mean(-1, keepdim=True) if view.final_norm.kind == "LN" else final
    scale = torch.ones(len(final), dtype=torch.float64)
    if view.final_norm.kind is not None:
        scale = (centred.square().mean(-1) + view.final_norm.eps).sqrt()
    added = outputs.double()
    added = added - added.mean(-1, keepdim=True) if view.final_norm.kind == "LN" else added
    added = added / scale[:, None, None]
    if view.final_norm.w is not None:
        added = added * view.final_norm.w.detach().double()
    W_U = view.W_U.detach().double()
    on = added @ W_U
    rows = torch.arange(len(final))
    effect = on[rows, :, prompts.answers[:, 0]] - on[rows, :, prompts.wrong[:, 0]]
    wanted = effect.mean(0).numpy()
    np.testing.assert_allclose(found.direct.mean[last], wanted, atol=2e-4 * np.abs(wanted).max())


def test_the_preference_is_that_of_the_models_logits(model) -> None:
    prompts = asked(slots=2)
    if getattr(model.cfg, "output_logits_soft_cap", -1.0) not in (-1.0, None, 0.0):
        pytest.skip("effects are those before the soft cap")
    try:
        queries, view = queries_of(prompts), weights(model)
        reading = read(model, view, queries, answer_sources(queries))
        ours = Writing(view, reading, queries).difference()
    except InputError:
        return
    logits = run(model, prompts.tokens)
    rows = torch.arange(len(prompts))[:, None]
    at = logits[rows, prompts.answer_positions].double()
    theirs = at.gather(-1, prompts.answers[..., None]) - at.gather(-1, prompts.wrong[..., None])
    theirs = theirs[..., 0].reshape(-1).detach().numpy()
    np.testing.assert_allclose(ours, theirs, atol=1e-3 * np.abs(theirs).max())


FAMILIES = ("Gemma2", "Olmo2", "DeepseekV3", "GptOss", "Granite", "Lfm2", "FalconH1", "OlmoHybrid")


@pytest.mark.parametrize("family", [*FAMILIES, "BitNet", "Afmoe"])
def test_direct_effects_of_families_are_those_that_sum_to_the_logits(family) -> None:
    """The components of logit attribution, which sum to the logits of transformers' own model."""
    _, model = loaded_or_skipped(family)
    rng = np.random.default_rng(0)
    tokens = rng.integers(3, 50, (8, 9))
    tokens[:, 3] = answers = rng.permutation(np.arange(3, 50))[:8]
    wrong = rng.permutation(np.arange(3, 50))[8:16]
    data = FeatureData(
        tokens, np.zeros((8, 0), bool), (), answers=answers[:, None], wrong=wrong[:, None]
    )
    prompts = prompts_from_data(data, model)
    attribution = it.analyze(model, "logit-attribution", data=data)
    truth = {(c.layer, c.head): c.effect for c in attribution.components if c.kind == "head"}
    if family in ("BitNet", "Afmoe"):  # heads' outputs are normalized together; gated
        with pytest.raises(InputError):
            find_roles(model, prompts, checked=0)
        return
    found = find_roles(model, prompts, checked=0)
    ours = {at: float(found.direct.mean[at]) for at in truth}
    largest = max(map(abs, truth.values()))
    assert ours == pytest.approx(truth, abs=1e-4 * largest)
    n_layers = int(model.cfg.n_layers)
    left_out = set(range(n_layers)) - {layer for layer, _ in truth}
    assert len([note for note in found.notes if "shows no" in note]) == len(left_out)
    assert {head.layer for head in found.heads} == {layer for layer, _ in truth}


def test_what_depends_on_the_answer_is_a_covariance() -> None:
    """By hand: outputs of three heads on the logits of two answers, one of which is commoner."""
    rng = np.random.default_rng(0)
    answer = rng.permutation(np.array([0] * 9 + [1] * 3))
    weights = np.eye(2)[answer]
    constant, unrelated = np.tile([3.0, -1.0], (12, 1)), rng.normal(size=(12, 2))
    logits = np.stack([constant, 2.0 * weights, unrelated], axis=1)
    found = asked_alone(logits, weights, 1)
    covariance = [
        sum(np.cov(logits[:, head, k], weights[:, k], bias=True)[0, 1] for k in range(2))
        for head in range(3)
    ]
    np.testing.assert_allclose(found.mean(0), covariance, atol=1e-12)
    np.testing.assert_allclose(found[:, 0], 0, atol=1e-12)
    assert found[:, 1].mean() == pytest.approx(2 * 2 * 0.75 * 0.25)
    orders = [rng.permutation(12) for _ in range(4000)]
    dealt = np.mean([(logits[:, 2] * weights[order]).sum(1).mean() for order in orders])
    own = (logits[:, 2] * weights).sum(1).mean()
    assert found[:, 2].mean() == pytest.approx(own - dealt, abs=0.02)
    assert np.isnan(asked_alone(logits, np.tile([1.0, 0.0], (12, 1)), 1)).all()
    twice = asked_alone(np.repeat(logits, 2, axis=0), np.repeat(weights, 2, axis=0), 2)
    np.testing.assert_allclose(twice[::2], found, atol=1e-12)
    gaps = asked_alone(logits, np.where(np.arange(12)[:, None] < 3, np.nan, weights), 1)
    assert np.isnan(gaps[:3]).all()
    np.testing.assert_allclose(gaps[3:], asked_alone(logits[3:], weights[3:], 1), atol=1e-12)


def test_the_p_value_of_permuted_answers_by_enumeration() -> None:
    """Six prompts: all 720 orders, of which 36 change nothing."""
    rng = np.random.default_rng(0)
    weights = np.eye(2)[[0, 0, 0, 1, 1, 1]]
    logits = np.stack([rng.normal(size=(6, 2)), 3.0 * weights, np.ones((6, 2))], axis=1)
    means, smallest = permuted_means(logits, weights, 1, seed=0)
    assert smallest == pytest.approx(36 / 720)
    np.testing.assert_allclose(means[:, 0], np.einsum("ast,at->s", logits, weights) / 6)
    whole = np.array(
        [
            np.einsum("ast,at->s", logits, weights[list(order)]) / 6
            for order in permutations(range(6))
        ]
    )
    np.testing.assert_allclose(means.mean(1), whole.mean(0), atol=0.1)
    centre = whole.mean(0)
    for head in range(3):
        as_far = np.abs(whole[:, head] - centre[head]) >= abs(whole[0, head] - centre[head]) - 1e-9
        [found] = permutation_p_values(means[[head]])
        assert found == pytest.approx(as_far.mean(), abs=0.05)
