"""One head cannot separate XOR: a thousand heads, every precision, and where it is not claimed."""

from __future__ import annotations

import collections

import numpy as np
import pytest
import torch

from interp_toolkit import analyze
from interp_toolkit.boolean_functions import threshold_degree
from interp_toolkit.data import truth_table
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.probes.boolean import theorem
from interp_toolkit.probes.estimators.separability import (
    TOLERANCES,
    Separability,
    check_separability,
)
from interp_toolkit.probes.estimators.truth_tables import truth_values

SITE = "blocks.0.hook_resid_post"
TASK = {"tokens": {"0": 0, "1": 1, "query": 2}}
DATA = truth_table(TASK)
TOKENS = torch.tensor(DATA.token_matrix())
XOR = np.array([False, True, True, False])
QUERY = 2


def random_model(
    rng: np.random.Generator,
    *,
    heads: int = 1,
    width: int | None = None,
    std: float | None = None,
    **options: object,
) -> Transformer:
    """An attention-only layer with normal weights; width 2 to 64, with positions half the time."""
    d = int(rng.integers(2, 65)) if width is None else width
    chosen = {
        "n_layers": 1,
        "d_model": d,
        "n_ctx": 3,
        "d_head": int(rng.integers(min(heads, 2), d + 1)),
        "n_heads": heads,
        "d_vocab": 3,
        "d_vocab_out": 2,
        "attn_only": True,
        "biases": False,
        "normalization_type": None,
        "positional_embedding_type": "standard" if rng.random() < 0.5 else "none",
        "dtype": torch.float64,
        "initializer_range": 1 / np.sqrt(d) if std is None else std,
        "seed": int(rng.integers(2**31)),
    }
    return Transformer(TransformerConfig(**(chosen | options))).eval()


def activations_at(model: Transformer, position: int = QUERY) -> torch.Tensor:
    _, cache = model.run_with_cache(TOKENS)
    return cache[SITE][:, position].detach()


def verdict_at(model: Transformer, position: int = QUERY) -> Separability:
    X = activations_at(model, position)
    return check_separability(X[XOR], X[~XOR])


def certificate_error(model: Transformer) -> float:
    """Relative residual of the two combinations under the softmax denominators."""
    Z = theorem.denominators(model, DATA, "0110", QUERY)
    assert isinstance(Z, theorem.Denominators)
    X = activations_at(model).double().numpy()
    return Z.certificate(X[XOR], X[~XOR]).residual / np.linalg.norm(X, axis=1).max()


@pytest.mark.slow
@pytest.mark.parametrize("saturated", [False, True])
def test_no_head_of_a_thousand_separates_xor(saturated: bool) -> None:
    """500 heads at each scale: weights of deviation 1/sqrt(width), and saturated ones of 1."""
    rng = np.random.default_rng(int(saturated))
    found: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    errors: dict[str, list[float]] = collections.defaultdict(list)
    for _ in range(500):
        model = random_model(rng, std=1.0 if saturated else None)
        for precision in ("float64", "float32", "bfloat16"):
            model = model.to(getattr(torch, precision))
            assert theorem.why_not(model, DATA, "0110", SITE, QUERY) is None
            verdict = verdict_at(model)
            found[precision][verdict.status] += 1
            errors[precision].append(certificate_error(model))
            if precision == "float64" and verdict.status == "not_separable":
                _compare_with_denominators(model, verdict)
    for precision, counts in found.items():
        assert counts["separable"] == 0, (precision, counts)
        assert max(errors[precision]) <= TOLERANCES[precision], precision
    assert found["float64"]["not_separable"] >= 400


def _compare_with_denominators(model: Transformer, verdict: Separability) -> None:
    """Where the updates span a plane, the convex weights are unique, so they must agree."""
    X = activations_at(model).numpy()
    s = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)
    if s[1] <= 1e-6 * s[0] or model.cfg.positional_embedding_type == "none":
        return
    Z = theorem.denominators(model, DATA, "0110", QUERY)
    assert verdict.certificate is not None
    # Weights are determined up to rounding over the thinnest side of the quadrilateral.
    tolerance = 1e-12 * s[0] / s[1] * np.abs(X).max() / s[0] + 1e-9
    np.testing.assert_allclose(
        verdict.certificate.positive_weights, Z.positive_weights, atol=tolerance
    )
    np.testing.assert_allclose(
        verdict.certificate.negative_weights, Z.negative_weights, atol=tolerance
    )


