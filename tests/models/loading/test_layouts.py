"""Other people's names: the same logits as the model that they were saved from."""

import json

import pytest
import torch
from torch import nn

from interp_toolkit import InputError, load
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.loading.parameters.names import unwrap_names
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer

N_LAYERS, D_MODEL, N_HEADS, N_CTX, D_VOCAB, D_MLP = 2, 16, 4, 9, 11, 24
D_HEAD = D_MODEL // N_HEADS
TOKENS = torch.randint(0, D_VOCAB, (5, N_CTX), generator=torch.Generator().manual_seed(2))
SIZES = {"n_layers": N_LAYERS, "d_model": D_MODEL, "d_head": D_HEAD, "n_heads": N_HEADS}
SIZES |= {"n_ctx": N_CTX, "d_vocab": D_VOCAB}


def randomised(model):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def agree(ours, expected) -> bool:
    with torch.no_grad():
        return torch.allclose(ours(TOKENS), expected, atol=2e-5, rtol=1e-4)


# --- GPT-2, as transformers saves it


def gpt2(kind="GPT2LMHeadModel"):
    import transformers

    config = transformers.GPT2Config(
        vocab_size=D_VOCAB,
        n_positions=N_CTX,
        n_embd=D_MODEL,
        n_layer=N_LAYERS,
        n_head=N_HEADS,
        n_inner=D_MLP,
    )
    torch.manual_seed(0)
    return randomised(getattr(transformers, kind)(config))


GIVEN = {"n_heads": N_HEADS, "act_fn": "gelu_new"}


@pytest.mark.parametrize("prefix", ["", "module.", "backbone."])
@pytest.mark.parametrize("keys", [None, "gpt2"])
def test_gpt2_with_its_head(tmp_path, prefix, keys):
    model = gpt2()
    expected = model(TOKENS).logits
    state = {prefix + name: t for name, t in model.state_dict().items()}
    if prefix == "module.":
        masks = {f"{prefix}transformer.h.{i}.attn.bias": torch.ones(1, 1, 9, 9) for i in range(2)}
        state |= masks  # older versions saved the causal masks too
    torch.save(state, tmp_path / "model.pt")
    if prefix == "backbone.":  # lm_head stands under it as well: no file of GPT-2's own
        state = {n.replace(f"{prefix}transformer.", prefix): t for n, t in state.items()}
        torch.save(state, tmp_path / "model.pt")
    loaded = load(tmp_path / "model.pt", keys=keys, **GIVEN)
    assert agree(loaded, expected)
    assert "gpt2's names" in record_of(loaded).assumptions


@pytest.mark.parametrize("prefix", ["", "transformer.", "backbone."])
def test_gpt2_without_a_head(tmp_path, prefix):
    model = gpt2("GPT2Model")
    hidden = model(TOKENS).last_hidden_state
    state = {prefix + name: t for name, t in model.state_dict().items()}
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises(InputError) as caught:
        load(tmp_path / "model.pt")
    for name in ("n_heads", "act_fn", "tied_embeddings"):  # all at once
        assert f"--set {name}=" in str(caught.value)
    assert agree(load(tmp_path / "model.pt", tied_embeddings="false", **GIVEN), hidden)
    tied = load(tmp_path / "model.pt", tied_embeddings="true", **GIVEN)
    assert agree(tied, hidden @ model.wte.weight.T)


def test_a_number_of_heads_that_does_not_fit(tmp_path):
    torch.save(gpt2().state_dict(), tmp_path / "model.pt")
    with pytest.raises(InputError, match=r"c_attn\.weight has shape .* does not match .*head=5"):
        load(tmp_path / "model.pt", n_heads=5, act_fn="gelu_new")


def test_a_layout_that_does_not_fit_is_told(tmp_path):
    torch.save(gpt2().state_dict(), tmp_path / "model.pt")
    with pytest.raises(InputError, match=r"has shape .* does not match"):
        load(tmp_path / "model.pt", keys="nanogpt", **GIVEN)


