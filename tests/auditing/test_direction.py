"""Directions in a model whose logits are linear in the stream: what exchanging does is closed."""

import numpy as np
import pytest
import torch

import interp_toolkit as it
from interp_toolkit.auditing.direction.carries import read_part
from interp_toolkit.auditing.direction.common import random_directions
from interp_toolkit.auditing.direction.reads import function_of
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.toys.zeros import zeros

D, KINDS, YES, NO = 6, 40, 80, 81  # tokens 0..39 are off, 40..79 their counterparts that are on
HOOK = "blocks.0.hook_resid_pre"
FEATURE, READ, DEAD, DORMANT = np.eye(D)[:4]


def linear_model(seed=0, written=FEATURE + 0.5 * DEAD):
    """Logit(yes) - logit(no) = 8 (x . READ') with READ' = FEATURE + READ + DORMANT."""
    config = TransformerConfig(
        n_layers=1,
        d_model=D,
        d_head=1,
        n_heads=1,
        n_ctx=2,
        d_vocab=YES + 2,
        attn_only=True,
        normalization_type=None,
        positional_embedding_type="none",
        dtype=torch.float64,
    )
    model = zeros(config).eval()
    rng = np.random.default_rng(seed)
    noise = np.zeros((KINDS, D))
    noise[:, [1, 4, 5]] = 0.1 * rng.standard_normal((KINDS, 3))
    reading = FEATURE + READ + DORMANT
    with torch.no_grad():
        model.embed.W_E[:KINDS] = torch.from_numpy(noise - 0.5 * written)
        model.embed.W_E[KINDS : 2 * KINDS] = torch.from_numpy(noise + 0.5 * written)
        model.unembed.W_U[:, YES] = torch.from_numpy(4 * reading)
        model.unembed.W_U[:, NO] = torch.from_numpy(-4 * reading)
    return model


def rows_of(n=2 * KINDS):
    tokens = np.stack([np.arange(n) % KINDS, np.arange(n) % (2 * KINDS)], axis=1)
    on = tokens[:, 1] >= KINDS
    other = tokens.copy()
    other[:, 1] = (tokens[:, 1] + KINDS) % (2 * KINDS)
    answers = np.where(on, YES, NO)
    return FeatureData(
        tokens,
        np.stack([on, tokens[:, 1] % 2 == 1], axis=1),
        ("a", "odd"),
        answers=answers,
        wrong=np.where(on, NO, YES),
        corrupted=other,
    )


def audited(vector, model=None, data=None, **claim):
    claim = {"direction": list(vector), "hook": HOOK, **claim}
    return it.audit(
        linear_model() if model is None else model,
        [claim],
        data=rows_of() if data is None else data,
    ).claims[0]


def part_of(claim, question, asserted=None):
    return next(p for p in claim.parts if p.question == question and asserted in (None, p.asserted))


@pytest.mark.parametrize(
    ("vector", "share"),
    [
        (FEATURE, 1.0),
        (3 * FEATURE, 1.0),
        (DEAD, 0.0),
        # u = (FEATURE + READ) / sqrt 2: the scalar is 1 / sqrt 2 and is read by 2 / sqrt 2
        (FEATURE + READ, 1.0),
        # u = (FEATURE + DEAD) / sqrt 2: the scalar 1.5 / sqrt 2 is read by 1 / sqrt 2
        (FEATURE + DEAD, 0.75),
    ],
)
def test_the_way_moved_is_the_closed_form(vector, share):
    found = part_of(audited(vector, says="carries"), "matters")
    assert found.value == pytest.approx(share, abs=1e-9)
    assert found.low - 1e-9 <= share <= found.high + 1e-9


def test_what_carries_is_confirmed_and_what_does_nothing_refuted():
    assert audited(FEATURE, says="carries").answer == "confirmed"
    assert audited(DEAD, says="carries").answer == "refuted"
    assert audited(np.eye(D)[4], says="carries").answer == "refuted"


def with_neurons(dead=3.0, dormant=1.0):
    """The answers pass the neurons by: one follows the feature unread, one is read and constant."""
    source = linear_model()
    cfg = source.cfg.model_dump() | {"attn_only": False, "d_mlp": 2, "act_fn": "relu"}
    model = zeros(TransformerConfig(**cfg)).eval()
    with torch.no_grad():
        for name, parameter in source.named_parameters():
            dict(model.named_parameters())[name].copy_(parameter)
        mlp = model.blocks[0].mlp
        mlp.W_in[0, 0], mlp.b_in[0] = dead, 5.0
        mlp.b_in[1] = 5.0
        mlp.W_out[1, 0], mlp.b_out[0] = dormant, -5.0 * dormant
    return model


def test_a_dormant_direction_moves_answers_and_is_refuted():
    """Half follows the feature and is not read, half is read and does not vary."""
    hook = "blocks.0.mlp.hook_post"
    found = audited([1.0, 1.0], with_neurons(), says="carries", hook=hook)
    matters, special = part_of(found, "matters"), part_of(found, "special", asserted=True)
    assert matters.answer == "confirmed"
    # the scalar is 3 / sqrt 2, read by 1 / sqrt 2: 1.5 of the feature's own 1
    assert matters.value == pytest.approx(1.5, abs=1e-9)
    assert special.answer == "refuted"
    assert special.value == pytest.approx(0.0, abs=1e-9)
    assert "dormant" in special.summary
    assert found.answer == "refuted"


