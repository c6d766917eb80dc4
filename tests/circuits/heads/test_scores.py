"""Head scores end to end: hand-set truth, every kind of model, the same weights in each."""

import copy

import numpy as np
import pytest
import torch

import interp_toolkit as it
from interp_toolkit.circuits import score_heads
from interp_toolkit.circuits.heads.controls import matched_controls
from interp_toolkit.circuits.heads.detectors import as_detector
from interp_toolkit.circuits.heads.patterns import pattern_sums
from interp_toolkit.circuits.heads.scores import detect
from interp_toolkit.circuits.heads.significance import score_families
from interp_toolkit.circuits.metrics.prompts import repeated_prompts
from interp_toolkit.errors import InputError
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.models.weights.view import weights
from interp_toolkit.stats import holm
from interp_toolkit.toys.hand_set import induction as toys

CAUSAL = ("induction", "previous-token", "duplicate-token", "k-hop", "first-token")


def found(model, detectors=CAUSAL, **options):
    scores = detect(model, None, detectors, **options)
    return {s.detector: scores.detected_heads(s.detector) for s in scores.scores}


@pytest.mark.parametrize("d_vocab", [4, 5, 16, 64])
@pytest.mark.parametrize(
    ("build", "expected"),
    [
        ("previous_token", {"previous-token": [(0, 1)]}),
        ("duplicate_token", {"duplicate-token": [(0, 1)]}),
        ("induction", {"previous-token": [(0, 1)], "induction": [(1, 0)]}),
        ("induction_rotary", {"previous-token": [(0, 1)], "induction": [(1, 0)]}),
        ("induction_gqa", {"previous-token": [(0, 1)], "induction": [(1, 2)]}),
        ("induction_decoy", {"previous-token": [(0, 1)], "induction": [(1, 0), (1, 1)]}),
    ],
)
def test_hand_set_heads_are_found_and_no_others(build, expected, d_vocab):
    heads = found(getattr(toys, build)(d_vocab=d_vocab, n_ctx=48))
    assert heads == {name: expected.get(name, []) for name in CAUSAL}


def test_scores_are_the_attention_the_weights_say():
    """Score 2: A = e^2 in closed form, the previous-token head over its q + A."""
    model = toys.previous_token(d_vocab=16, n_ctx=30, score=2.0)
    frame = score_heads(model, detectors=["previous-token"])
    n_controls = 10  # a third of the row: queries 11 to 29 have every control
    queries = np.arange(n_controls + 1, 30)
    A = np.exp(2.0)
    row = frame[(frame.layer == 0) & (frame["head"] == 1)].iloc[0]
    assert row.score == pytest.approx((A / (A + queries)).mean())
    assert row.uniform == pytest.approx((1 / (queries + 1)).mean())
    # controls pay less than uniform attention would, which is then the null
    assert (1 / (A + queries)).mean() < row.uniform
    assert row.null_mean == pytest.approx(row.uniform)
    other = frame[frame["head"] == 0].iloc[0]
    assert other.score == pytest.approx(row.uniform)
    assert other.excess == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("d_vocab", [4, 16, 200])
def test_uniform_attention_is_never_detected(d_vocab):
    cfg = TransformerConfig(
        n_layers=2, d_model=16, n_ctx=40, d_head=8, n_heads=4, d_vocab=d_vocab, attn_only=True
    )
    model = Transformer(cfg)
    for block in model.blocks:
        torch.nn.init.zeros_(block.attn.W_Q)
    scores = detect(model, None, CAUSAL)
    assert not scores.detected.any()
    for s in scores.scores:
        np.testing.assert_allclose(s.excess, 0, atol=1e-6)
        assert (s.p_value > 0.3).all()


@pytest.mark.parametrize("kind", ["own-bare"])
def test_next_token_heads_of_a_bidirectional_model(kind, zoo):
    cfg = TransformerConfig(
        n_layers=1,
        d_model=64,
        n_ctx=24,
        d_head=24,
        n_heads=2,
        d_vocab=30,
        attn_only=True,
        normalization_type=None,
        attention_dir="bidirectional",
    )
    model = Transformer(cfg)
    with torch.no_grad():
        model.pos_embed.W_pos.zero_()
        model.pos_embed.W_pos[:, :24] = torch.eye(24)
        attn = model.blocks[0].attn
        attn.W_Q[1].zero_()
        attn.W_K[1].zero_()
        attn.W_Q[1, :24] = 60 * torch.eye(24)
        attn.W_K[1, 1:24, : 24 - 1] = torch.eye(23)  # key k looks like position k - 1
    assert found(model, ("next-token", "previous-token")) == {
        "next-token": [(0, 1)],
        "previous-token": [],
    }
    assert found(zoo(kind), ("next-token",)) == {"next-token": []}
    with pytest.raises(InputError, match="rules out"):
        detect(toys.previous_token(), None, ["next-token"])


