"""Direct logit attribution: exact sums, TransformerLens' own numbers, a head set by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from planted_roles import AGAINST, MOVES, N_POS, ONLY_ATTENDS, START, movers, rows
from planted_writers import clues, two_heads

import interp_toolkit as it
from interp_toolkit.circuits.logit_attribution import (
    LOGIT_ATTRIBUTION,
    LensStep,
    LogitAttributionEvidence,
    attribute,
    sentences,
)
from interp_toolkit.circuits.metrics.prompts import Prompts, repeated_answers
from interp_toolkit.circuits.roles.permuted import ORDERS, smallest_p
from interp_toolkit.circuits.roles.reading import Queries
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.models.weights.contributions import ResidualPart
from interp_toolkit.results import head_name

NOT_ADDITIVE = ("bert",)


def asks_of_random(seed: int = 0, n: int = 9, n_pos: int = 7, d_vocab: int = 11) -> Queries:
    rng = np.random.default_rng(seed)
    pairs = np.array([rng.choice(d_vocab, 2, replace=False) for _ in range(n)])
    tokens, place = rng.integers(0, d_vocab, (n, n_pos)), rng.integers(2, n_pos, n)
    return Queries(tokens, place, pairs[:, 0], pairs[:, 1], 1)


def as_data(prompts: Prompts, answers: torch.Tensor | None = None) -> FeatureData:
    assert prompts.answers is not None
    assert prompts.answer_positions is not None
    assert prompts.wrong is not None
    order = np.arange(len(prompts)) if answers is None else answers.numpy()
    return FeatureData(
        prompts.tokens.numpy(),
        np.zeros((len(prompts), 0), bool),
        (),
        answers=prompts.answers.numpy()[order],
        answer_positions=prompts.answer_positions.numpy(),
        wrong=prompts.wrong.numpy()[order],
        source="planted",
    )


def logits_of(model, asks: Queries) -> np.ndarray:
    with torch.no_grad():
        logits = model(torch.from_numpy(asks.tokens)).double().numpy()
    cap = getattr(model.cfg, "output_logits_soft_cap", None)
    if cap is not None and cap > 0:  # effects are on logits before it
        logits = cap * np.arctanh(logits / cap)
    return logits[np.arange(len(asks)), asks.position]


@pytest.mark.parametrize("wrong", [True, False])
def test_components_sum_to_the_models_own_logits(model, request, count_hooks, wrong: bool) -> None:
    asks = asks_of_random()
    if not wrong:
        asks = Queries(asks.tokens, asks.position, asks.answer, None, 1)
    if request.node.callspec.params["model"] in NOT_ADDITIVE:
        with pytest.raises(InputError, match=r"normalizes the|masked-language"):
            attribute(model, asks)
        return
    before = count_hooks(model)
    effects, lens, *_ = attribute(model, asks)
    assert count_hooks(model) == before
    logits, number = logits_of(model, asks), np.arange(len(asks))
    expected = logits[number, asks.answer]
    if asks.wrong is not None:
        expected = expected - logits[number, asks.wrong]
    largest = np.abs(np.stack([own for own, _ in effects.values()])).max()
    summed = sum(own for own, _ in effects.values())
    np.testing.assert_allclose(summed, expected, atol=1e-5 * largest)
    np.testing.assert_allclose(lens[-1], expected, atol=1e-5 * largest)
    assert sum(part.kind == "head" for part in effects) == 2 * int(model.cfg.n_heads)
    batched = attribute(model, asks, memory="200kB").effects
    for part, values in effects.items():
        np.testing.assert_allclose(batched[part], values, atol=1e-5 * largest)


def test_logit_attrs_of_transformer_lens(zoo, has_hooked_transformer) -> None:
    """Their direct logit attribution of heads and MLPs; it needs norm weights folded in."""
    if not has_hooked_transformer:
        pytest.skip("TransformerLens 4 has no HookedTransformer")
    model, drawn = zoo("hooked-parallel"), asks_of_random(4)
    asks = Queries(drawn.tokens, np.full(len(drawn), 6), drawn.answer, drawn.wrong, 1)
    pair = torch.from_numpy(asks.answer), torch.from_numpy(drawn.wrong)
    with torch.no_grad():
        _, cache = model.run_with_cache(torch.from_numpy(asks.tokens))
        heads = cache.stack_head_results(pos_slice=-1, return_labels=True)
        parts = cache.decompose_resid(pos_slice=-1, mode="mlp", return_labels=True)
        theirs = {
            name: values
            for stack, names in (heads, parts)
            for name, values in zip(
                names, cache.logit_attrs(stack, pair[0], pair[1], pos_slice=-1), strict=True
            )
        }
    compare(attribute(model, asks)[0], theirs)


def test_a_norm_with_weights_as_transformer_lens_scales_it(zoo, has_hooked_transformer) -> None:
    if not has_hooked_transformer:
        pytest.skip("TransformerLens 4 has no HookedTransformer")
    model, asks = zoo("hooked"), asks_of_random(3)
    assert asks.wrong is not None
    with torch.no_grad():
        _, cache = model.run_with_cache(torch.from_numpy(asks.tokens))
        heads = cache.stack_head_results(apply_ln=True, return_labels=True)
        parts = cache.decompose_resid(mode="mlp", apply_ln=True, return_labels=True)
        directions = model.W_U[:, asks.answer] - model.W_U[:, asks.wrong]
        theirs = {}
        for stack, names in (heads, parts):
            for name, values in zip(names, stack, strict=True):
                at = values[torch.arange(len(asks)), asks.position]
                theirs[name] = (at * model.ln_final.w * directions.T).sum(-1)
    compare(attribute(model, asks)[0], theirs)


def compare(ours: dict[ResidualPart, np.ndarray], theirs: dict[str, torch.Tensor]) -> None:
    compared = 0
    for part, (own, _) in ours.items():
        if part.kind in ("head", "mlp"):
            name = part.name if part.kind == "head" else f"{part.layer}_mlp_out"
            expected = theirs[name].double().numpy()
            atol = 1e-4 * np.abs(expected).max()
            np.testing.assert_allclose(own, expected, rtol=1e-4, atol=atol)
            compared += 1
    assert compared == 2 * 4 + 2


def test_a_head_set_by_hand_is_found_and_shuffled_answers_are_not(texts) -> None:
    model, prompts = movers(), rows(48)
    finding = it.analyze(model, "logit-attribution", data=as_data(prompts))
    assert finding.status == "detected"
    assert finding.evidence.metric == "logit difference"
    assert finding.evidence.sum_error < 1e-9
    by_name = {component.name: component for component in finding.components}
    moves, against = (by_name[head_name(*head)] for head in (MOVES, AGAINST))
    assert moves.status == against.status == "detected"
    assert moves.effect > 0 > against.effect
    assert abs(moves.null_mean) < 0.1 * moves.effect
    assert by_name[head_name(*ONLY_ATTENDS)].status == "not_detected"
    assert head_name(*MOVES) in finding.headline
    assert f"{head_name(*AGAINST)} (against it)" in finding.headline
    last, evidence = finding.lens[-1], finding.evidence
    ends = evidence.total, evidence.total_low, evidence.total_high
    assert (last.value, last.low, last.high) == pytest.approx(ends)
    assert sum(c.effect for c in finding.components) == pytest.approx(finding.evidence.total)
    [shown, lens] = finding.tables()
    assert 0 in shown.highlight
    assert len(lens.rows) == 3
    shuffled = as_data(prompts, torch.from_numpy(np.random.default_rng(0).permutation(48)))
    other = it.analyze(model, "logit-attribution", data=shuffled)
    assert other.status == "not_tested"
    texts(other.headline)
    assert {component.status for component in other.components} <= {"not_tested", None}


def test_what_is_written_for_every_answer_alike_is_no_finding() -> None:
    """A bias towards all names: as large for other prompts' answers."""
    model, prompts = movers(), rows(48)
    assert prompts.answers is not None
    data = as_data(prompts)
    alone = FeatureData(
        data.tokens, data.features, (), answers=data.answers, answer_positions=data.answer_positions
    )
    constant = model.W_U[:, prompts.answers.flatten().unique()].mean(1)
    with torch.no_grad():
        model.blocks[0].attn.W_O[3, 0] = 40 * constant / constant.norm() ** 2
        model.blocks[0].attn.W_V[3] = 0
        model.blocks[0].attn.W_V[3, :, 0] = N_POS * model.W_E[START]
    finding = it.analyze(model, "logit-attribution", data=alone)
    assert finding.evidence.metric == "answer logit"
    by_name = {component.name: component for component in finding.components}
    assert by_name["L0H3"].effect > 20
    assert by_name["L0H3"].status == "uninformative"
    assert by_name[head_name(*MOVES)].status == "detected"


