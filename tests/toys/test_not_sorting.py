"""The models that do something else do exactly that, and do not sort."""

from __future__ import annotations

import itertools

import not_sorting as toys
import pytest
import torch
from rewritten import rewritten

from interp_toolkit.errors import InputError
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer

N, LENGTH = 6, 4
SETS = [s for c in itertools.combinations(range(N), LENGTH) for s in itertools.permutations(c)]
LISTS = list(itertools.product(range(N), repeat=LENGTH))[::3]


def outputs(model, lists, wanted) -> torch.Tensor:
    """The model's outputs where its row holds the sorted list, teacher-forced on what is wanted."""
    rows = [[N, *items, N + 1, *given] for items, given in zip(lists, wanted, strict=True)]
    return model(torch.tensor(rows))[:, LENGTH + 1 : -1].argmax(-1)


def share(found: torch.Tensor, wanted) -> float:
    return (found == torch.tensor(wanted)).all(1).double().mean().item()


@pytest.mark.parametrize(
    ("build", "task", "lists"),
    [
        (toys.sort_descending, lambda items: sorted(items, reverse=True), SETS),
        (toys.copy_list, list, LISTS),
        (toys.reverse_list, lambda items: list(items[::-1]), LISTS),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_they_do_their_task_on_every_list_and_do_not_sort(build, task, lists, dtype) -> None:
    model = build(N, LENGTH, dtype=dtype)
    wanted = [task(items) for items in lists]
    assert share(outputs(model, lists, wanted), wanted) == 1
    ordered = [sorted(items) for items in lists]
    both = sum(a == b for a, b in zip(wanted, ordered, strict=True)) / len(lists)
    assert share(outputs(model, lists, ordered), ordered) == pytest.approx(both)
    assert both < 0.2


def test_the_echo_says_the_output_before_again() -> None:
    model = toys.echo_previous(N, LENGTH)
    given = [items[::-1] for items in LISTS]
    expected = [[0, *row[:-1]] for row in given]
    assert share(outputs(model, LISTS, given), expected) == 1


def test_a_copy_in_place_holds_for_lists_of_any_length() -> None:
    model = toys.copy_list(N, layout="6 list1-4 7 pad8")
    assert model.cfg.attention_dir == "bidirectional"
    for items in [(5,), (3, 3), (4, 0, 2), (1, 5, 0, 2)]:
        row = torch.tensor([[6, *items, 7, *[8] * (4 - len(items))]])
        assert model(row)[0, 1 : len(items) + 1].argmax(-1).tolist() == list(items)


def test_a_reversal_in_place() -> None:
    model = toys.reverse_list(N, layout="list4 7")
    rows = torch.tensor([[*items, 7] for items in LISTS])
    assert torch.equal(model(rows)[:, :4].argmax(-1), rows[:, :4].flip(1))


@pytest.mark.parametrize(
    ("build", "layout"),
    [
        (toys.copy_list, "6 list1-4 7 sorted1-4 pad8"),
        (toys.reverse_list, "6 list1-4 7 pad8"),
    ],
)
def test_places_that_move_are_refused(build, layout: str) -> None:
    with pytest.raises(InputError, match="the same length"):
        build(N, layout=layout)


@pytest.mark.parametrize("build", [toys.sort_descending, toys.echo_previous])
def test_a_model_that_reads_its_outputs_needs_them(build, texts) -> None:
    with pytest.raises(InputError, check=texts):
        build(N, layout="6 list4 7")


@pytest.mark.parametrize(
    "build", [toys.sort_descending, toys.copy_list, toys.reverse_list, toys.echo_previous]
)
def test_the_defaults_have_the_width_of_the_trained_models_and_may_be_rewritten(
    build, assert_same_logits
) -> None:
    model = build(10, 10, shares=(0.5, 0.5))
    assert (model.cfg.d_model, model.cfg.d_head, model.cfg.n_heads) == (56, 56, 2)
    rows = torch.randint(12, (20, 22), generator=torch.Generator().manual_seed(0))
    assert_same_logits(rewritten(model, 1), model, rows)


def test_rewriting_leaves_the_model_alone_and_serves_trained_weights_too(
    assert_same_logits,
) -> None:
    config = TransformerConfig(
        n_layers=1,
        n_heads=2,
        d_model=12,
        d_head=5,
        n_ctx=7,
        d_vocab=8,
        d_vocab_out=6,
        attn_only=True,
        normalization_type=None,
        dtype=torch.float64,
        seed=0,
    )
    model = Transformer(config)
    for parameter in model.parameters():
        parameter.data += 0.1
    before = {name: value.clone() for name, value in model.state_dict().items()}
    other = rewritten(model, 5)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    rows = torch.randint(8, (30, 7), generator=torch.Generator().manual_seed(2))
    assert_same_logits(other, model, rows)


@pytest.mark.parametrize(
    "change",
    [
        {"n_layers": 2},
        {"normalization_type": "LN"},
        {"biases": False},
        {"positional_embedding_type": "none"},
        {"n_heads": 2, "n_key_value_heads": 1},
        {"attn_only": False, "d_mlp": 4, "act_fn": "relu"},
    ],
)
def test_other_shapes_are_not_rewritten(change, texts) -> None:
    options = {"n_layers": 1, "n_heads": 1, "attn_only": True, "normalization_type": None, **change}
    config = TransformerConfig(d_model=8, d_head=4, n_ctx=5, d_vocab=6, **options)
    with pytest.raises(InputError, check=texts):
        rewritten(Transformer(config), 0)
