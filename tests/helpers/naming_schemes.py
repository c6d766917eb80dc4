"""Small transformers in plain PyTorch, named and laid out as public training scripts do it.

Only names and layouts follow the scripts. Each scheme is a function that returns the model, what
its script would save, and the lines that a user has to edit in the mapping that is written for it.
"""

import math
from argparse import Namespace
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

D, HEADS, D_HEAD, LAYERS, VOCAB, CONTEXT, HIDDEN = 16, 4, 4, 2, 11, 9, 24


def attend(q, k, v, causal=True):
    """Attention of [batch, head, pos, d_head]."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        n = scores.shape[-1]
        scores = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -math.inf)
    return scores.softmax(-1) @ v


def split(x, heads=HEADS):
    """[batch, pos, (head d_head)] to [batch, head, pos, d_head]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge(x):
    return x.transpose(1, 2).flatten(2)


def rotated(x, dim=None, base=10000.0, neighbors=False):
    """Rotary positions on the first `dim` coordinates, in halves or as neighbors."""
    dim = x.shape[-1] if dim is None else dim
    frequency = base ** (-torch.arange(0, dim, 2) / dim)
    angle = torch.arange(x.shape[-2])[:, None] * frequency
    turning, rest = x[..., :dim], x[..., dim:]
    if neighbors:
        a, b = turning[..., ::2], turning[..., 1::2]
    else:
        a, b = turning[..., : dim // 2], turning[..., dim // 2 :]
    a, b = a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()
    both = torch.stack((a, b), -1).flatten(-2) if neighbors else torch.cat((a, b), -1)
    return torch.cat((both, rest), -1)


class RMS(nn.Module):
    def __init__(self, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(D))
        self.eps = eps

    def forward(self, x):
        return x * (x.pow(2).mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight


@dataclass
class Scheme:
    """A model and what its script saves.

    Attributes:
        model: the plain model; calling it with tokens returns logits.
        saved: the object in the file.
        edits: what a user has to fill in or change: `{"settings": {...}, "tensors": {...}}`.
        guesses: parts that must be marked as guesses.
    """

    model: nn.Module
    saved: object
    edits: dict = field(default_factory=dict)
    guesses: tuple = ()


def ready(model):
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model.eval()


# --- nanoGPT and minGPT: fused c_attn; nanoGPT ties the head and saves its arguments


class GPTAttention(nn.Module):
    def __init__(self, mask):
        super().__init__()
        self.c_attn = nn.Linear(D, 3 * D)
        self.c_proj = nn.Linear(D, D)
        if mask:
            self.register_buffer("bias", torch.ones(CONTEXT, CONTEXT).tril()[None, None])

    def forward(self, x):
        q, k, v = map(split, self.c_attn(x).split(D, dim=2))
        return self.c_proj(merge(attend(q, k, v)))


class GPTBlock(nn.Module):
    def __init__(self, act, mask):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.attn = GPTAttention(mask)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(D, HIDDEN), "c_proj": nn.Linear(HIDDEN, D)})
        self.act = act

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp["c_proj"](self.act(self.mlp["c_fc"](self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self, act, mask):
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(VOCAB, D),
                "wpe": nn.Embedding(CONTEXT, D),
                "h": nn.ModuleList(GPTBlock(act, mask) for _ in range(LAYERS)),
                "ln_f": nn.LayerNorm(D),
            }
        )
        self.lm_head = nn.Linear(D, VOCAB, bias=False)

    def forward(self, tokens):
        parts = self.transformer
        x = parts["wte"](tokens) + parts["wpe"].weight[: tokens.shape[1]]
        for block in parts["h"]:
            x = block(x)
        return self.lm_head(parts["ln_f"](x))


def nanogpt():
    model = ready(GPT(F.gelu, mask=False))
    arguments = {"n_layer": LAYERS, "n_head": HEADS, "n_embd": D, "block_size": CONTEXT}
    arguments |= {"bias": True, "vocab_size": VOCAB, "dropout": 0.0}
    saved = {"model": model.state_dict(), "model_args": arguments, "iter_num": 5}
    return Scheme(model, saved, guesses=("act_fn",))


def mingpt():
    model = ready(GPT(lambda x: F.gelu(x, approximate="tanh"), mask=True))
    edits = {"settings": {"n_heads": HEADS, "act_fn": "gelu_new"}}
    return Scheme(model, model.state_dict(), edits, ("act_fn",))