def test_reading_counts_both_classes():
    good = audited(FEATURE, says="reads", features=["a"])
    bad = audited(FEATURE, says="reads", features=["odd"])
    assert (good.answer, bad.answer) == ("confirmed", "refuted")
    assert part_of(good, "there").value == 1.0


def test_a_function_of_two_features_needs_its_table(texts):
    with pytest.raises(InputError, check=texts):
        audited(FEATURE, says="reads", features=["a", "odd"])
    found = audited(FEATURE, says="reads", features=["a", "odd"], table="0011")
    assert found.answer == "confirmed"


def test_steering_turns_answers_by_as_much_as_is_added():
    # rows lie at -0.5 and 0.5 of 8 logits: what is added at least 0.5 turns those on
    strong = audited(-FEATURE, says="steers", by=4.0, at_least=0.4)
    weak = audited(FEATURE, says="steers", by=0.01, at_least=0.4)
    assert part_of(weak, "matters").value == 0.0
    assert part_of(strong, "matters").value == pytest.approx(0.5, abs=0.05)
    assert weak.answer == "refuted"


@pytest.mark.parametrize(
    "claim",
    [
        {"vector": [1.0, 0.0]},
        {"vector": np.zeros(D)},
        {"vector": FEATURE, "position": 7},
        {"vector": FEATURE, "hook": "blocks.9.hook_resid_pre"},
        {"vector": FEATURE, "hook": "blocks.*.hook_resid_p*"},
        {"vector": FEATURE, "features": ["z"]},
    ],
)
def test_what_is_not_there_is_told(claim, texts):
    vector = claim.pop("vector")
    with pytest.raises(InputError, check=texts):
        audited(vector, **{"says": "reads", "features": ["a"], **claim})


def test_without_corrupted_rows_nothing_can_be_exchanged():
    import dataclasses

    found = audited(FEATURE, data=dataclasses.replace(rows_of(), corrupted=None), says="carries")
    assert found.answer == "not_testable"


def test_functions_by_truth_table():
    columns = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=bool)
    assert function_of(columns, "0110").tolist() == [False, True, True, False]
    assert function_of(columns[:, :1], None).tolist() == [False, False, True, True]
    with pytest.raises(InputError, match="4"):
        function_of(columns, "01101001")


def test_random_directions_have_the_covariance():
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((400, 2)) * [3.0, 1.0])
    drawn = random_directions(x, 4000, np.random.default_rng(1))
    assert torch.allclose(drawn.norm(dim=1), torch.ones(4000, dtype=torch.float64))
    # of a normal vector with deviations 3 and 1, the share of directions within 45° of the first
    # axis is 1 - 2 arctan(1 / 3) / pi
    share = float((drawn[:, 0].abs() > drawn[:, 1].abs()).double().mean())
    assert abs(share - (1 - 2 * np.arctan(1 / 3) / np.pi)) < 0.04


def test_the_part_that_is_read():
    gradients = torch.tensor([[2.0, 0.0, 0.0], [-1.0, 0.0, 0.0]], dtype=torch.float64)
    unit = torch.tensor([0.6, 0.8, 0.0], dtype=torch.float64)
    share, inside = read_part(unit, gradients)
    assert share == pytest.approx(0.36)
    assert torch.allclose(inside.abs(), torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64))
    assert read_part(torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64), gradients) is None
    assert read_part(unit, torch.zeros(2, 3, dtype=torch.float64)) is None


def test_the_order_of_rows_makes_no_difference():
    data = rows_of()
    order = np.argsort(np.stack(list(data.tokens))[:, 1], kind="stable")
    answers = {
        audited(FEATURE, data=data.at(rows), says="carries").answer
        for rows in (np.arange(len(data)), order, order[::-1])
    }
    assert answers == {"confirmed"}


def test_steps_that_overflow_are_refused(texts):
    with pytest.raises(InputError, check=texts):
        audited(FEATURE, says="steers", by=1e200)
    assert audited(1e308 * FEATURE, says="carries").answer == "confirmed"


def test_patterns_hold_no_vector_a_position(texts):
    with pytest.raises(InputError, check=texts):
        audited([1.0, 0.0], hook="blocks.0.attn.hook_pattern", says="carries", head=0)


def test_few_rows_that_agree_are_not_certain():
    few = rows_of().at(np.arange(36, 44))
    found = part_of(audited(FEATURE, data=few, says="carries", at_least=0.9), "matters")
    assert found.value == pytest.approx(1.0)
    assert found.answer == "undecided"


def test_a_small_gradient_is_no_other_direction():
    gradients = torch.tensor([[0.05, 1.0], [0.05, -1.0]], dtype=torch.float64)
    found = read_part(torch.tensor([1.0, 0.0], dtype=torch.float64), gradients)
    assert found is not None
    share, inside = found
    assert share == pytest.approx(1.0)
    assert float(inside[0]) == pytest.approx(1.0)