def test_an_axis_of_two_sizes_is_told_with_where_it_had_the_other(tmp_path, texts):
    tensors = {"up.weight": torch.zeros(6, 4), "down.weight": torch.zeros(4, 6)}
    torch.save(tensors, tmp_path / "model.pt")
    keys = {
        "up.weight": {"to": "blocks.0.mlp.W_in", "axes": "a b -> b a"},
        "down.weight": {"to": "blocks.0.mlp.W_out", "axes": "a b -> b a"},
    }
    with pytest.raises(InputError, match=r"up\.weight\)", check=texts):
        load(tmp_path / "model.pt", keys=keys, **GIVEN)


def test_a_misshapen_tensor_is_named(tmp_path):
    state = {**gpt2().state_dict(), "transformer.h.1.mlp.c_fc.weight": torch.zeros(5, 7)}
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises(InputError, match=r"h\.1\.mlp\.c_fc\.weight has shape \[5, 7\]"):
        load(tmp_path / "model.pt", **GIVEN)


def test_an_extra_tensor_is_named_and_can_be_ignored(tmp_path, texts):
    model = gpt2()
    state = {**model.state_dict(), "score.weight": torch.zeros(3, D_MODEL)}
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises(InputError, match=r"score\.weight", check=texts):
        load(tmp_path / "model.pt", **GIVEN)
    loaded = load(tmp_path / "model.pt", ignore=["score.weight"], **GIVEN)
    assert agree(loaded, model(TOKENS).logits)


# --- nanoGPT, which stores its matrices output-first


class NanoNorm(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(D_MODEL))
        self.bias = nn.Parameter(torch.zeros(D_MODEL)) if bias else None

    def forward(self, x):
        return nn.functional.layer_norm(x, (D_MODEL,), self.weight, self.bias, 1e-5)


class NanoAttention(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.c_attn = nn.Linear(D_MODEL, 3 * D_MODEL, bias=bias)
        self.c_proj = nn.Linear(D_MODEL, D_MODEL, bias=bias)
        self.register_buffer("bias", torch.ones(N_CTX, N_CTX).tril()[None, None])

    def forward(self, x):
        batch, n_pos, _ = x.shape
        q, k, v = (
            part.view(batch, n_pos, N_HEADS, D_HEAD).transpose(1, 2)
            for part in self.c_attn(x).split(D_MODEL, dim=2)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, n_pos, D_MODEL))