@pytest.mark.parametrize("seed", [0, 2])  # under 2 the rows' differences are significant by chance
def test_a_positional_head_is_no_induction_head(seed):
    """Attention to a fixed distance, where every row repeats after one more: it looks like one."""
    torch.manual_seed(seed)
    cfg = TransformerConfig(
        n_layers=1,
        d_model=80,
        n_ctx=40,
        d_head=40,
        n_heads=2,
        d_vocab=200,
        attn_only=True,
        normalization_type=None,
    )
    model = Transformer(cfg)
    with torch.no_grad():
        model.pos_embed.W_pos.zero_()
        model.pos_embed.W_pos[:, :40] = torch.eye(40)
        attn = model.blocks[0].attn
        attn.W_Q.zero_(), attn.W_K.zero_()
        distance = 16
        attn.W_Q[1, distance:40, : 40 - distance] = 60 * torch.eye(40 - distance)
        attn.W_K[1, :40, :40] = torch.eye(40)
    rows = torch.stack([torch.randperm(200)[:17].repeat(3)[:40] for _ in range(6)])
    scores = detect(model, rows, ["induction"])
    assert scores.scores[0].score[0, 1] > 0.9
    assert scores.scores[0].weakest[0][1] == "displaced"
    assert not scores.detected.any()


def own_copy(model):
    """The same weights in the toolkit's transformer, through the checked view."""
    view, cfg = weights(model), model.cfg
    own = Transformer(
        TransformerConfig(
            n_layers=view.n_layers,
            d_model=view.d_model,
            n_ctx=cfg.n_ctx,
            d_head=view.d_head,
            n_heads=view.n_heads,
            d_vocab=view.d_vocab,
            d_mlp=cfg.d_mlp,
            act_fn="gelu_new",
            eps=1e-5,
        )
    )
    with torch.no_grad():
        own.embed.W_E.copy_(view.W_E)
        own.pos_embed.W_pos.copy_(view.W_pos)
        own.unembed.W_U.copy_(view.W_U)
        own.unembed.b_U.copy_(view.b_U)
        norms = [(own.ln_final, view.final_norm)]
        for layer, block in enumerate(own.blocks):
            attn, mlp = view.layer(layer), view.mlp(layer)
            for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"):
                getattr(block.attn, name).copy_(getattr(attn, name))
            for name in ("W_in", "b_in", "W_out", "b_out"):
                getattr(block.mlp, name).copy_(getattr(mlp, name))
            norms += [(block.ln1, attn.norm), (block.ln2, mlp.norm)]
        for module, norm in norms:
            module.w.copy_(norm.w)
            module.b.copy_(norm.b)
    return own


def test_the_same_weights_give_the_same_scores(zoo, has_hooked_transformer):
    bridge = zoo("gpt2")
    own = own_copy(bridge)
    models = [bridge, own]
    if has_hooked_transformer:
        from transformer_lens import HookedTransformer, HookedTransformerConfig

        cfg = own.cfg
        hooked = HookedTransformer(
            HookedTransformerConfig(
                n_layers=cfg.n_layers,
                d_model=cfg.d_model,
                n_ctx=cfg.n_ctx,
                d_head=cfg.d_head,
                n_heads=cfg.n_heads,
                d_vocab=cfg.d_vocab,
                d_mlp=cfg.d_mlp,
                act_fn="gelu_new",
                normalization_type="LN",
                eps=cfg.eps,
            )
        )
        missing = hooked.load_state_dict(own.state_dict(), strict=False).missing_keys
        assert all(name.endswith(("mask", "IGNORE")) for name in missing)
        models.append(hooked)
    frames = [score_heads(model, detectors=CAUSAL) for model in models]
    for frame in frames[1:]:
        for column in ("score", "uniform", "null_mean", "excess"):
            np.testing.assert_allclose(frame[column], frames[0][column], atol=1e-5)
        assert frame.detected.tolist() == frames[0].detected.tolist()


