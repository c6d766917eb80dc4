"""The verdict: right on hand-set sorters however they are written, and silent on all else."""

from __future__ import annotations

import pytest
import torch
from not_sorting import copy_list, echo_previous, reverse_list, sort_descending
from rewritten import rewritten

from interp_toolkit.circuits.sorting.analysis import sorting_fingerprint
from interp_toolkit.circuits.sorting.measures import find_layout, guessed, read_lists
from interp_toolkit.errors import InputError
from interp_toolkit.models.loading.loader import load
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.registry import Session
from interp_toolkit.toys.sorting import sort_argmax, sort_min_greater, sort_mixed
from interp_toolkit.training.sorting import SortTraining, train

WRITTEN_AFTER = "10 list10 11 sorted10"
DISTINCT = "15 list10 16 sorted10"
IN_PLACE = "10 list1-10 11 pad12"
FIRST, SECOND = "min_greater_than_previous", "argmax_piecewise_linear"
QUICK = {"lists": 400, "nulls": 2}


@pytest.mark.parametrize(
    ("build", "layout", "algorithm"),
    [
        (lambda: sort_min_greater(), DISTINCT, FIRST),
        (lambda: sort_min_greater(dtype=torch.float32), DISTINCT, FIRST),
        (lambda: sort_min_greater(shares=(0.0, 1.0)), DISTINCT, FIRST),
        (lambda: sort_min_greater(shares=(0.5, 0.5)), DISTINCT, FIRST),
        (lambda: rewritten(sort_min_greater(), 0), DISTINCT, FIRST),
        (lambda: sort_min_greater(9, 5, layout="list5 10 9 sorted5"), "list5 10 9 sorted5", FIRST),
        (lambda: sort_argmax(), IN_PLACE, SECOND),
        (lambda: sort_argmax(dtype=torch.float32), IN_PLACE, SECOND),
        (lambda: sort_argmax(bidirectional=False), WRITTEN_AFTER, SECOND),
        (lambda: sort_argmax(tilt=0.05), IN_PLACE, SECOND),
        (lambda: sort_argmax(shares=(0.5, 0.5)), IN_PLACE, SECOND),
        (lambda: sort_argmax(shares=(0.5, 0.5), dtype=torch.bfloat16), IN_PLACE, SECOND),
        (lambda: sort_argmax(shares=(0.0, 1.0), bidirectional=False), WRITTEN_AFTER, SECOND),
        (lambda: rewritten(sort_argmax(), 0), IN_PLACE, SECOND),
        (lambda: rewritten(sort_argmax(bidirectional=False), 1), WRITTEN_AFTER, SECOND),
        (lambda: rewritten(sort_argmax(shares=(0.5, 0.5)), 2), IN_PLACE, SECOND),
        (lambda: sort_argmax(6, 5, layout="6 list5 7"), "6 list5 7", SECOND),
        (lambda: sort_mixed(), WRITTEN_AFTER, "mixed"),
        (lambda: sort_mixed(relative_attention=0.3), WRITTEN_AFTER, "mixed"),
        (lambda: sort_descending(), DISTINCT, "neither"),
        (lambda: copy_list(), WRITTEN_AFTER, "neither"),
        (lambda: reverse_list(), WRITTEN_AFTER, "neither"),
        (lambda: echo_previous(), WRITTEN_AFTER, "neither"),
    ],
)
def test_hand_set_models_are_called_what_they_are(build, layout: str, algorithm: str) -> None:
    found = sorting_fingerprint(build(), layout, **QUICK)
    assert found.algorithm == algorithm, found.criteria


@pytest.mark.parametrize(
    ("toy", "algorithm"), [("sort-min-greater", FIRST), ("sort-argmax", SECOND)]
)
def test_toys_need_no_layout(toy: str, algorithm: str) -> None:
    found = sorting_fingerprint(load(f"toy:{toy}"), **QUICK)
    assert found.algorithm == algorithm
    assert all(a.lists_right == 1.0 for a in found.accuracy.values())
    assert "100.00 %" in found.verdict
    assert found.weights.exact


def test_what_is_sorted_is_found_out() -> None:
    """Without a record: the first model sorts distinct lists only, the second all."""
    assert sorting_fingerprint(sort_min_greater(), DISTINCT, **QUICK).distinct
    assert not sorting_fingerprint(sort_argmax(), IN_PLACE, **QUICK).distinct


def test_each_head_is_judged_by_what_it_does() -> None:
    found = sorting_fingerprint(sort_min_greater(shares=(0.0, 1.0, 0.0)), DISTINCT, **QUICK)
    assert [head.algorithm for head in found.heads] == ["neither", FIRST, "neither"]
    assert [head.lists_right_without for head in found.heads] == [
        1.0,
        pytest.approx(0, abs=0.05),
        1.0,
    ]


def test_heads_that_replace_each_other_have_the_marks_but_not_the_name() -> None:
    model = sort_min_greater(9, 5, shares=(0.5, 0.5))
    found = sorting_fingerprint(model, "9 list5 10 sorted5", **QUICK)
    assert found.algorithm == FIRST
    for head in found.heads:
        assert (head.algorithm, head.lists_right_without) == ("neither", 1.0)
        states = {m.name: m.state for m in head.criteria if m.algorithm == FIRST}
        assert states.pop("follows_token") in ("weak", "strong")  # half of the answers follow it
        assert set(states.values()) == {"strong"}