class NanoMLP(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.c_fc = nn.Linear(D_MODEL, D_MLP, bias=bias)
        self.c_proj = nn.Linear(D_MLP, D_MODEL, bias=bias)

    def forward(self, x):
        return self.c_proj(nn.functional.gelu(self.c_fc(x)))


class NanoBlock(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.ln_1, self.attn = NanoNorm(bias), NanoAttention(bias)
        self.ln_2, self.mlp = NanoNorm(bias), NanoMLP(bias)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class NanoGPT(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(D_VOCAB, D_MODEL),
                "wpe": nn.Embedding(N_CTX, D_MODEL),
                "h": nn.ModuleList(NanoBlock(bias) for _ in range(N_LAYERS)),
                "ln_f": NanoNorm(bias),
            }
        )
        self.lm_head = nn.Linear(D_MODEL, D_VOCAB, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, tokens):
        parts = self.transformer
        x = parts["wte"](tokens) + parts["wpe"](torch.arange(tokens.shape[1]))
        for block in parts["h"]:
            x = block(x)
        return self.lm_head(parts["ln_f"](x))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("keys", [None, "nanogpt"])
def test_nanogpt(tmp_path, bias, keys):
    model = randomised(NanoGPT(bias))
    state = {f"_orig_mod.{name}": t for name, t in model.state_dict().items()}
    torch.save({"model": state, "iter_num": 3}, tmp_path / "ckpt.pt")
    loaded = load(tmp_path / "ckpt.pt", keys=keys, n_heads=str(N_HEADS), act_fn="gelu")
    assert agree(loaded, model(TOKENS))
    assert loaded.cfg.normalization_type == "LN"
    saved = {"model": state, "model_args": {"n_head": N_HEADS, "bias": bias}}
    torch.save(saved, tmp_path / "ckpt.pt")
    assert agree(load(tmp_path / "ckpt.pt", act_fn="gelu"), model(TOKENS))


# --- TransformerLens' forebears, whose matrices multiplied from the left


def own(**options) -> Transformer:
    options = {"normalization_type": None, "d_mlp": D_MLP, "act_fn": "relu", **options}
    return randomised(Transformer(TransformerConfig(**SIZES, **options, seed=0)))


def grokking(model) -> dict[str, torch.Tensor]:
    """As the code of "Progress measures for grokking" names and stores it."""
    state = {}
    for name, tensor in model.state_dict().items():
        inner = name.rpartition(".")[2]
        if inner in ("W_Q", "W_K", "W_V"):
            tensor = tensor.transpose(1, 2)
        elif inner == "W_O":
            tensor = tensor.flatten(0, 1).T
        elif inner in ("W_E", "W_in", "W_out"):
            tensor = tensor.T
        elif inner in ("b_Q", "b_K", "b_V", "b_O", "b_U"):
            continue
        state[name] = tensor.contiguous()
    for layer in range(model.cfg.n_layers):
        state[f"blocks.{layer}.attn.mask"] = torch.ones(N_CTX, N_CTX).tril()
    return state


def easy_transformer(model) -> dict[str, torch.Tensor]:
    """As EasyTransformer stored it before October 2022."""
    state = {}
    for name, tensor in model.state_dict().items():
        turned = name.rpartition(".")[2].startswith("W_") and not name.startswith("pos_embed")
        state[name] = (tensor.transpose(-1, -2) if turned else tensor).contiguous()
    return state


def without_attention_biases(model):
    for name, parameter in model.named_parameters():
        if name.rpartition(".")[2] in ("b_Q", "b_K", "b_V", "b_O", "b_U"):
            parameter.data.zero_()
    return model


@pytest.mark.parametrize("keys", [None, "easytransformer"])
@pytest.mark.parametrize("attn_only", [True, False])
def test_the_grokking_code(tmp_path, keys, attn_only):
    options = {"attn_only": True, "biases": False} if attn_only else {}
    model = without_attention_biases(own(**options))
    saved = {"model": grokking(model), "epoch": 3, "train_loss": 0.1}
    torch.save(saved, tmp_path / "model.pth")
    given = {} if attn_only else {"act_fn": "relu"}
    loaded = load(tmp_path / "model.pth", keys=keys, **given)
    assert agree(loaded, model(TOKENS))
    assert any("matrices turned" in phrase for phrase in record_of(loaded).assumptions)


class Config:
    """The grokking code's configuration, pickled beside the weights."""

    def __init__(self):
        vars(self).update(lr=1e-3, d_model=D_MODEL, num_heads=N_HEADS, n_ctx=N_CTX)
        vars(self).update(act_type="ReLU", fn_name="add", p=D_VOCAB - 1)


@pytest.mark.parametrize("zipped", [True, False])
def test_the_grokking_code_with_its_configuration(tmp_path, zipped):
    model = without_attention_biases(own())
    saved = {"model": grokking(model), "config": Config(), "epoch": 3}
    torch.save(saved, tmp_path / "model.pth", _use_new_zipfile_serialization=zipped)
    loaded = load(tmp_path / "model.pth")
    assert agree(loaded, model(TOKENS))
    assert any("fn_name, lr, p" in told for told in record_of(loaded).assumptions)


@pytest.mark.parametrize("turned_positions", [True, False])
def test_easy_transformer(tmp_path, turned_positions):
    model = own(normalization_type="LN")
    state = easy_transformer(model)
    if turned_positions:
        state["pos_embed.W_pos"] = state["pos_embed.W_pos"].T.contiguous()
    torch.save(state, tmp_path / "model.pt")
    assert agree(load(tmp_path / "model.pt", act_fn="relu"), model(TOKENS))


def test_todays_names_and_shapes_are_not_turned(tmp_path):
    model = own()
    torch.save(model.state_dict(), tmp_path / "model.pt")
    assert agree(load(tmp_path / "model.pt", act_fn="relu"), model(TOKENS))


def test_shapes_that_decide_nothing_are_told(tmp_path):
    square = {"n_heads": 1, "d_head": 16, "d_vocab": 16, "d_mlp": 16, "act_fn": "relu"}
    options = SIZES | square | {"normalization_type": None, "seed": 0}
    model = randomised(Transformer(TransformerConfig(**options)))
    torch.save(model.state_dict(), tmp_path / "model.pt")
    loaded = load(tmp_path / "model.pt", act_fn="relu")
    assert agree(loaded, model(TOKENS))
    assert any("from the right" in told for told in record_of(loaded).assumptions)
    torch.save(easy_transformer(model), tmp_path / "model.pt")
    turned = load(tmp_path / "model.pt", keys="easytransformer", act_fn="relu")
    assert agree(turned, model(TOKENS))


# --- a mapping of one's own


LISTED = {
    "tok.weight": "embed.W_E",
    "pos.weight": "pos_embed.W_pos",
    "layers.{layer}.heads.{head}.W_Q.weight": {
        "to": "blocks.{layer}.attn.W_Q",
        "axes": "d_head d_model -> d_model d_head",
    },
    "layers.{layer}.heads.{head}.kv.weight": {
        "to": ["blocks.{layer}.attn.W_K", "blocks.{layer}.attn.W_V"],
        "axes": "(parts d_head) d_model -> parts d_model d_head",
    },
    "layers.{layer}.W_O.weight": {
        "to": "blocks.{layer}.attn.W_O",
        "axes": "d_model (head d_head) -> head d_head d_model",
    },
    "unembed.weight": {"to": "unembed.W_U", "axes": "d_vocab d_model -> d_model d_vocab"},
    "layers.{layer}.mask": None,
}


def listed(model) -> dict[str, torch.Tensor]:
    """Each head on its own, keys and values together, all as `nn.Linear` stores them."""
    state = {"tok.weight": model.W_E, "pos.weight": model.W_pos, "unembed.weight": model.W_U.T}
    for layer, block in enumerate(model.blocks):
        attn, name = block.attn, f"layers.{layer}"
        state[f"{name}.W_O.weight"] = attn.W_O.flatten(0, 1).T
        state[f"{name}.mask"] = torch.ones(N_CTX, N_CTX).tril()
        for head in range(N_HEADS):
            kv = torch.cat([attn.W_K[head].T, attn.W_V[head].T])
            state[f"{name}.heads.{head}.W_Q.weight"] = attn.W_Q[head].T
            state[f"{name}.heads.{head}.kv.weight"] = kv
    return {name: tensor.detach().clone() for name, tensor in state.items()}


@pytest.mark.parametrize("how", ["mapping", "file"])
def test_a_mapping_of_names(tmp_path, how):
    model = own(attn_only=True, biases=False)
    torch.save(listed(model), tmp_path / "model.pt")
    (tmp_path / "keys.json").write_text(json.dumps(LISTED))
    keys = LISTED if how == "mapping" else str(tmp_path / "keys.json")
    assert agree(load(tmp_path / "model.pt", keys=keys), model(TOKENS))


def test_a_number_that_stands_twice_in_a_name_is_the_same_one(tmp_path, texts):
    def doubled(name: str, layer: str) -> str:
        return name.replace(f"layers.{layer}.", f"layers.{layer}.block_{layer}.")

    model = own(attn_only=True, biases=False)
    state = listed(model)
    for layer in map(str, range(N_LAYERS)):
        state = {doubled(name, layer): tensor for name, tensor in state.items()}
    keys = {doubled(name, "{layer}"): rule for name, rule in LISTED.items()}
    torch.save(state, tmp_path / "model.pt")
    assert agree(load(tmp_path / "model.pt", keys=keys), model(TOKENS))
    state["layers.0.block_1.mask"] = torch.ones(2)
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises(InputError, match=r"layers\.0\.block_1\.mask", check=texts):
        load(tmp_path / "model.pt", keys=keys)


def test_what_no_rule_names_is_listed(tmp_path, texts):
    torch.save({**listed(own(attn_only=True)), "more": torch.zeros(2)}, tmp_path / "model.pt")
    with pytest.raises(InputError, check=texts):
        load(tmp_path / "model.pt", keys=LISTED)


def test_a_missing_head_is_an_error(tmp_path, texts):
    state = listed(own(attn_only=True))
    del state["layers.1.heads.2.W_Q.weight"]
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises(InputError, match=r"blocks\.1\.attn\.W_Q", check=texts):
        load(tmp_path / "model.pt", keys=LISTED)


GROUPED = "(groups d_head) a -> groups"
AHEAD = "(ahead a) b -> a"
THREE = "(head d_head groups) a -> groups d_head"


@pytest.mark.parametrize(
    "keys",
    [
        "gpt3",
        "missing.json",
        {},
        {"a": 3},
        {"a": {"to": "b", "turn": True}},
        {"a": {"to": "b", "axes": "sideways"}},
        {"a": {"to": "b", "axes": "x y -> y z"}, "tok.weight": "b"},
        {"nothing": "embed.W_E"},
        {"tok.weight": {"to": "embed.W_E", "axes": "(a b) c -> a b c"}},
        {"tok.weight": {"to": "embed.W_E", "axes": f"{GROUPED} d_head a"}},
        {"tok.weight": {"to": "embed.W_E", "axes": f"{AHEAD} ahead b"}},
        {"tok.weight": {"to": "embed.W_E", "axes": f"{THREE} head a"}},
        {"tok.weight": {"to": "embed.W_E", "axes": "a -> a"}},
        {"tok.weight": "b", "pos.weight": "b"},
        {"tok.weight": "{nothing}"},
    ],
)
def test_mappings_that_cannot_be(tmp_path, keys, texts):
    torch.save(listed(own(attn_only=True)), tmp_path / "model.pt")
    with pytest.raises(InputError, check=texts) as caught:
        load(tmp_path / "model.pt", keys=keys)
    assert "\n" not in str(caught.value)


def test_axes_on_one_side_only_are_refused(tmp_path):
    torch.save(listed(own(attn_only=True)), tmp_path / "model.pt")
    keys = {"tok.weight": {"to": "embed.W_E", "axes": "a b -> b c"}}
    with pytest.raises(InputError, match=r"tok\.weight .* a b -> b c: "):
        load(tmp_path / "model.pt", keys=keys)


def test_a_file_of_keys_that_is_not_json(tmp_path):
    torch.save(listed(own(attn_only=True)), tmp_path / "model.pt")
    (tmp_path / "keys.json").write_text("{")
    with pytest.raises(InputError, match="is not JSON"):
        load(tmp_path / "model.pt", keys=tmp_path / "keys.json")


def test_names_that_become_equal_without_the_prefix_are_refused(texts):
    tensors = {name: torch.ones(1) for name in ("embed.W_E", "W_U")}
    prefixed = {f"model.{name}": tensor for name, tensor in tensors.items()}
    assert unwrap_names(prefixed, "a.pt").keys() == tensors.keys()
    with pytest.raises(InputError, match=r"model\.W_U", check=texts):
        unwrap_names({**prefixed, "W_U": torch.zeros(1)}, "a.pt")


def test_keys_and_ignore_are_for_checkpoints_of_others(tmp_path, texts):
    with pytest.raises(InputError, check=texts):
        load("toy:induction", keys="gpt2", ignore=["a"])
    from interp_toolkit import save

    save(own(), tmp_path / "model.pt")
    with pytest.raises(InputError, check=texts):
        load(tmp_path / "model.pt", keys="gpt2")


def test_norms_without_a_shift_under_other_names_are_an_assumption(tmp_path):
    options = {"act_fn": "relu", "n_heads": N_HEADS}
    for kind, is_assumed in (("RMS", True), ("LN", False), (None, False)):
        state = own(normalization_type=kind).state_dict()
        renamed = {f"my.{name}": tensor for name, tensor in state.items()}
        keys = {f"my.{name}": name for name in state}
        torch.save(renamed, tmp_path / "model.pt")
        loaded = load(tmp_path / "model.pt", keys=keys, **options)
        assert loaded.cfg.normalization_type == kind
        phrases = record_of(loaded).assumptions
        assert any(phrase.startswith("normalization_type=RMS") for phrase in phrases) == is_assumed
        if is_assumed:
            settled = load(tmp_path / "model.pt", keys=keys, normalization_type="RMS", **options)
            phrases = record_of(settled).assumptions
            assert not any(phrase.startswith("normalization_type") for phrase in phrases)