# --- Karpathy's lecture: one module per head, with its own mask


class LectureHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(D, D_HEAD, bias=False) for _ in range(3))
        self.register_buffer("tril", torch.ones(CONTEXT, CONTEXT).tril())

    def forward(self, x):
        return attend(self.query(x), self.key(x), self.value(x))


class LectureHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList(LectureHead() for _ in range(HEADS))
        self.proj = nn.Linear(D, D)

    def forward(self, x):
        return self.proj(torch.cat([head(x) for head in self.heads], -1))


class LectureFeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(D, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, D))

    def forward(self, x):
        return self.net(x)


class LectureBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.sa = LectureHeads()
        self.ffwd = LectureFeedForward()
        self.ln1, self.ln2 = nn.LayerNorm(D), nn.LayerNorm(D)

    def forward(self, x):
        x = x + self.sa(self.ln1(x))
        return x + self.ffwd(self.ln2(x))


class Lecture(nn.Module):
    def __init__(self):
        super().__init__()
        self.token_embedding_table = nn.Embedding(VOCAB, D)
        self.position_embedding_table = nn.Embedding(CONTEXT, D)
        self.blocks = nn.Sequential(*(LectureBlock() for _ in range(LAYERS)))
        self.ln_f = nn.LayerNorm(D)
        self.lm_head = nn.Linear(D, VOCAB)

    def forward(self, tokens):
        x = self.token_embedding_table(tokens)
        x = x + self.position_embedding_table.weight[: tokens.shape[1]]
        return self.lm_head(self.ln_f(self.blocks(x)))


def lecture():
    model = ready(Lecture())
    return Scheme(model, model.state_dict(), guesses=("act_fn",))


# --- llama2.c: wq, wk, wv with shared keys, w1/w2/w3, neighbors rotated together, tied head