KINDS = [
    *("own", "own-rotary", "own-bare", "hooked", "hooked-rotary", "native", "native-rotary"),
    *("gpt2", "llama", "neox", "gemma2", "bert", "bloom", "alibi"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_runs(kind, zoo, count_hooks):
    model = zoo(kind)
    frame = score_heads(model, detectors=("induction", "previous-token", "first-token"))
    assert len(frame) == 3 * model.cfg.n_layers * model.cfg.n_heads
    assert frame.score.between(0, 1).all()
    assert not frame.detected.any()
    assert count_hooks(model) == 0


def test_a_users_mask_and_function_find_heads_too():
    model = toys.previous_token(d_vocab=16, n_ctx=32)
    mask = np.eye(32, k=-1, dtype=bool)

    def before(tokens):
        return np.eye(len(tokens), k=-1, dtype=bool)

    frame = score_heads(model, detectors=[mask, before])
    by_mask = frame[(frame.detector == "mask") & frame.detected]
    assert by_mask[["layer", "head"]].values.tolist() == [[0, 1]]
    # as a function of tokens it is asked for evidence that tokens matter, and has none
    assert not frame[frame.detector == "before"].detected.any()


def test_a_users_function_finds_what_depends_on_tokens():
    def after_the_same(tokens):
        same = (tokens[:, None] == tokens[None, :]) & ~np.eye(len(tokens), dtype=bool)
        return np.pad(same, ((0, 0), (1, 0)))[:, :-1] & ~np.eye(len(tokens), dtype=bool)

    frame = score_heads(toys.induction(d_vocab=16, n_ctx=40), detectors=[after_the_same])
    assert frame[frame.detected][["layer", "head"]].values.tolist() == [[1, 0]]


def test_given_tokens_are_used():
    model = toys.induction(d_vocab=40, n_ctx=60)
    tokens = repeated_prompts(model, rows=6, seed=9).tokens
    frame = score_heads(model, tokens)
    assert frame[frame.detected][["detector", "layer", "head"]].values.tolist() == [
        ["induction", 1, 0],
        ["previous-token", 0, 1],
    ]
    one_period = torch.stack([torch.randperm(40)[:25].repeat(2) for _ in range(6)])
    frame = score_heads(model, one_period)  # rows to compare with are added
    assert frame[frame.detected & (frame.detector == "induction")]["head"].tolist() == [0]


def test_rows_without_repeats_say_so():
    model = toys.induction(d_vocab=64, n_ctx=40)
    tokens = torch.stack([torch.randperm(64)[:20] for _ in range(4)])
    scores = detect(model, tokens, ["induction", "previous-token"])
    assert np.isnan(scores.scores[0].score).all()
    assert any("induction" in note for note in scores.notes)
    frame = scores.to_frame()
    assert frame[frame.detected].detector.tolist() == ["previous-token"]


def test_same_seed_same_scores():
    model = toys.induction(d_vocab=16, n_ctx=40)
    first, again = (score_heads(model, seed=5) for _ in range(2))
    assert first.equals(again)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"detectors": ["inductions"]}, "induction"),
        ({"tokens": [[1, 2]]}, "at least 2"),
        ({"memory": 10}, "memory"),
        ({"detectors": [np.eye(10, dtype=bool)]}, r"\[40, 40\]"),
        ({"detectors": [lambda tokens: np.eye(3, dtype=bool)]}, r"\[40, 40\]"),
        ({"tokens": [[1, 2, 3], [1, 2]]}, "one length"),
    ],
)
def test_bad_input_is_one_line(options, what):
    with pytest.raises(InputError, match=what) as failure:
        score_heads(toys.induction(d_vocab=8, n_ctx=40), **options)
    assert "\n" not in str(failure.value)


def test_every_family_of_controls_must_fail(zoo):
    """The p-value is the largest of those that each family gives by itself."""
    model = zoo("own")
    detector = as_detector("induction")
    prompts = repeated_prompts(model, rows=6)
    found = matched_controls(prompts, [detector], causal=True, d_model=int(model.cfg.d_model))
    sums = pattern_sums(model, found)
    flat = np.stack([found.uniform(None)] * int(model.cfg.n_layers))

    def p_of(families):
        part = copy.copy(found)
        part.families = families
        return score_families([detector], part, sums, flat)[0].p_value

    each = np.stack([p_of([family]) for family in found.families])
    assert len(each) == 4
    assert (each.argmax(0) != 2).any()
    np.testing.assert_allclose(p_of(found.families), each.max(0), rtol=1e-12)


def test_the_correction_is_over_all_heads_and_detectors():
    frame = score_heads(toys.induction(d_vocab=16, n_ctx=40))  # where not all of it is 1
    np.testing.assert_allclose(frame.p_adjusted, holm(frame.p_value.to_numpy()))
    assert frame.p_adjusted.min() == pytest.approx(min(1, len(frame) * frame.p_value.min()))


def test_one_detector_may_be_given_by_its_name_alone(texts):
    model = toys.induction(n_ctx=32)
    one, several = (score_heads(model, detectors=d) for d in ("induction", ["induction"]))
    assert one.equals(several)
    with pytest.raises(InputError, match="'induktion'", check=texts):
        score_heads(model, detectors="induktion")


def test_attention_is_the_mean_over_all_queries_with_a_key_of_the_pattern() -> None:
    """Also those whose shifted controls would lie before the first token."""
    model = it.load("toy:induction-trained")
    tokens = torch.randint(0, 32, (8, 24), generator=torch.Generator().manual_seed(0))
    scores = detect(model, tokens, ["previous-token"])
    _, cache = model.run_with_cache(tokens)
    for layer, head in np.ndindex(2, 3):
        pattern = cache[f"blocks.{layer}.attn.hook_pattern"][:, head]
        expected = float(pattern.diagonal(-1, 1, 2).mean())
        assert scores.scores[0].attention[layer, head] == pytest.approx(expected, abs=1e-6)
    assert abs(scores.scores[0].score - scores.scores[0].attention).max() > 0.05
