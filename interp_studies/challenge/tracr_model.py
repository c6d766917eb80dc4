"""Programs as weights of the toolkit's transformer, compiled by DeepMind's tracr.

1. Tracr turns the program into attention heads and MLPs, as matrices between named dimensions of
the residual stream. Tracr's own Haiku model, which requires JAX, is not built.
2. The matrices are written into a `Transformer` without norms. Scores are divided by the square
root of tracr's key size, so that all activations equal those of tracr's model.
3. The output's dimensions are unembedded to the token ids of its values.
4. Two kinds of heads are added: *decoys* have the attention of a head of the program, *idle* heads
attend at random. Nothing reads their output.

Source: Lindner et al. 2023, "Tracr: Compiled Transformers as a Laboratory for Interpretability",
arXiv 2301.05062.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from tracr.compiler import basis_inference, craft_graph_to_model, nodes, rasp_to_graph
from tracr.compiler.expr_to_craft_graph import add_craft_components_to_rasp_graph
from tracr.craft import bases, transformers, vectorspace_fns
from tracr.rasp import rasp

from interp_studies.challenge.programs import Program
from interp_toolkit.models.model import Head
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.zeros import zeros

SCORE = 30.0  # of a key that a hand-set head beside the program attends to
GAIN = 20.0  # of a logit whose value has all the share
IDLE_SCORE = 3.0  # standard deviation of an idle head's scores
BOS, BOS_NAME = 0, "compiler_bos"  # its token id, symbol s is token 1 + s; its name in tracr
PAD_NAME = "compiler_pad"
BOS_AXIS = f"{rasp.tokens.label}:{BOS_NAME}"
EXACTNESS = 100  # of tracr's MLPs, as tracr has it


@dataclass(frozen=True, eq=False)
class Compiled:
    """The model of a program.

    Attributes:
        model: the model, in float64.
        places: the head of each `Aggregate` and `SelectorWidth`, by the `id` of the expression.
        nodes: the program's nodes in EAP-IG's names: its heads, and the MLPs that it uses.
        decoys: by decoy head: the head of the program whose attention it has.
        axes: dimensions of the residual stream by tracr's names; decoys and idle heads use the
            others.
    """

    model: Transformer
    places: Mapping[int, Head]
    nodes: frozenset[str]
    decoys: Mapping[Head, Head]
    axes: Mapping[str, int]

    @property
    def heads(self) -> tuple[Head, ...]:
        """All heads of the program."""
        return tuple(self.places.values())


@torch.no_grad()
def compile_program(program: Program, seed: int, beside: int = 2) -> Compiled:
    """The model of a program.

    Args:
        program: program of `programs.LIBRARY`.
        seed: random seed of the order of heads, and of the added heads.
        beside: number of added heads per layer.
    """
    rng = np.random.default_rng([seed, 0xC0])
    n = program.n_symbols
    graph, blocks, output = _crafted(program)
    symbols = [bases.BasisDirection(rasp.tokens.label, s) for s in range(n)]
    bos, pad = (bases.BasisDirection(rasp.tokens.label, name) for name in (BOS_NAME, PAD_NAME))
    indices = [bases.BasisDirection(rasp.indices.label, p) for p in range(program.n_places)]
    spaces = [block.residual_space for block in blocks]
    inputs = bases.VectorSpaceWithBasis(sorted([*symbols, bos, pad, *indices, *output]))
    residual = bases.join_vector_spaces(inputs, *spaces)
    axis = {direction: number for number, direction in enumerate(residual.basis)}
    aside = range(len(axis), len(axis) + n)

    heads: dict[int, list[Any]] = {}  # by layer
    mlps: dict[int, Any] = {}
    sublayer = 0  # 2 l is the attention of layer l, 2 l + 1 its MLP
    for block in blocks:
        is_mlp = isinstance(block, transformers.MLP)
        sublayer += sublayer % 2 != is_mlp
        if is_mlp:
            mlps[sublayer // 2] = block
        else:
            heads[sublayer // 2] = list(block.as_multi().heads())
        sublayer += 1
    every = [head for layer in heads.values() for head in layer]
    key_size = max(max(head.w_qk.matrix.shape) for head in every)  # as in tracr's own model
    model = zeros(
        TransformerConfig(
            n_layers=(sublayer + 1) // 2,
            d_model=aside.stop,
            n_ctx=program.n_places + 1,
            d_head=max([n, key_size, *(head.w_ov.matrix.shape[1] for head in every)]),
            n_heads=max(map(len, heads.values())) + beside,
            d_vocab=program.d_vocab,
            attn_only=not mlps,
            d_mlp=max((mlp.fst.output_space.num_dims for mlp in mlps.values()), default=None),
            act_fn="relu" if mlps else None,
            normalization_type=None,
            positional_embedding_type="standard",
            attention_dir="causal" if program.causal else "bidirectional",
            dtype=torch.float64,
        )
    ).eval()

    def of(space: Any) -> Float[torch.Tensor, "d_model axis"]:
        """The map from the residual stream to one of tracr's vector spaces."""
        matrix = vectorspace_fns.project(residual, space).matrix
        return torch.from_numpy(np.pad(matrix, ((0, n), (0, 0))))

    for token, direction in enumerate([bos, *symbols]):
        model.embed.W_E[token, axis[direction]] = 1.0
        if (one := axis.get(bases.BasisDirection("one"))) is not None:
            model.embed.W_E[token, one] = 1.0
    for place, direction in enumerate(indices):
        model.pos_embed.W_pos[1 + place, axis[direction]] = 1.0
    for direction in output:
        if int(direction.value) < len(program.tells):
            model.unembed.W_U[axis[direction], program.tells[int(direction.value)]] = GAIN

    where: dict[int, Head] = {}  # by the `id` of tracr's head
    decoys: dict[Head, Head] = {}
    scale = model.cfg.attn_scale / math.sqrt(key_size)
    read = [axis[direction] for direction in (*symbols, *indices)]
    for layer in range(model.cfg.n_layers):
        attn = model.blocks[layer].attn
        free = [Head(layer, int(h)) for h in rng.permutation(model.cfg.n_heads)]
        here = [free.pop() for _ in heads.get(layer, [])]
        for crafted, head in zip(heads.get(layer, []), here, strict=True):
            where[id(crafted)] = head
            qk, ov = (torch.from_numpy(part.matrix) for part in (crafted.w_qk, crafted.w_ov))
            written = {
                "W_Q": scale * of(crafted.w_qk.left_space) @ qk,
                "W_K": of(crafted.w_qk.right_space),
                "W_V": of(crafted.w_ov.input_space) @ ov,
            }
            for name, matrix in written.items():
                getattr(attn, name)[head.head, :, : matrix.shape[1]] = matrix
            attn.W_O[head.head, : ov.shape[1]] = of(crafted.w_ov.output_space).T
        for head in free:
            if here and rng.random() < 1 / 2:
                decoys[head] = like = here[int(rng.integers(len(here)))]
                for name in ("W_Q", "W_K"):
                    getattr(attn, name)[head.head] = getattr(attn, name)[like.head]
            else:
                _attend_at_random(attn, head, read, rng)
            for dim, (symbol, target) in enumerate(zip(symbols, aside, strict=True)):
                attn.W_V[head.head, axis[symbol], dim] = attn.W_O[head.head, dim, target] = 1.0
        if layer in mlps:
            block, mlp = mlps[layer], model.blocks[layer].mlp
            hidden, back = (torch.from_numpy(part.matrix) for part in (block.fst, block.snd))
            mlp.W_in[:, : hidden.shape[1]] = of(block.fst.input_space) @ hidden
            mlp.W_out[: back.shape[0]] = back @ of(block.snd.output_space).T
    places = {
        id(node[nodes.EXPR]): where[id(part)]
        for node in graph.nodes.values()
        for part in _parts(node.get(nodes.MODEL_BLOCK))
        if id(part) in where
    }
    circuit = [*(f"a{h.layer}.h{h.head}" for h in where.values()), *(f"m{layer}" for layer in mlps)]
    named = {str(direction): number for direction, number in axis.items()}
    return Compiled(model, places, frozenset(circuit), decoys, named)