@pytest.mark.parametrize("norm", [None, "LN", "RMS"])
@pytest.mark.parametrize(
    ("frequencies", "wrong", "slots"),
    [
        ((0.5, 0.5), True, 1),
        ((0.85, 0.15), True, 1),
        ((0.7, 0.15, 0.15), False, 1),
        ((0.6, 0.2, 0.2), True, 2),
    ],
)
@pytest.mark.parametrize(
    ("kind", "size"),
    [("constant", 4.0), ("noise token", 4.0), ("position", 2.0), ("true", 3.0), ("true", -2.0)],
)
def test_only_what_varies_with_the_answer_is_found(
    kind, size, frequencies, wrong, slots, norm, has_hooked_transformer
) -> None:
    if not has_hooked_transformer:
        pytest.skip("TransformerLens 4 has no HookedTransformer")
    model = two_heads(kind, len(frequencies), norm, size)
    found = it.analyze(
        model, "logit-attribution", data=clues(frequencies, wrong=wrong, slots=slots)
    )
    by_name = {component.name: component for component in found.components}
    if found.status == "not_tested":
        pytest.skip("a fixed answer is right as often")
    assert by_name["L0H0"].status == "detected"
    component = by_name["L0H1"]
    assert (component.status == "detected") == (kind == "true")
    if kind == "constant":
        assert component.specific == pytest.approx(0, abs=1e-6)
        assert component.null_mean == pytest.approx(component.effect)
    if kind == "true":
        assert component.specific * size > 0


