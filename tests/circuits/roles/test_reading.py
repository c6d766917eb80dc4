"""The pass on every kind of model: effects against another road to them, and the model's logits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from head_outputs import head_outputs

from interp_toolkit.circuits.metrics.prompts import Prompts
from interp_toolkit.circuits.roles.find import find_roles
from interp_toolkit.circuits.roles.measures import answer_sources
from interp_toolkit.circuits.roles.reading import Writing, queries_of, read
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
