"""The hand-set heads against their closed forms, their answers, and what ablating them does."""

from __future__ import annotations

import importlib.util
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tiny_models import as_hooked_transformer

from interp_toolkit.circuits.metrics.prompts import repeated_prompts
from interp_toolkit.errors import InputError
from interp_toolkit.models.running.interventions import ablate
from interp_toolkit.toys.hand_set import induction as toys
from interp_toolkit.toys.hand_set.heads import ROTARY_BASE, ROTARY_PAIRS

CIRCUITS = [toys.induction, toys.induction_rotary, toys.induction_gqa, toys.induction_decoy]
ALL = [*CIRCUITS, toys.previous_token, toys.duplicate_token, toys.decoy]


def pattern(model, tokens: torch.Tensor, head: tuple[int, int]) -> np.ndarray:
    """[row query key]"""
    _, cache = model.run_with_cache(tokens)
    return cache["pattern", head[0]][:, head[1]].detach().numpy()


def tokens_of(model, repeated: bool = True, rows: int = 6) -> torch.Tensor:
    if repeated:
        return repeated_prompts(model, rows=rows, seed=3).tokens
    generator = torch.Generator().manual_seed(4)
    cfg = model.cfg
    return torch.randint(cfg.d_vocab, (rows, cfg.n_ctx), generator=generator)


def second_repeat(model, prompts) -> tuple[float, float]:
    """Loss and accuracy on the next tokens that the context tells."""
    with torch.no_grad():
        logits = model(prompts.tokens)
    repeated, answers = prompts.repeated(), prompts.tokens.roll(-1, dims=1)
    loss = F.cross_entropy(logits[repeated], answers[repeated]).item()
    return loss, (logits.argmax(-1) == answers)[repeated].double().mean().item()