def test_few_orders_of_the_answers_have_no_power() -> None:
    assert smallest_p(np.array([[1]] * 5 + [[2]])) == pytest.approx(1 / 6)
    assert smallest_p(np.array([[1], [2]] * 20)) == pytest.approx(1 / (1 + ORDERS))


def test_without_data_repeated_tokens_ask_for_the_next(analyzed) -> None:
    finding = analyzed("toy:induction", "logit-attribution")
    assert finding.status == "detected"
    assert [c.name for c in finding.components if c.status == "detected"] == ["L1H0"]
    assert len(finding.figures()) == 2


def test_what_is_refused() -> None:
    model = it.load("toy:induction")
    plain = FeatureData(np.arange(16).reshape(2, 8) % 5, np.zeros((2, 0), bool), ())
    with pytest.raises(InputError, match=r"no answers.*--task, or --data"):
        LOGIT_ATTRIBUTION(model, data=plain)
    assert "answers" in str(LOGIT_ATTRIBUTION.unfit(model, plain))
    assert LOGIT_ATTRIBUTION.unfit(model, None) is None
    assert "outputs" in str(LOGIT_ATTRIBUTION.unfit(it.load("toy:xor-2head"), None))
    assert "outputs" in str(LOGIT_ATTRIBUTION.unfit(it.load("toy:sort-distinct-trained"), None))
    with pytest.raises(InputError, match="least"):
        LOGIT_ATTRIBUTION(model, least=0)


@pytest.mark.parametrize(("total", "said"), [(2.0, True), (-2.0, False), (0.0, False)])
def test_half_of_the_metric_is_only_said_to_be_reached_of_a_positive_one(
    total, said, texts
) -> None:
    whole = (total, total - 0.1, total + 0.1, 8, 0.0, 0.1, "performed.")
    evidence = LogitAttributionEvidence("not_tested", "logit difference", *whole)
    lens = [
        LensStep("embedding", 0.0, -0.1, 0.1, "not shown"),
        LensStep("layer 0", total, -3.0, 3.0, "at least"),
    ]
    text = " ".join(sentences([], lens, evidence))
    texts(text)
    assert "embedding" not in text
    assert ("half" in text) == said


def test_whether_half_is_reached_is_decided_on_the_same_prompts() -> None:
    result = it.analyze("toy:induction-trained", "logit-attribution")
    assert [step.half for step in result.lens] == ["less", "less", "at least"]
    assert not result.lens[-1].low > result.evidence.total_high / 2  # the intervals alone overlap


def test_the_table_by_prompt_sums_to_each_prompt_s_metric():
    model = it.load("toy:induction-trained")
    result = it.analyze(model, "logit-attribution")
    data = repeated_answers(model)
    tokens, answers = torch.from_numpy(data.token_matrix()), torch.from_numpy(data.answers)
    with torch.no_grad():
        logits = model(tokens)[torch.arange(len(tokens)), data.answer_positions[:, 0]]
    expected = np.sort(logits.gather(1, answers)[:, 0].numpy())
    rows = result.prompts
    assert np.allclose(np.sort([row.metric for row in rows]), expected, atol=1e-4)
    assert all(np.isclose(row.heads + row.mlps + row.others, row.metric, atol=1e-6) for row in rows)
    heads = {part.name for part in result.components if part.kind == "head"}
    assert {row.largest for row in rows} <= heads
    assert np.mean([row.metric for row in rows]) == pytest.approx(result.evidence.total)
