"""The sorting recipes: sizes, losses and variants against plain PyTorch and the source."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError

from interp_toolkit.data.lists.layout import standard_sets
from interp_toolkit.registry import Session, find
from interp_toolkit.training.sorting import (
    SeedScores,
    SortCausal,
    Sorting,
    SortTraining,
    evaluate,
    item_losses,
    set_split,
)

RECIPES = ("sort-causal", "sort-distinct", "sort-bidirectional")


def problem_of(recipe: str, **settings) -> Sorting:
    return Sorting(find("recipes", recipe).config(**settings), seed=0)


def drawn(problem: Sorting, seed: int = 0):
    return problem.draw(torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("recipe", "layout", "parameters"),
    [
        ("sort-causal", "10 list10 11 sorted10", 15_242),
        ("sort-distinct", "15 list10 16 sorted10", 15_807),
        ("sort-bidirectional", "10 list1-10 11 pad12", 14_738),
    ],
)
def test_sizes_and_layouts_are_the_sources(recipe: str, layout: str, parameters: int) -> None:
    problem = problem_of(recipe)
    assert str(problem.layout) == layout
    assert sum(p.numel() for p in problem.model.parameters()) == parameters
    assert problem.model.cfg.n_ctx == (12 if recipe == "sort-bidirectional" else 22)
    assert problem.through_tables


@pytest.mark.parametrize(
    ("recipe", "settings"),
    [
        *((recipe, {}) for recipe in RECIPES),
        ("sort-causal", {"shortest": 2, "longest": 5, "heads": 3, "d_head": 7}),
        ("sort-distinct", {"shortest": 1, "longest": 4, "fixed_query": True, "heads": 2}),
        ("sort-causal", {"shortest": 1, "longest": 1, "n_values": 2}),
    ],
)
def test_the_fast_loss_is_the_plain_one_with_the_same_gradients(recipe: str, settings) -> None:
    problem = problem_of(recipe, batch=400, dtype="float64", **settings)
    assert problem.through_tables
    batch = drawn(problem)
    fast = problem.loss(batch)
    fast.backward()
    gradients = {
        name: p.grad.clone() for name, p in problem.model.named_parameters() if p.requires_grad
    }
    problem.model.zero_grad()
    logits = problem.model(batch.tokens)
    read = logits.gather(1, batch.read[:, :, None].expand(-1, -1, logits.shape[-1]))
    plain = F.cross_entropy(read[batch.present], batch.answer[batch.present])
    plain.backward()
    assert fast.item() == pytest.approx(plain.item(), rel=1e-12)
    for name, p in problem.model.named_parameters():
        if p.requires_grad:
            torch.testing.assert_close(gradients[name], p.grad, rtol=1e-9, atol=1e-12)


def test_what_does_not_fit_in_tables_trains_through_the_model() -> None:
    small = problem_of("sort-causal", batch=100)  # 144 pairs of tokens, 100 lists
    assert not small.through_tables
    large = problem_of("sort-causal", batch=200)
    assert large.through_tables
    small.model.load_state_dict(large.model.state_dict())
    batch = drawn(large)
    assert small.loss(batch).item() == pytest.approx(large.loss(batch).item(), rel=1e-5)


def test_rows_hold_the_list_and_its_sorted_copy() -> None:
    problem = problem_of("sort-causal", batch=50)
    batch = drawn(problem)
    for row in batch.tokens.tolist():
        assert row[0] == 10
        assert row[11] == 11
        assert row[12:] == sorted(row[1:11])
    padded = drawn(problem_of("sort-bidirectional", batch=200))
    lengths = set()
    for row, answer, present in zip(
        padded.tokens.tolist(), padded.answer.tolist(), padded.present.tolist(), strict=True
    ):
        n = sum(present)
        lengths.add(n)
        assert row[0] == 10
        assert row[n + 1] == 11
        assert set(row[n + 2 :]) <= {12}
        assert answer[:n] == sorted(row[1 : n + 1])
    assert lengths == set(range(1, 11))


@pytest.mark.parametrize("seed", [0, 1])
def test_the_lists_to_be_tested_on_are_not_those_trained_on(seed: int) -> None:
    config = find("recipes", "sort-distinct").config()
    generator = torch.Generator().manual_seed(seed)
    batches = [config.source.draw(1_024, generator).values.tolist() for _ in range(4)]
    trained_on = {tuple(row) for batch in batches for row in batch}
    for lists in standard_sets(config.layout, distinct=True).values():
        assert not trained_on & {tuple(row) for row in lists.values.tolist()}


def test_training_lists_are_the_sources() -> None:
    """Of hard lists of ten of 0-9 many have few values; uniform ones have 6.5 on average."""
    given = drawn(problem_of("sort-causal", batch=2_000)).tokens[:, 1:11]
    values = torch.tensor([len(set(row)) for row in given.tolist()], dtype=torch.float64)
    assert float(values.mean()) < 4.5
    given = drawn(problem_of("sort-distinct", batch=100)).tokens[:, 1:11]
    assert all(len(set(row)) == 10 for row in given.tolist())


def test_other_lists_to_train_on() -> None:
    given = drawn(problem_of("sort-causal", batch=2_000, lists="uniform")).tokens[:, 1:11]
    values = torch.tensor([len(set(row)) for row in given.tolist()], dtype=torch.float64)
    assert float(values.mean()) == pytest.approx(10 * (1 - 0.9**10), abs=0.15)
    given = drawn(problem_of("sort-causal", batch=200, lists="two-valued")).tokens[:, 1:11]
    assert all(len(set(row)) == 2 for row in given.tolist())
    both = problem_of("sort-causal", batch=201, lists="hard-and-two-valued")
    given = drawn(both).tokens[:, 1:11].tolist()
    assert all(len(set(row)) == 2 for row in given[101:])
    assert any(len(set(row)) > 2 for row in given[:101])


def test_sets_that_are_held_out_are_never_drawn_and_are_tested_apart() -> None:
    problem = problem_of("sort-distinct", batch=4_000, held_out_sets=2_900)
    drawn_sets = {tuple(sorted(row)) for row in drawn(problem).tokens[:, 1:11].tolist()}
    rest, held_out = set_split(problem.config)
    assert len(rest) + len(held_out) == 3_003
    assert drawn_sets == {tuple(row) for row in rest.values.tolist()}
    assert not drawn_sets & {tuple(row) for row in held_out.values.tolist()}
    found = evaluate(problem.model, problem.config)
    assert found.held_out is not None
    assert found.held_out < 0.5
    assert not SeedScores(0.1, random=1.0, held_out=0.99).solved


@pytest.mark.parametrize(
    "settings",
    [
        {"held_out_sets": 3_003},
        {"held_out_sets": 3, "distinct": False},
        {"lists": "two-valued", "shortest": 1, "distinct": False},
        {"lists": "uniform"},
    ],
)
def test_lists_that_cannot_be_had(settings, texts) -> None:
    with pytest.raises(ValueError, check=texts):
        SortTraining(**({"n_values": 15, "distinct": True} | settings))


def test_a_run_on_a_plateau_resumes_exactly(tmp_path) -> None:
    """The rate follows the losses, which are kept."""
    settings = {"schedule": "plateau", "steps": 60, "batch": 16, "log_every": 1, "save_every": 6}
    settings |= {"lr": 1e-9, "final_lr": 1e-10}  # nothing falls: the rate is lowered
    recipe = find("recipes", "sort-causal")
    whole = recipe.train(recipe.config(**settings), Session(tmp_path / "whole"))
    lines = [json.loads(x) for x in (tmp_path / "whole/metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["lr"] < lines[0]["lr"]

    class StoppedError(Exception):
        pass

    def stop(at) -> None:
        if at.step == 45:
            raise StoppedError

    with pytest.raises(StoppedError):
        recipe.train(recipe.config(**settings), Session(tmp_path / "cut", report=stop))
    again = recipe.train(recipe.config(**settings), Session(tmp_path / "cut", resume=True))
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name])


@pytest.mark.parametrize(("distinct", "kind"), [(False, "hard"), (True, "random")])
def test_the_score_that_decides_is_the_loss_on_lists_like_those_trained_on(distinct, kind) -> None:
    config = SortTraining(n_values=4, shortest=3, longest=3, distinct=distinct, d_model=8)
    model = Sorting(config, seed=0).model
    rows = config.layout.rows(standard_sets(config.layout, distinct)[kind])
    logits = model(rows.tokens).gather(1, rows.read[:, :, None].expand(-1, -1, 4))
    expected = F.cross_entropy(logits.flatten(0, 1), rows.answer.flatten())
    assert evaluate(model, config).loss == pytest.approx(expected.item(), rel=1e-5)


def test_a_seed_is_solved_when_no_list_of_any_kind_is_wrong() -> None:
    assert SeedScores(0.1, 1.0, 1.0, None).solved
    assert not SeedScores(0.1, 1.0, 0.9998, None).solved
    assert not SeedScores(0.1, 0.9998, None, 1.0).solved


def test_item_losses_are_cross_entropy() -> None:
    logits = torch.randn(7, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    answer = torch.randint(5, (7, 3), generator=torch.Generator().manual_seed(1))
    expected = -logits.log_softmax(-1).gather(-1, answer[..., None])[..., 0]
    torch.testing.assert_close(item_losses(logits, answer), expected)


def test_the_floor_takes_the_gradient_of_good_items_only() -> None:
    plain = problem_of("sort-causal", batch=200, dtype="float64")
    batch = drawn(plain)
    losses = item_losses(plain.logits(batch), batch.answer).detach()
    floor = float(losses.median()) + 1e-9  # no loss is on it
    floored = problem_of("sort-causal", batch=200, dtype="float64", loss_floor=floor)
    loss = floored.loss(batch)
    assert loss.item() == pytest.approx(losses.clamp(min=floor).mean().item())
    loss.backward()
    got = {name: p.grad.clone() for name, p in floored.model.named_parameters()}
    floored.model.zero_grad()
    still = item_losses(floored.logits(batch), batch.answer)
    (still[losses > floor].sum() / losses.numel()).backward()
    for name, p in floored.model.named_parameters():
        torch.testing.assert_close(got[name], p.grad)


def test_a_fixed_query_is_a_row_of_the_initial_weights_everywhere_and_for_good() -> None:
    free, problem = problem_of("sort-causal"), problem_of("sort-causal", fixed_query=True)
    attn = problem.model.blocks[0].attn
    torch.testing.assert_close(attn.b_Q, free.model.blocks[0].attn.W_Q[:, 0])
    _, cache = problem.model.run_with_cache(drawn(problem).tokens[:5])
    q = cache["blocks.0.attn.hook_q"]
    assert bool((q == attn.b_Q).all())
    before = attn.b_Q.detach().clone()
    run = find("recipes", "sort-causal").train(
        SortCausal(steps=3, batch=200, fixed_query=True), Session()
    )
    trained = run.model.blocks[0].attn
    assert not trained.W_Q.any()
    assert not torch.equal(trained.b_Q, before)


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_variant_is_a_configuration_that_trains(recipe: str) -> None:
    found = find("recipes", recipe)
    for settings in found.variants.values():
        config = found.config(**{**settings, "steps": 2, "batch": 32})
        loss = found.train(config, Session()).training["loss"]
        assert 0 < loss < 5


def test_the_record_says_what_the_model_is_for() -> None:
    run = find("recipes", "sort-distinct").train(
        find("recipes", "sort-distinct").config(steps=1, batch=32), Session()
    )
    assert run.task == {"name": "sorting", "layout": "15 list10 16 sorted10", "distinct": True}
    assert run.training["recipe"] == "sort-distinct"
    assert "sets" in run.verdict
    assert "hard" not in run.columns


@pytest.mark.slow
def test_a_short_run_sorts_most_lists() -> None:
    """In place, three values, up to four items: 500 steps are enough for nearly all."""
    config = SortTraining(
        n_values=3, shortest=1, longest=4, bidirectional=True, d_model=16, steps=500, batch=128
    )
    run = find("recipes", "sort-bidirectional").train(config, Session())
    scores = evaluate(run.model, config)
    assert scores.random is not None
    assert scores.random > 0.9
    assert scores.loss < 0.2
    again = find("recipes", "sort-bidirectional").train(config, Session())
    for a, b in zip(run.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    "settings",
    [
        {"shortest": 11},
        {"distinct": True, "longest": 11},
        {"n_values": 1},
        {"width": 3},
    ],
)
def test_settings_that_cannot_work_are_refused(settings, texts) -> None:
    with pytest.raises(ValidationError, check=texts):
        SortCausal(**settings)


def test_variants_are_the_optimisers_that_they_name() -> None:
    post = {"optimiser": "adam", "schedule": "exponential", "lr": 1e-3, "final_lr": 1e-4}
    post |= {"weight_decay": 1e-4, "betas": (0.9, 0.999)}
    adamw = {"optimiser": "adamw", "schedule": "cosine", "lr": 3e-3, "final_lr": 3e-5}
    adamw |= {"weight_decay": 1e-4, "betas": (0.9, 0.99)}
    for recipe in RECIPES:
        found = find("recipes", recipe)
        for variant, wanted in (("post", post), ("adamw", adamw)):
            config = found.config(**found.variants[variant])
            assert {name: getattr(config, name) for name in wanted} == wanted