def test_a_head_that_writes_nothing_changes_no_number_of_the_model() -> None:
    one, two = (
        sorting_fingerprint(
            sort_min_greater(9, 5, shares=shares), "9 list5 10 sorted5", **QUICK
        ).metrics
        for shares in ((1.0,), (1.0, 0.0))
    )
    assert two == pytest.approx(one, rel=1e-6, abs=1e-9, nan_ok=True)


def test_a_head_that_writes_the_negative_of_an_algorithm_does_not_do_it() -> None:
    found = sorting_fingerprint(sort_argmax(8, 6, shares=(2.0, -1.0)), "8 list1-6 9 pad10", **QUICK)
    assert found.algorithm == SECOND
    assert [head.algorithm for head in found.heads] == [SECOND, "neither"]
    assert {m.name: m.state for m in found.heads[1].criteria}["kink_r2"] == "absent"


def test_a_model_that_answers_with_a_separator_does_not_sort() -> None:
    """Among the logits of the values alone it would."""
    model = sort_argmax(8, 5, layout="0 list5 4 sorted5")
    model.unembed.b_U.data[4] = 1e4
    found = sorting_fingerprint(model, "0 list5 4 sorted5", **QUICK)
    assert found.accuracy["random"].lists_right == 0
    assert found.metrics["items_right"] == 0
    assert found.metrics["follows_position"] == 0
    assert found.algorithm == "neither"
    assert "does not sort" in found.verdict


@pytest.mark.parametrize("build", [sort_min_greater, sort_mixed])
def test_lists_of_two_do_not_tell_how_they_are_sorted(build, texts) -> None:
    """One value at most is above the first output, so none is preferred; nor is there a swap."""
    found = sorting_fingerprint(build(2, 2), "2 list2 3 sorted2", **QUICK)
    states = {m.name: m.state for m in found.criteria}
    assert states["smallest_lift"] == states["follows_token"] == "unknown"
    assert found.algorithm == "neither"
    texts(found.headline)
    texts(found.findings[0])


def test_fifty_random_models_are_neither() -> None:
    names = set()
    for seed in range(50):
        heads, place = 1 + seed % 3, seed % 2
        layout = ("6 list5 7 sorted5", "6 list1-5 7 pad8")[place]
        model = Transformer(
            TransformerConfig(
                n_layers=1,
                d_model=24,
                n_ctx=12,
                d_head=12,
                n_heads=heads,
                d_vocab=9,
                d_vocab_out=6,
                attn_only=True,
                normalization_type=None,
                attention_dir="bidirectional" if place else "causal",
                initializer_range=0.1 * (1 + seed % 7),
                seed=seed,
            )
        )
        names.add(sorting_fingerprint(model, layout, distinct=False, lists=100, nulls=1).algorithm)
    assert names == {"neither"}


@pytest.mark.slow
@pytest.mark.parametrize("task", ["copy", "reverse", "descending", "scrambled"])
def test_models_trained_on_other_tasks_are_neither(trained_otherwise, task: str) -> None:
    model, right = trained_otherwise(task)
    assert right > 0.9
    assert sorting_fingerprint(model, WRITTEN_AFTER, **QUICK).algorithm == "neither"


@pytest.mark.slow
def test_with_a_norm_the_tables_are_approximate_and_said_to_be() -> None:
    config = SortTraining(
        n_values=6,
        shortest=1,
        longest=6,
        bidirectional=True,
        normalization="LN",
        d_model=24,
        batch=256,
        steps=1_200,
        betas=(0.9, 0.99),
    )
    model = train(config, Session(), recipe="sort-bidirectional").model
    found = sorting_fingerprint(model, str(config.layout), **QUICK)
    assert not found.weights.exact
    assert found.weights.residual < 1e-6  # of the logits before the norm divides them
    assert any("norm" in note for note in found.notes)
    states = {m.name: m.state for m in found.criteria}
    assert states["logit_slope_error"] == states["kink_r2"] == "strong"
    assert set(states.values()) <= {"weak", "strong"}


def test_a_guess_is_the_better_of_repeating_and_the_commonest() -> None:
    model = echo_previous()
    reading = read_lists(model, find_layout(model, WRITTEN_AFTER), False, 500, 0)
    answers = reading.rows.answer
    repeated = float((answers[:, 1:] == answers[:, :-1]).sum()) / answers.numel()
    assert guessed(reading) == pytest.approx(repeated)


def test_the_same_seed_gives_the_same_numbers() -> None:
    model = sort_argmax(6, 4)
    first, second = (
        sorting_fingerprint(model, "6 list1-4 7 pad8", seed=3, **QUICK) for _ in range(2)
    )
    assert first.metrics == second.metrics
    assert first.null == second.null


def test_the_model_is_left_as_it_was() -> None:
    model = sort_argmax(6, 4)
    before = {name: p.clone() for name, p in model.named_parameters()}
    sorting_fingerprint(model, "6 list1-4 7 pad8", **QUICK)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert not any(point.fwd_hooks for point in model.hook_points())


@pytest.mark.parametrize(
    "layout",
    [
        None,
        "10 list11 11 sorted11",
        "10 list10 99 sorted10",
        "10 11",
    ],
)
def test_a_layout_that_does_not_fit_is_refused(layout, texts) -> None:
    with pytest.raises(InputError, check=texts):
        sorting_fingerprint(sort_argmax(bidirectional=False), layout)


def test_several_layers_are_refused() -> None:
    config = TransformerConfig(
        n_layers=2, d_model=8, n_ctx=8, d_head=4, n_heads=1, d_vocab=6, attn_only=True
    )
    with pytest.raises(InputError, match="one-layer"):
        sorting_fingerprint(Transformer(config), "4 list3 5 sorted3")