def softmax(scores: np.ndarray) -> np.ndarray:
    """Over keys, causal: what is after the query is left out."""
    n_pos = scores.shape[-1]
    scores = np.where(np.tril(np.ones((n_pos, n_pos), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


@pytest.mark.parametrize("score", [20.0, 3.0, 0.0])
@pytest.mark.parametrize("d_vocab", [4, 64])
def test_the_previous_token_head_has_its_closed_form(d_vocab: int, score: float) -> None:
    model = toys.previous_token(d_vocab, score=score)
    found = pattern(model, tokens_of(model), (0, 1))
    a = math.exp(score)
    for q in (1, 2, 40, 95):
        expected = np.full(q + 1, 1 / (a + q))
        expected[q - 1] = a / (a + q)
        np.testing.assert_allclose(found[:, q, : q + 1], [expected] * len(found), atol=1e-12)


def test_the_previous_token_head_names_the_token_before() -> None:
    model = toys.previous_token()
    tokens = tokens_of(model, repeated=False)
    assert torch.equal(model(tokens).argmax(-1)[:, 1:], tokens[:, :-1])


@pytest.mark.parametrize("score", [20.0, 4.0])
@pytest.mark.parametrize("d_vocab", [4, 16, 64])
def test_the_duplicate_token_head_has_its_closed_form(d_vocab: int, score: float) -> None:
    model = toys.duplicate_token(d_vocab, score=score)
    tokens = tokens_of(model, repeated=False)
    found = pattern(model, tokens, (0, 1))
    a = math.exp(score)
    for row, ids in enumerate(tokens.tolist()):
        for q in range(len(ids)):
            earlier = [k for k in range(q) if ids[k] == ids[q]]
            total = len(earlier) * a + math.sqrt(a) + q - len(earlier)
            assert found[row, q, earlier].sum() == pytest.approx(len(earlier) * a / total)
            assert found[row, q, q] == pytest.approx(math.sqrt(a) / total)


def previous_pattern(n_pos: int, score: float) -> np.ndarray:
    q, k = np.indices((n_pos, n_pos))
    return softmax(score * (k == q - 1))


def rotary_pattern(n_pos: int, score: float) -> np.ndarray:
    """Scores c Σ cos(θ_i (q - k - 1)), the best at a distance other than 1 `score` behind."""
    q, k = np.indices((n_pos, n_pos))
    frequencies = ROTARY_BASE ** (-np.arange(ROTARY_PAIRS) / ROTARY_PAIRS)
    likeness = np.cos(frequencies * (q - k - 1)[..., None]).sum(-1)
    visible = (k <= q) & (k != q - 1)
    return softmax(score * likeness / (ROTARY_PAIRS - likeness[visible].max()))


@pytest.mark.parametrize(("d_vocab", "score"), [(4, 6.0), (16, 6.0), (64, 20.0)])
@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("repeated", [False, True])
def test_the_induction_head_attends_by_what_the_first_layer_wrote(
    d_vocab: int, score: float, rotary: bool, repeated: bool
) -> None:
    build = toys.induction_rotary if rotary else toys.induction
    model = build(d_vocab, score=score)
    tokens = tokens_of(model, repeated)
    n_pos = tokens.shape[1]
    first = (rotary_pattern if rotary else previous_pattern)(n_pos, score)
    np.testing.assert_allclose(pattern(model, tokens, (0, 1)), [first] * len(tokens), atol=1e-9)
    one_hot = np.eye(d_vocab)[tokens.numpy()]
    keys = first @ one_hot
    if rotary:
        keys = keys - one_hot
    else:
        keys[:, 0] -= 1.0
    second = softmax(score * one_hot @ keys.transpose(0, 2, 1))
    np.testing.assert_allclose(pattern(model, tokens, (1, 0)), second, atol=1e-9)


@pytest.mark.parametrize("build", CIRCUITS)
def test_the_induction_share_is_the_documented_one(build) -> None:
    model = build()
    head = toys.GQA_INDUCTION_HEAD if build is toys.induction_gqa else toys.INDUCTION_HEAD
    tokens = tokens_of(model)
    found = pattern(model, tokens, head)
    a, rotary = math.exp(toys.SCORE), build is toys.induction_rotary
    for row, ids in enumerate(tokens.tolist()):
        for q in range(1, len(ids)):
            earlier = [k for k in range(q) if ids[k] == ids[q]]
            m, is_first = len(earlier), ids[q] == ids[0]
            rest = q - m + (1 if is_first else 1 / a)
            if rotary:
                rest = (q + 1 - 2 * m + m / a) if is_first else (q - 2 * m + (m + 1) / a)
            share = found[row, q, [k + 1 for k in earlier]].sum()
            assert share == pytest.approx(m * a / (m * a + rest), rel=1e-5)


@pytest.mark.parametrize("build", CIRCUITS)
def test_the_second_repeat_is_known_and_only_by_the_induction_head(build) -> None:
    model = build()
    prompts = repeated_prompts(model, rows=8, seed=1)
    loss, accuracy = second_repeat(model, prompts)
    assert accuracy == 1.0
    assert loss == pytest.approx(math.log(1 + 63 * math.exp(-toys.GAIN)), rel=1e-3)
    head = toys.GQA_INDUCTION_HEAD if build is toys.induction_gqa else toys.INDUCTION_HEAD
    with ablate(model, [head], "zero"):
        assert second_repeat(model, prompts)[0] == pytest.approx(math.log(64), rel=1e-12)
    for heads in ([head], [toys.PREVIOUS_HEAD]):
        with ablate(model, heads, "mean"):
            loss, accuracy = second_repeat(model, prompts)
        assert accuracy < 0.5
        assert loss > 1


@pytest.mark.parametrize("build", [toys.induction_decoy, toys.decoy])
def test_the_decoy_attends_like_an_induction_head_and_does_nothing(build) -> None:
    model, real = build(), toys.induction()
    prompts = repeated_prompts(model, rows=4, seed=2)
    attended = pattern(model, prompts.tokens, toys.DECOY_HEAD)
    expected = pattern(real, prompts.tokens, toys.INDUCTION_HEAD)
    np.testing.assert_allclose(attended, expected, atol=1e-6)
    before = model(prompts.tokens)
    for how in ("zero", "mean", "resample"):
        with ablate(model, [toys.DECOY_HEAD], how):
            assert torch.equal(model(prompts.tokens), before)


def test_without_an_induction_head_nothing_is_predicted() -> None:
    model = toys.decoy()
    assert (model(tokens_of(model)) == 0).all()


@pytest.mark.parametrize("build", ALL)
def test_heads_that_are_not_named_attend_uniformly(build) -> None:
    model = build(d_vocab=8)
    tokens = tokens_of(model, repeated=False)
    uniform = softmax(np.zeros((96, 96)))
    np.testing.assert_allclose(pattern(model, tokens, (0, 0)), [uniform] * 6, atol=1e-15)


def test_grouped_heads_share_keys_and_values() -> None:
    attn = toys.induction_gqa().blocks[1].attn
    assert attn._W_K.shape[0] == 2
    assert torch.equal(attn.W_K[2], attn.W_K[3])
    assert attn.W_K[2].abs().sum() > 0
    assert attn.W_K[:2].abs().sum() == 0


def test_both_rotary_pairings_compute_the_same() -> None:
    halves, neighbours = (toys.induction_rotary(adjacent_pairs=p) for p in (False, True))
    tokens = tokens_of(halves)
    assert neighbours.cfg.rotary_adjacent_pairs
    torch.testing.assert_close(halves(tokens), neighbours(tokens), rtol=0, atol=1e-9)


@pytest.mark.parametrize("build", ALL)
def test_dtypes_agree_and_building_repeats(build) -> None:
    double, single, again = build(), build(dtype=torch.float32), build()
    assert not double.training
    state, other = double.state_dict(), again.state_dict()
    assert all(torch.equal(state[name], other[name]) for name in state)
    tokens = tokens_of(double)
    torch.testing.assert_close(single(tokens).double(), double(tokens), rtol=0, atol=1e-3)


@pytest.mark.skipif(
    importlib.util.find_spec("transformer_lens.HookedTransformer") is None,
    reason="TransformerLens 4 has no HookedTransformer",
)
@pytest.mark.parametrize("build", [toys.induction, toys.induction_rotary, toys.duplicate_token])
def test_hooked_transformer_computes_the_same(build) -> None:
    ours = build(d_vocab=16)
    theirs = as_hooked_transformer(ours)
    tokens = tokens_of(ours, repeated=False)
    torch.testing.assert_close(theirs(tokens), ours(tokens), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("d_vocab", "n_ctx"), [(1, 96), (16, 1)])
def test_too_small_a_model_is_refused(d_vocab: int, n_ctx: int) -> None:
    with pytest.raises(InputError, match="at least 2 tokens and 2 positions"):
        toys.induction(d_vocab, n_ctx)


@pytest.mark.parametrize(
    "toy",
    [
        toys.PREVIOUS_TOKEN,
        toys.DUPLICATE_TOKEN,
        toys.INDUCTION,
        toys.INDUCTION_ROTARY,
        toys.INDUCTION_GQA,
        toys.INDUCTION_DECOY,
        toys.DECOY,
    ],
)
def test_the_record_names_heads_that_exist_and_is_no_boolean_task(toy) -> None:
    model = toy.build()
    assert not toy.task.keys() & {"function", "tokens", "layout"}
    for heads in toy.task["heads"].values():
        for layer, head in heads:
            assert (
                model.blocks[layer].attn.W_Q[head].abs().sum()
                + (model.cfg.positional_embedding_type == "rotary")
                > 0
            )