def _crafted(program: Program) -> tuple[Any, Sequence[Any], Sequence[Any]]:
    """Tracr's graph, its attention and MLP blocks in order, and the output's dimensions."""
    extracted = rasp_to_graph.extract_rasp_graph(program.output)
    graph, sink = extracted.graph, extracted.sink
    basis_inference.infer_bases(graph, sink, set(range(program.n_symbols)), program.n_places)
    add_craft_components_to_rasp_graph(
        graph,
        bos_dir=bases.BasisDirection(rasp.tokens.label, BOS_NAME),
        mlp_exactness=EXACTNESS,
    )
    model = craft_graph_to_model.craft_graph_to_model(graph, extracted.sources)
    return graph, model.blocks, sink[nodes.OUTPUT_BASIS]


def _parts(block: Any) -> Sequence[Any]:
    """The block itself, or the attention and the MLP that it consists of."""
    return block.blocks if isinstance(block, transformers.SeriesWithResiduals) else [block]


def _attend_at_random(attn: Any, head: Head, read: Sequence[int], rng: np.random.Generator) -> None:
    """Random queries and keys whose scores have standard deviation IDLE_SCORE."""
    d_head = attn.W_Q.shape[-1]
    factor = math.sqrt(IDLE_SCORE / 2)  # two axes on either side, and scores are divided by √d_head
    for name in ("W_Q", "W_K"):
        drawn = torch.from_numpy(rng.normal(size=(len(read), d_head)))
        getattr(attn, name)[head.head, list(read)] = factor * drawn