@pytest.mark.slow
def test_three_hundred_random_two_head_models_all_separate_it(texts) -> None:
    rng = np.random.default_rng(2)
    for _ in range(300):
        model = random_model(rng, heads=2, width=int(rng.integers(4, 65)))
        verdict = verdict_at(model)
        assert verdict.status == "separable"
        X = activations_at(model).numpy()
        gap = verdict.hyperplane.verify(X[XOR], X[~XOR])
        assert gap > verdict.tolerance
        assert gap == pytest.approx(verdict.margin, rel=1e-9)
        texts(theorem.why_not(model, DATA, "0110", SITE, QUERY))


def test_read_at_x2_one_head_separates_it_and_the_theorem_is_not_claimed(texts) -> None:
    rng = np.random.default_rng(3)
    for _ in range(40):
        width = int(rng.integers(3, 33))
        d_head = int(rng.integers(2, width + 1))
        model = random_model(rng, width=width, d_head=d_head, positional_embedding_type="standard")
        why = theorem.why_not(model, DATA, "0110", SITE, 1)
        texts(why)
        assert verdict_at(model, position=1).status == "separable"


def test_read_at_x2_without_positions_the_four_points_lie_in_a_plane_and_cross() -> None:
    """e(x2) takes two values and the update a mixture of two: 00-11 crosses 01-10 whatever they
    are. It is not the theorem that says so (the query sees a bit), and none is claimed."""
    rng = np.random.default_rng(4)
    for _ in range(10):
        model = random_model(rng, width=16, positional_embedding_type="none")
        assert verdict_at(model, position=1).status == "not_separable"
        assert theorem.why_not(model, DATA, "0110", SITE, 1) is not None


@pytest.mark.parametrize(
    "options",
    [
        {"normalization_type": "LN"},
        {"normalization_type": "RMSPre"},
        {"biases": True},
        {"positional_embedding_type": "rotary", "rotary_dim": 2},
        {"attn_scores_soft_cap": 2.0},
        {"attention_dir": "bidirectional"},
        {"use_attn_scale": False, "attn_scale": 1.0},
    ],
)
def test_it_holds_whatever_the_head_does_before_its_softmax(options: dict[str, object]) -> None:
    """The theorem wants additive denominators and numerators; none of these touches that."""
    rng = np.random.default_rng(4)
    for _ in range(10):
        config = random_model(rng, width=8).cfg.model_dump() | {"d_head": 4, **options}
        model = Transformer(TransformerConfig(**config)).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if ".b_" in name:
                    parameter.copy_(torch.from_numpy(rng.normal(size=parameter.shape)))
        assert theorem.why_not(model, DATA, "0110", SITE, QUERY) is None
        assert certificate_error(model) < 1e-14
        assert verdict_at(model).status == "not_separable"


def test_a_shift_per_row_would_break_the_certificate() -> None:
    """The identity needs one softmax shift for the four inputs; this is what a wrong one does."""
    model = random_model(np.random.default_rng(5), width=8)
    X = activations_at(model).numpy()
    _, cache = model.run_with_cache(TOKENS)
    score = cache["blocks.0.attn.hook_attn_scores"][:, 0, QUERY].detach().numpy()
    Z = np.exp(score - score.max(axis=1, keepdims=True)).sum(axis=1)
    wrong = theorem.Denominators(Z[XOR] / Z[XOR].sum(), Z[~XOR] / Z[~XOR].sum(), 0.0)
    assert wrong.certificate(X[XOR], X[~XOR]).residual > 1e-4
    assert certificate_error(model) < 1e-14


def test_the_hypotheses_are_checked_one_by_one(texts) -> None:
    rng = np.random.default_rng(6)
    model = random_model(rng, width=8)

    def variant(**options: object) -> Transformer:
        return Transformer(TransformerConfig(**(model.cfg.model_dump() | options)))

    def why(m: Transformer, data=DATA, table="0110", hook=SITE, position=QUERY):
        return theorem.why_not(m, data, table, hook, position)

    assert why(model) is None
    assert why(model, table="1001") is None
    texts(why(model, table="0111"))
    texts(why(variant(n_heads=2)))
    assert why(variant(n_layers=2)) == "the model has 2 layers"
    mlp = variant(attn_only=False, d_mlp=4, act_fn="relu")
    texts(why(mlp))
    assert "fixed matrices mix" in why(variant(mixing="1/(n m)"))
    assert verdict_at(variant(mixing="1/(n m)")).status == "not_separable"  # it is linear
    texts(why(model, hook="blocks.0.attn.hook_z"))
    repeated = truth_table({**TASK, "layout": ["a", "b", "a", "query"]})
    assert why(variant(n_ctx=4), data=repeated, position=3) is None
    half = truth_table({**TASK, "layout": ["a", "query"]})
    assert "truth table" in why(model, data=half, position=1)


