"""Heads that mix by fixed matrices: scored as they are, never taken for what they cannot be."""

import numpy as np
import pytest
import torch
from head_outputs import head_outputs

from interp_toolkit import InputError, ablate
from interp_toolkit.circuits.heads.analysis import HEADS
from interp_toolkit.circuits.heads.scores import detect, score_heads
from interp_toolkit.circuits.qk_ov import OV, QK
from interp_toolkit.circuits.weights.composition import composition_scores
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.random_attention.variants import VARIANTS, variant_config

VARIANCES = ("1/(d_head m)", "1/(n m)", "1/sqrt(n m)")


def model_of(variant="mixit", seed=0, **options):
    sizes = {"n_layers": 2, "n_heads": 4, "d_model": 32, "n_ctx": 24, "d_vocab": 40, **options}
    return Transformer(variant_config(variant, seed=seed, **sizes)).eval()


@pytest.mark.parametrize("variance", VARIANCES)
def test_random_mixing_is_no_kind_of_head(variance, texts):
    """48 heads a variance; their shares on any kind's targets cancel, as signs are random."""
    for seed in range(6):
        scores = detect(model_of(seed=seed, mixing=variance), seed=seed)
        assert not scores.detected.any()
        assert scores.kinds == ("signed", "signed")
        texts(scores.notes)
        for kind in scores.scores:
            assert np.abs(kind.score).max() < 0.15
    assert score_heads(model_of()).shape[0] == 3 * 8


def test_a_score_is_the_share_of_a_rows_absolute_values():
    model = model_of(mixing="1/sqrt(n m)")
    tokens = torch.randint(40, (3, 24), generator=torch.Generator().manual_seed(0))
    frame = score_heads(model, tokens, detectors=("previous-token",))
    for (layer, head), score in frame.groupby(["layer", "head"]).score:
        mixing = model.blocks[layer].attn.mixing[head]
        shares = {q: float(mixing[q, q - 1] / mixing[q].abs().sum()) for q in range(1, 24)}
        first = {start: np.mean([shares[q] for q in range(start, 24)]) for start in range(1, 24)}
        # the first queries, whose controls would lie before the row, are left out
        assert min(abs(score.item() - value) for value in first.values()) < 1e-6


def test_a_matrix_that_moves_every_token_one_on_is_a_previous_token_head():
    """And no induction head, whatever the tokens: the detectors can see fixed mixing."""
    model = model_of(n_layers=1)
    shift = torch.eye(24).roll(1, 0)
    shift[0] = torch.eye(24)[0]
    model.blocks[0].attn.mixing[2] = shift
    scores = detect(model)
    assert scores.detected_heads("previous-token") == [(0, 2)]
    assert scores.detected_heads("induction") == []
    assert scores.detected_heads("duplicate-token") == []


def test_the_heads_analysis_runs_and_says_that_there_is_none(texts):
    result = HEADS(model_of())
    assert result.status == "not_tested"
    texts(result.findings)
    assert not any(head.detected for head in result.heads)


def test_heads_can_be_ablated_and_what_they_write_adds_up():
    model = model_of()
    tokens = torch.randint(40, (6, 20), generator=torch.Generator().manual_seed(1))
    written = head_outputs(model, tokens, 1)
    _, cache = model.run_with_cache(tokens)
    torch.testing.assert_close(written.sum(1), cache["attn_out", 1][:, -1], rtol=0, atol=1e-5)
    with ablate(model, [(1, 2)], how="zero"):
        _, ablated = model.run_with_cache(tokens)
    expected = cache["attn_out", 1][:, -1] - written[:, 2]
    torch.testing.assert_close(ablated["attn_out", 1][:, -1], expected, rtol=0, atol=1e-5)


def test_what_needs_queries_and_keys_says_that_there_are_none(texts):
    model = model_of()
    with pytest.raises(InputError, match="layer 0", check=texts):
        composition_scores(model)
    with pytest.raises(InputError, match="layer 0", check=texts):
        QK(model, layer=0, head=0)
    qk = QK(model)
    texts(qk.notes)
    assert all(record.qk_matching is None for record in qk.heads)
    ov = OV(model)
    assert not any("matching" in note for note in ov.notes)
    assert all(record.ov_copying is not None for record in ov.heads)


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "mixit"])
def test_the_other_variants_are_models_like_any_other(variant, texts):
    model = model_of(variant, biases=True, tied_embeddings=True)
    composition = composition_scores(model)
    assert np.isfinite(composition.score[:, 0, :, 1]).all()
    texts(composition.notes)
    assert all(record.qk_matching is not None for record in QK(model).heads)