class LlamaBlock(nn.Module):
    def __init__(self, key_heads):
        super().__init__()
        self.attention = nn.ModuleDict(
            {
                "wq": nn.Linear(D, D, bias=False),
                "wk": nn.Linear(D, key_heads * D_HEAD, bias=False),
                "wv": nn.Linear(D, key_heads * D_HEAD, bias=False),
                "wo": nn.Linear(D, D, bias=False),
            }
        )
        self.feed_forward = nn.ModuleDict(
            {
                "w1": nn.Linear(D, HIDDEN, bias=False),
                "w2": nn.Linear(HIDDEN, D, bias=False),
                "w3": nn.Linear(D, HIDDEN, bias=False),
            }
        )
        self.attention_norm, self.ffn_norm = RMS(), RMS()
        self.key_heads = key_heads

    def forward(self, x):
        at, ff = self.attention, self.feed_forward
        y = self.attention_norm(x)
        q = rotated(split(at["wq"](y)), neighbors=True)
        k = rotated(split(at["wk"](y), self.key_heads), neighbors=True)
        v = split(at["wv"](y), self.key_heads)
        k, v = (t.repeat_interleave(HEADS // self.key_heads, dim=1) for t in (k, v))
        x = x + at["wo"](merge(attend(q, k, v)))
        y = self.ffn_norm(x)
        return x + ff["w2"](F.silu(ff["w1"](y)) * ff["w3"](y))


class Llama(nn.Module):
    def __init__(self, key_heads):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, D)
        self.layers = nn.ModuleList(LlamaBlock(key_heads) for _ in range(LAYERS))
        self.norm = RMS()
        self.output = nn.Linear(D, VOCAB, bias=False)
        table = torch.outer(
            torch.arange(CONTEXT), 10000.0 ** (-torch.arange(0, D_HEAD, 2) / D_HEAD)
        )
        self.register_buffer("freqs_cos", table.cos())
        self.register_buffer("freqs_sin", table.sin())

    def forward(self, tokens):
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


def llama2c():
    model = ready(Llama(key_heads=2))
    arguments = {"dim": D, "n_layers": LAYERS, "n_heads": HEADS, "n_kv_heads": 2}
    arguments |= {"vocab_size": VOCAB, "multiple_of": 8, "max_seq_len": CONTEXT, "norm_eps": 1e-5}
    saved = {"model": model.state_dict(), "optimizer": {}, "model_args": arguments}
    return Scheme(model, saved, guesses=("act_fn", "normalization_type", "rotary_adjacent_pairs"))


# --- x-transformers: attention and MLPs in one list, scaled positions, norm factors less 1


class Gamma(nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(torch.zeros(D))

    def forward(self, x):
        return F.layer_norm(x, (D,)) * (1 + self.gamma)


class XAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.to_q, self.to_k, self.to_v, self.to_out = (
            nn.Linear(D, D, bias=False) for _ in range(4)
        )

    def forward(self, x):
        q, k, v = (split(map_(x)) for map_ in (self.to_q, self.to_k, self.to_v))
        return self.to_out(merge(attend(q, k, v)))


class XFeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        first = nn.Sequential(nn.Linear(D, HIDDEN), nn.GELU())
        self.ff = nn.Sequential(first, nn.Identity(), nn.Linear(HIDDEN, D))

    def forward(self, x):
        return self.ff(x)


class XTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.token_emb = nn.ModuleDict({"emb": nn.Embedding(VOCAB, D)})
        self.pos_emb = nn.ModuleDict({"emb": nn.Embedding(CONTEXT, D)})
        layers = [
            nn.ModuleList([nn.ModuleList([Gamma()]), part])
            for _ in range(LAYERS)
            for part in (XAttention(), XFeedForward())
        ]
        self.attn_layers = nn.ModuleDict({"layers": nn.ModuleList(layers), "final_norm": Gamma()})
        self.to_logits = nn.Linear(D, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.token_emb["emb"](tokens)
        x = x + self.pos_emb["emb"].weight[: tokens.shape[1]] * D**-0.5
        for (norm,), part in self.attn_layers["layers"]:
            x = x + part(norm(x))
        return self.to_logits(self.attn_layers["final_norm"](x))


def x_transformers():
    model = ready(XTransformer())
    saved = {"model": model.state_dict(), "config": {"dim": D, "depth": LAYERS, "heads": HEADS}}
    return Scheme(model, saved, guesses=("act_fn", "normalization_type", "pos_emb.emb.weight"))


# --- lucidrains' simple transformers: norms inside the modules, fused to_qkv, Sequential MLP


class SimpleAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(D)
        self.to_qkv = nn.Linear(D, 3 * D, bias=False)
        self.to_out = nn.Linear(D, D, bias=False)

    def forward(self, x):
        q, k, v = map(split, self.to_qkv(self.norm(x)).chunk(3, dim=-1))
        return self.to_out(merge(attend(q, k, v)))


class SimpleFeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        parts = (nn.LayerNorm(D), nn.Linear(D, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, D))
        self.net = nn.Sequential(*parts)

    def forward(self, x):
        return self.net(x)


class Simple(nn.Module):
    def __init__(self):
        super().__init__()
        self.token_emb = nn.Embedding(VOCAB, D)
        self.pos_emb = nn.Embedding(CONTEXT, D)
        self.layers = nn.ModuleList(
            nn.ModuleList([SimpleAttention(), SimpleFeedForward()]) for _ in range(LAYERS)
        )
        self.norm = nn.LayerNorm(D)
        self.to_logits = nn.Linear(D, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.token_emb(tokens) + self.pos_emb.weight[: tokens.shape[1]]
        for attention, feed_forward in self.layers:
            x = x + attention(x)
            x = x + feed_forward(x)
        return self.to_logits(self.norm(x))


def lucidrains():
    model = ready(Simple())
    hparams = {"dim": D, "depth": LAYERS, "heads": HEADS, "dim_head": D_HEAD, "mlp_dim": HIDDEN}
    return Scheme(model, {"model": model.state_dict(), "hparams": hparams}, guesses=("act_fn",))


# --- Fairseq's decoder: scaled embeddings, positions after the padding index, separate projections


class FairseqLayer(nn.Module):
    def __init__(self):
        super().__init__()
        names = ("k_proj", "v_proj", "q_proj", "out_proj")
        self.self_attn = nn.ModuleDict({name: nn.Linear(D, D) for name in names})
        self.self_attn_layer_norm = nn.LayerNorm(D)
        self.fc1, self.fc2 = nn.Linear(D, HIDDEN), nn.Linear(HIDDEN, D)
        self.final_layer_norm = nn.LayerNorm(D)

    def forward(self, x):
        at, y = self.self_attn, self.self_attn_layer_norm(x)
        q, k, v = (split(at[name](y)) for name in ("q_proj", "k_proj", "v_proj"))
        x = x + at["out_proj"](merge(attend(q, k, v)))
        return x + self.fc2(F.relu(self.fc1(self.final_layer_norm(x))))


class FairseqDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("version", torch.tensor([3.0]))
        self.embed_tokens = nn.Embedding(VOCAB, D)
        self.embed_positions = nn.Embedding(CONTEXT + 2, D)
        self.layers = nn.ModuleList(FairseqLayer() for _ in range(LAYERS))
        self.layer_norm = nn.LayerNorm(D)
        self.output_projection = nn.Linear(D, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.embed_tokens(tokens) * math.sqrt(D)
        x = x + self.embed_positions.weight[2 : 2 + tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.output_projection(self.layer_norm(x))


class Fairseq(nn.Module):
    def __init__(self):
        super().__init__()
        self.decoder = FairseqDecoder()

    def forward(self, tokens):
        return self.decoder(tokens)


def fairseq():
    model = ready(Fairseq())
    arguments = Namespace(
        activation_fn="relu",
        decoder_attention_heads=HEADS,
        decoder_embed_dim=D,
        decoder_layers=LAYERS,
        decoder_normalize_before=True,
        no_scale_embedding=False,
        max_target_positions=CONTEXT,
    )
    saved = {"args": vars(arguments), "model": model.state_dict()}
    return Scheme(model, saved, guesses=("decoder.embed_positions.weight",))


# --- GPT-NeoX: queries, keys and values of one head next to each other, partly rotated


class NeoXLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(D)
        self.post_attention_layernorm = nn.LayerNorm(D)
        self.attention = nn.ModuleDict(
            {"query_key_value": nn.Linear(D, 3 * D), "dense": nn.Linear(D, D)}
        )
        self.mlp = nn.ModuleDict(
            {"dense_h_to_4h": nn.Linear(D, HIDDEN), "dense_4h_to_h": nn.Linear(HIDDEN, D)}
        )
        self.register_buffer("inv_freq", torch.tensor([1.0]))

    def forward(self, x):
        fused = self.attention["query_key_value"](self.input_layernorm(x))
        q, k, v = fused.unflatten(-1, (HEADS, 3, D_HEAD)).permute(3, 0, 2, 1, 4)
        q, k = rotated(q, dim=2), rotated(k, dim=2)
        x = x + self.attention["dense"](merge(attend(q, k, v)))
        y = self.mlp["dense_h_to_4h"](self.post_attention_layernorm(x))
        return x + self.mlp["dense_4h_to_h"](F.gelu(y))


class NeoX(nn.Module):
    def __init__(self):
        super().__init__()
        self.gpt_neox = nn.ModuleDict(
            {
                "embed_in": nn.Embedding(VOCAB, D),
                "layers": nn.ModuleList(NeoXLayer() for _ in range(LAYERS)),
                "final_layer_norm": nn.LayerNorm(D),
            }
        )
        self.embed_out = nn.Linear(D, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.gpt_neox["embed_in"](tokens)
        for layer in self.gpt_neox["layers"]:
            x = layer(x)
        return self.embed_out(self.gpt_neox["final_layer_norm"](x))


def gpt_neox():
    model = ready(NeoX())
    config = {"hidden_size": D, "num_attention_heads": HEADS, "rotary_pct": 0.5}
    config |= {"hidden_act": "gelu", "use_parallel_residual": False, "rotary_emb_base": 10000}
    saved = {"model": model.state_dict(), "config": config}
    qkv = "gpt_neox.layers.{layer}.attention.query_key_value.weight"
    return Scheme(model, saved, guesses=(qkv,))


# --- ESM-2: bidirectional, rotated halves, a head of several layers


class ESMLayer(nn.Module):
    def __init__(self):
        super().__init__()
        names = ("k_proj", "v_proj", "q_proj", "out_proj")
        self.self_attn = nn.ModuleDict({name: nn.Linear(D, D) for name in names})
        rotary = nn.Module()
        rotary.register_buffer("inv_freq", 10000.0 ** (-torch.arange(0, D_HEAD, 2) / D_HEAD))
        self.self_attn["rot_emb"] = rotary
        self.self_attn_layer_norm = nn.LayerNorm(D)
        self.fc1, self.fc2 = nn.Linear(D, HIDDEN), nn.Linear(HIDDEN, D)
        self.final_layer_norm = nn.LayerNorm(D)

    def forward(self, x):
        at, y = self.self_attn, self.self_attn_layer_norm(x)
        q, k, v = (split(at[name](y)) for name in ("q_proj", "k_proj", "v_proj"))
        x = x + at["out_proj"](merge(attend(rotated(q), rotated(k), v, causal=False)))
        return x + self.fc2(F.gelu(self.fc1(self.final_layer_norm(x))))


class ESM(nn.Module):
    """Its output is the last residual stream, after the norm: the head is no single matrix."""

    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, D)
        self.layers = nn.ModuleList(ESMLayer() for _ in range(LAYERS))
        self.contact_head = nn.ModuleDict({"regression": nn.Linear(LAYERS * HEADS, 1)})
        self.emb_layer_norm_after = nn.LayerNorm(D)
        self.lm_head = nn.Linear(D, VOCAB)
        self.lm_head.dense = nn.Linear(D, D)
        self.lm_head.layer_norm = nn.LayerNorm(D)

    def forward(self, tokens):
        x = self.embed_tokens(tokens) * 0.88  # token dropout of a prompt without masks
        for layer in self.layers:
            x = layer(x)
        return self.emb_layer_norm_after(x)


def esm():
    model = ready(ESM())
    return Scheme(
        model, model.state_dict(), guesses=("tied_embeddings", "attention_dir", "n_heads", "act_fn")
    )


# --- Decision Transformer (Atari): minGPT's blocks, other inputs beside the actions


class DecisionBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(D), nn.LayerNorm(D)
        names = ("key", "query", "value", "proj")
        self.attn = nn.ModuleDict({name: nn.Linear(D, D) for name in names})
        self.attn.register_buffer("mask", torch.ones(1, 1, CONTEXT + 1, CONTEXT + 1).tril())
        self.mlp = nn.Sequential(nn.Linear(D, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, D))

    def forward(self, x):
        y = self.ln1(x)
        q, k, v = (split(self.attn[name](y)) for name in ("query", "key", "value"))
        x = x + self.attn["proj"](merge(attend(q, k, v)))
        return x + self.mlp(self.ln2(x))


class DecisionTransformer(nn.Module):
    """Its trunk on actions alone; states, returns and time steps are other inputs."""

    def __init__(self):
        super().__init__()
        self.pos_emb = nn.Parameter(torch.zeros(1, CONTEXT + 1, D))
        self.global_pos_emb = nn.Parameter(torch.zeros(1, 30, D))
        self.blocks = nn.Sequential(*(DecisionBlock() for _ in range(LAYERS)))
        self.ln_f = nn.LayerNorm(D)
        self.head = nn.Linear(D, VOCAB, bias=False)
        self.state_encoder = nn.Sequential(nn.Conv2d(4, 3, 2), nn.ReLU(), nn.Linear(27, D))
        self.ret_emb = nn.Sequential(nn.Linear(1, D), nn.Tanh())
        self.action_embeddings = nn.Sequential(nn.Embedding(VOCAB, D))

    def forward(self, tokens):
        x = self.action_embeddings(tokens) + self.pos_emb[:, : tokens.shape[1]]
        return self.head(self.ln_f(self.blocks(x)))


def decision_transformer():
    model = ready(DecisionTransformer())
    saved = {"state_dict": model.state_dict(), "config": {"n_head": HEADS, "n_embd": D}}
    unused = ("global_pos_emb", "state_encoder.*", "ret_emb.*")
    edits = {"tensors": dict.fromkeys(unused)}
    return Scheme(model, saved, edits, ("action_embeddings.0.weight", "act_fn"))


# --- two of one's own: per-head arrays without modules; square matrices without helpful words


class Arrays(nn.Module):
    """Input-first arrays, biases named like their weights, no norm before the unembedding."""

    def __init__(self):
        super().__init__()
        shapes = {
            "W_E": (VOCAB, D),
            "W_pos": (CONTEXT, D),
            "W_U": (D, VOCAB),
        }
        for i in range(LAYERS):
            shapes |= {f"layer{i}.norm1.scale": (D,), f"layer{i}.norm1.shift": (D,)}
            shapes |= {f"layer{i}.W_q": (HEADS, D, D_HEAD), f"layer{i}.b_q": (HEADS, D_HEAD)}
            shapes |= {f"layer{i}.W_k": (HEADS, D, D_HEAD), f"layer{i}.b_k": (HEADS, D_HEAD)}
            shapes |= {f"layer{i}.W_v": (HEADS, D, D_HEAD), f"layer{i}.b_v": (HEADS, D_HEAD)}
            shapes |= {f"layer{i}.W_o": (HEADS, D_HEAD, D), f"layer{i}.b_o": (D,)}
            shapes |= {f"layer{i}.norm2.scale": (D,), f"layer{i}.norm2.shift": (D,)}
            shapes |= {f"layer{i}.W_in": (D, HIDDEN), f"layer{i}.b_in": (HIDDEN,)}
            shapes |= {f"layer{i}.W_out": (HIDDEN, D), f"layer{i}.b_out": (D,)}
        self.arrays = nn.ParameterDict(
            {
                name.replace(".", "-"): nn.Parameter(torch.randn(shape))
                for name, shape in shapes.items()
            }
        )

    def state(self):
        return {name.replace("-", "."): t.detach() for name, t in self.arrays.items()}

    def forward(self, tokens):
        a = {name.replace("-", "."): t for name, t in self.arrays.items()}
        x = a["W_E"][tokens] + a["W_pos"][: tokens.shape[1]]
        for i in range(LAYERS):
            p = {name.removeprefix(f"layer{i}."): t for name, t in a.items()}
            y = F.layer_norm(x, (D,), p["norm1.scale"], p["norm1.shift"])
            q, k, v = (
                torch.einsum("bpd,hde->bhpe", y, p[f"W_{s}"]) + p[f"b_{s}"][:, None] for s in "qkv"
            )
            x = x + torch.einsum("bhpe,hed->bpd", attend(q, k, v), p["W_o"]) + p["b_o"]
            y = F.layer_norm(x, (D,), p["norm2.scale"], p["norm2.shift"])
            x = x + F.relu(y @ p["W_in"] + p["b_in"]) @ p["W_out"] + p["b_out"]
        return x @ a["W_U"]


def arrays():
    torch.manual_seed(4)
    model = Arrays().eval()
    with torch.no_grad():
        for name, parameter in model.arrays.items():
            parameter.mul_(0.4).add_(1.0 if "scale" in name else 0.0)
    saved = {"state_dict": model.state(), "config": {"activation": "ReLU", "width": D}}
    return Scheme(model, saved, guesses=("final_norm",))


class PlainLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = nn.LayerNorm(D)
        self.a, self.b, self.c, self.d = (nn.Linear(D, D, bias=False) for _ in range(4))
        self.m = nn.LayerNorm(D)
        self.e, self.f = nn.Linear(D, HIDDEN), nn.Linear(HIDDEN, D)

    def forward(self, x):
        y = self.n(x)
        k, q, v = (split(one(y)) for one in (self.a, self.b, self.c))
        x = x + self.d(merge(attend(q, k, v)))
        return x + self.f(F.relu(self.e(self.m(x))))


class Plain(nn.Module):
    """Keys before queries under names that say nothing: the mapping's guess is wrong."""

    def __init__(self):
        super().__init__()
        self.x, self.y = nn.Embedding(VOCAB, D), nn.Embedding(CONTEXT, D)
        self.stack = nn.ModuleList(PlainLayer() for _ in range(LAYERS))
        self.z = nn.LayerNorm(D)
        self.u = nn.Linear(D, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.x(tokens) + self.y.weight[: tokens.shape[1]]
        for layer in self.stack:
            x = layer(x)
        return self.u(self.z(x))


def plain_letters():
    model = ready(Plain())
    saved = {"net": model.state_dict(), "hparams": {"nheads": HEADS, "act": "relu"}}
    keys = {"stack.{layer}.a.weight": "blocks.{layer}.attn.W_K"}
    queries = {"stack.{layer}.b.weight": "blocks.{layer}.attn.W_Q"}
    guesses = tuple(f"stack.{{layer}}.{one}.weight" for one in "abcd")
    return Scheme(model, saved, {"tensors": keys | queries}, guesses)


SCHEMES = {
    "nanoGPT": nanogpt,
    "minGPT": mingpt,
    "llama2.c": llama2c,
    "x-transformers": x_transformers,
    "lucidrains": lucidrains,
    "lecture": lecture,
    "fairseq": fairseq,
    "GPT-NeoX": gpt_neox,
    "ESM-2": esm,
    "Decision Transformer": decision_transformer,
    "own arrays": arrays,
    "own letters": plain_letters,
}