@pytest.mark.parametrize(("n_bits", "heads"), [(3, 1), (3, 2), (4, 2), (4, 3), (5, 4)])
def test_parity_needs_a_head_for_every_bit(n_bits: int, heads: int) -> None:
    """One fewer, and products of the denominators bring the classes together; with all, they do
    not meet (in float64, where the layer is wide enough for the heads to differ)."""
    table = "".join(str(i.bit_count() % 2) for i in range(2**n_bits))
    data = truth_table({**TASK, "layout": [*"abcde"[:n_bits], "query"]})
    odd = truth_values(table, data.features)
    rng = np.random.default_rng(n_bits + 10 * heads)
    for _ in range(10):
        model = random_model(
            rng, heads=heads, width=16, d_head=4, n_ctx=n_bits + 1,
            positional_embedding_type="standard",
        )  # fmt: skip
        assert theorem.why_not(model, data, table, SITE, n_bits) is None
        Z = theorem.denominators(model, data, table, n_bits)
        assert isinstance(Z, theorem.Denominators)
        _, cache = model.run_with_cache(torch.tensor(data.token_matrix()))
        X = cache[SITE][:, n_bits].detach().numpy()
        assert Z.certificate(X[odd], X[~odd]).residual <= 1e-13 * np.linalg.norm(X, axis=1).max()
        assert Z.sum_difference < 1e-13
        assert check_separability(X[odd], X[~odd]).status != "separable"


def test_with_uneven_weights_where_the_function_is_no_parity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The weights mu of the degree's certificate are needed: denominators alone do not do."""
    table = "01100000"  # XOR of the last two where the first is 0: degree 2, so one head fails
    data = truth_table({**TASK, "layout": ["a", "b", "c", "query"]})
    true = truth_values(table, data.features)
    mu = threshold_degree(table).weights
    assert sorted(mu.tolist()) == [0, 0, 0, 0, 1, 1, 1, 1]
    model = random_model(
        np.random.default_rng(8), width=16, n_ctx=4, positional_embedding_type="standard"
    )
    Z = theorem.denominators(model, data, table, 3)
    assert isinstance(Z, theorem.Denominators)
    _, cache = model.run_with_cache(torch.tensor(data.token_matrix()))
    X = cache[SITE][:, 3].detach().numpy()
    assert Z.certificate(X[true], X[~true]).residual < 1e-13
    monkeypatch.setattr(theorem, "_mu", lambda table, data: np.ones(len(data)))
    wrong = theorem.denominators(model, data, table, 3)
    assert isinstance(wrong, theorem.Denominators)
    assert wrong.certificate(X[true], X[~true]).residual > 1e-4


def test_the_verdict_says_which_weights_the_certificate_has() -> None:
    """Of XOR the denominators themselves; of a function that rests on some inputs, weighted."""
    model = random_model(
        np.random.default_rng(9), width=16, n_ctx=4, positional_embedding_type="standard"
    )
    data = truth_table({**TASK, "layout": ["a", "b", "c", "query"]})
    for table, even in (("01101001", True), ("01100000", False)):
        result = analyze(model, "boolean", table=table, data=data, reinitialisations=0)
        site = result.sites[result.focus]
        assert site.theorem == "applies"
        assert site.evenly_weighted is even
        assert ("weighted" in result.verdict) is not even


def test_a_query_that_sees_the_bits_is_found_by_looking_at_it(texts) -> None:
    """Positions cannot tell here; the residual before the head is read and compared."""
    model = random_model(np.random.default_rng(7), width=8)
    leak = torch.zeros(4, 3, 8, dtype=torch.float64)
    leak[1, QUERY] = 1.0

    def edit(value: torch.Tensor, hook: object) -> torch.Tensor:
        return value + leak

    with model.hooks(fwd_hooks=[("hook_embed", edit)]):
        reason = theorem.denominators(model, DATA, "0110", QUERY)
    texts(reason)


@pytest.mark.parametrize("normalization", [None, "LN"])
def test_on_a_native_bridge_whose_score_hook_holds_no_scores(normalization: str | None) -> None:
    """The scores are then computed from queries and keys; the certificate is as exact."""
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge import TransformerBridge

    config = TransformerBridgeConfig(
        d_model=8,
        d_head=4,
        n_layers=1,
        n_ctx=3,
        n_heads=1,
        d_vocab=3,
        attn_only=True,
        normalization_type=normalization,
        seed=0,
    )
    bridge = TransformerBridge.boot_native(config, dtype=torch.float64)
    assert theorem.why_not(bridge, DATA, "0110", SITE, QUERY) is None
    assert certificate_error(bridge) < 1e-12
    assert verdict_at(bridge).status != "separable"
