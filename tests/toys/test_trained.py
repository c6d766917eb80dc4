"""The trained models that ship: their size, their record, and what they do."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from interp_toolkit.circuits.metrics.prompts import Prompts, repeated_prompts
from interp_toolkit.circuits.sorting.analysis import sorting_fingerprint
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.running.interventions import ablate
from interp_toolkit.registry import find, names
from interp_toolkit.toys.trained import COMMANDS, INDUCTION_TRAINED, file_of

MAX_BYTES = 100_000
PREVIOUS, INDUCTION = (0, 2), [(1, 0), (1, 1), (1, 2)]


@pytest.fixture(scope="module")
def model():
    return INDUCTION_TRAINED.build()


@pytest.fixture(scope="module")
def prompts(model) -> Prompts:
    return repeated_prompts(model, rows=32, seed=11)


def losses(model, prompts: Prompts) -> float:
    """On the next tokens that the context tells."""
    with torch.no_grad():
        logits = model(prompts.tokens)[prompts.repeated()]
    return F.cross_entropy(logits, prompts.tokens.roll(-1, dims=1)[prompts.repeated()]).item()


def test_the_induction_model_says_how_it_was_made(model) -> None:
    training = record_of(model).training
    assert training["recipe"] == "induction"
    assert training["settings"]["seed"] == 0
    assert training["accuracy"] > 0.95
    assert training["loss"] < 0.5 < math.log(48) < training["loss_first_repeat"]
    assert model.cfg.n_layers == 2
    assert model.cfg.attn_only


def test_one_head_of_layer_0_attends_to_the_token_before(model, prompts) -> None:
    _, cache = model.run_with_cache(prompts.tokens)
    before = cache["pattern", 0].diagonal(offset=-1, dim1=2, dim2=3).mean((0, 2))
    assert before[PREVIOUS[1]] > 0.5
    assert before.sort().values[-2] < 0.2


def test_heads_of_layer_1_attend_to_what_followed_the_token(model, prompts) -> None:
    _, cache = model.run_with_cache(prompts.tokens)
    tokens = prompts.tokens
    followed = tokens[:, :, None] == F.pad(tokens, (1, -1), value=-1)[:, None]
    share = (cache["pattern", 1] * followed[:, None].tril()).sum(-1).transpose(1, 2)
    assert share[prompts.repeated()].mean(0).min() > 0.5


def test_the_second_repeat_is_known_until_the_heads_are_ablated(model, prompts) -> None:
    whole = losses(model, prompts)
    assert whole < 0.3
    for heads in ([PREVIOUS], INDUCTION):
        with ablate(model, heads, "mean"):
            assert losses(model, prompts) > 2.5
    for head in ((0, 0), (0, 1)):
        with ablate(model, [head], "mean"):
            assert losses(model, prompts) - whole < 0.1


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_files_are_small_and_their_commands_are_those_that_made_them(name: str) -> None:
    assert file_of(name).stat().st_size < MAX_BYTES
    toy = find("toys", f"{name}-trained")
    training = record_of(toy.build()).training
    words = COMMANDS[name].split()
    assert words[3] == training["recipe"]
    given = dict(w.split("=") for w in words[4:] if "=" in w)
    recipe = find("recipes", training["recipe"])
    variant = recipe.config(**given, device="cpu")
    for key, value in variant.recorded().items():
        assert training["settings"].get(key, value) == value, key


def test_every_trained_toy_has_a_command() -> None:
    toys = [name for name in names("toys") if name.endswith("-trained")]
    assert sorted(toys) == sorted(f"{name}-trained" for name in COMMANDS)


@pytest.mark.parametrize(
    ("name", "algorithm", "least"),
    [
        ("sort-causal", "mixed", 0.95),
        ("sort-distinct", "min_greater_than_previous", 1.0),
        ("sort-bidirectional", "argmax_piecewise_linear", 1.0),
    ],
)
def test_sorters_sort_by_the_algorithm_that_their_source_found(name, algorithm, least) -> None:
    found = sorting_fingerprint(find("toys", f"{name}-trained").build(), nulls=2)
    assert found.algorithm == algorithm
    assert all(least <= a.lists_right for a in found.accuracy.values())
    assert found.weights.exact
    if name == "sort-causal":
        assert found.accuracy["hard"].lists_right < 0.99
    if name == "sort-distinct":
        assert found.accuracy["sets"].n == 3_003
