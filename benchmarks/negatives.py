"""How often an analysis says ✓ of what is not there, and what it says of what is, by strength.

Negatives are models and prompts that meet an analysis half way: what it looks for is nearly there,
or there for another reason. Where the truth is known by construction, positives of five strengths
stand beside them, so that a rule which never says ✓ is seen too.

    true function of the tokens   bits that the prompts hold; the model is untrained, or trained on
                                  something else and its weights permuted
    few rows                      the same with fewer prompts than directions
    all inputs                    truth tables of three bits, each prompt once
    linear copy                   ANDs that are coordinates of the layer's input, which neurons copy
    dead neurons                  features in the input, neurons that never or always fire
    random features               features drawn beside the model
    constant writer               a head that writes the same on every prompt; one answer commoner
    unrelated writer              a head that writes what a token says that has no part in the task
    rare large effects            a head of mean effect 0: a little on most prompts, much on a few
    released                      a head that in corrupted prompts writes against the answer, and
                                  in clean ones nothing: any other activation restores as much
    own answers                   an untrained or permuted model, whose predictions are the answers
    own preferences               the same, whose preferences of two tokens are the answers
    mute head                     a head with the pattern that writes nothing, or where none reads
    head against the answer       a head with the pattern, which writes against the answer
    few prompts                   8 to 16 of them, with one of these heads
    part of the circuit           a head does the task for a rare token, and so 38 % of the metric
    other tokens                  a circuit that maps every token to another one
    same for all tokens           a circuit that maps every token to the same
    few of the tokens             one token is mapped to itself, the others away from themselves
    reads what the other reads    a head that reads the other head's input, not its output
    bias                          the same vector is added at every position
    other algorithm               a sorter with noise on its weights: ✓ of what it does not do

The models are described in `negatives_of_heads` and `negatives_of_weights`.

Run: python benchmarks/negatives.py [--models 60] [--only NAME ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from negatives_of_heads import by_name, by_pattern, own_answers
from negatives_of_weights import amplifying, biased, bigrams, composing, head_of
from rich.console import Console
from rich.progress import track
from rich.table import Table

import interp_toolkit as it
from interp_toolkit.analysis import as_data
from interp_toolkit.circuits.edges.checks import EQUAL, faithfulness
from interp_toolkit.circuits.edges.passes.edge_ablation import EdgeAblation
from interp_toolkit.circuits.edges.passes.patched_pass import PatchedModel
from interp_toolkit.circuits.metrics.prompts import prompts_from_data
from interp_toolkit.circuits.metrics.task import metric_for
from interp_toolkit.models.running.interventions import reinitialised
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.results import STATUS_TONES
from interp_toolkit.stats import clopper_pearson
from interp_toolkit.toys.hand_set.untrained import random_model
from interp_toolkit.toys.sorting import default_layout, sort_argmax, sort_min_greater

SHAPES: tuple[dict[str, Any], ...] = (
    {"n_layers": 1, "d_model": 16},
    {"n_layers": 1, "d_model": 64, "d_mlp": 128},
    {"n_layers": 2, "d_model": 32},
    {"n_layers": 2, "d_model": 32, "positions": "rotary"},
    {"n_layers": 2, "d_model": 32, "d_mlp": 64, "normalization": "LN"},
    {"n_layers": 1, "d_model": 32, "d_mlp": 256, "normalization": "LN"},
    {"n_layers": 1, "d_model": 48, "d_mlp": 96, "normalization": "RMS"},
    {"n_layers": 3, "d_model": 24, "normalization": "LN"},
    {"n_layers": 1, "d_model": 32, "gain": 3.0, "d_mlp": 64},
    {"n_layers": 2, "n_heads": 4, "n_key_value_heads": 1, "d_model": 32},
    {"n_layers": 1, "d_model": 32, "biases": True, "d_mlp": 64},
    {"n_layers": 4, "d_model": 16, "d_mlp": 32, "normalization": "LN"},
)
TRAINED = ("induction-trained", "uand-trained", "sort-causal-trained")
STRENGTHS = (0.25, 0.5, 1.0, 2.0, 4.0)

#: what an analysis is called with: a model, and keywords of `analyze`, or functions of the model
Case = tuple[Any, dict[str, Any]]
Says = Callable[[Any, Any], str]  # of a result and the model


def untrained(seed: int, **changed: Any) -> Transformer:
    """An untrained model of one of the shapes."""
    shape = {"d_vocab": 24, "n_ctx": 8, "n_heads": 2, "d_head": 8} | SHAPES[seed % len(SHAPES)]
    return random_model(seed, **(shape | changed))


def bits_in_prompts(seed: int, n: int, n_bits: int = 2, d_vocab: int = 24) -> dict[str, Any]:
    """Prompts that hold bits as tokens, then a filler and a query."""
    rng = np.random.default_rng([seed, 1])
    bits = rng.random((n, n_bits)) < 0.5
    tokens = bits + 2 * np.arange(n_bits)
    filler = rng.integers(2 * n_bits, d_vocab - 1, n)
    tokens = np.column_stack([tokens, filler, np.full(n, d_vocab - 1)])
    return {"tokens": tokens, "features": {f"f{i}": bits[:, i] for i in range(n_bits)}}


def all_inputs(seed: int) -> Case:
    """Parity or majority of three bits: eight single tokens, or eight prompts."""
    bits = np.array(list(itertools.product([0, 1], repeat=3)), dtype=bool)
    features = {name: bits[:, i] for i, name in enumerate("abc")}
    table = ("01101001", "00010111")[seed % 2]
    if seed % 4 < 2:
        model = untrained(seed, d_vocab=8, d_model=4, d_head=4, n_heads=1)
        data = {"tokens": np.arange(8)[:, None], "features": features}
        return model, {"data": data, "table": table, "hooks": ("hook_embed",)}
    tokens = np.column_stack([bits + 2 * np.arange(3), np.full(8, 6)])
    return untrained(seed), {"data": {"tokens": tokens, "features": features}, "table": table}


def linear_copy(seed: int) -> Case:
    """ANDs that are coordinates of the embedding, copied by neurons that always fire."""
    rng = np.random.default_rng(seed)
    n, width = ((400, 256), (300, 64), (500, 400), (250, 128))[seed % 4]
    on = rng.random((n, 4)) < 0.5
    pairs = list(itertools.combinations(range(4), 2))
    ands = np.stack([on[:, i] & on[:, j] for i, j in pairs], axis=1)
    core = np.concatenate([on, ands], axis=1) + 0.05 * rng.normal(size=(n, 10))
    turn = np.linalg.qr(rng.normal(size=(width, width)))[0]
    embedding = np.concatenate([core, rng.normal(size=(n, width - 10))], axis=1) @ turn
    model = neurons(embedding, turn.T, np.where(np.arange(width) < 10, 5.0, -100.0))
    return model, {"data": {"tokens": np.arange(n)[:, None], "features": named(on)}}


def dead_neurons(seed: int) -> Case:
    """Features in the embedding; neurons never fire, or always do."""
    rng = np.random.default_rng(seed)
    on = rng.random((400, 4)) < 0.5
    embedding = np.concatenate([on, rng.normal(size=(400, 28))], axis=1)
    bias = np.where(rng.random(64) < 0.5, -100.0, 100.0 if seed % 2 else -100.0)
    model = neurons(embedding, rng.normal(size=(32, 64)), bias)
    return model, {"data": {"tokens": np.arange(400)[:, None], "features": named(on)}}


def gates(seed: int, strength: float) -> Case:
    """Neurons that compute ANDs, `strength` × as large as the noise beside them."""
    rng = np.random.default_rng(seed)
    on = rng.random((600, 4)) < 0.5
    embedding = np.concatenate([on, 0.1 / strength * rng.normal(size=(600, 4))], axis=1)
    pairs = list(itertools.combinations(range(4), 2))
    W = np.zeros((8, 6))
    for neuron, pair in enumerate(pairs):
        W[list(pair), neuron] = 1
        W[4:, neuron] = rng.normal(size=4)
    model = neurons(embedding, W, np.full(6, -1.0))
    return model, {"data": {"tokens": np.arange(600)[:, None], "features": named(on)}}


def named(on: np.ndarray) -> dict[str, np.ndarray]:
    """Features by name."""
    return {f"f{i}": on[:, i] for i in range(on.shape[1])}


def neurons(embedding: np.ndarray, W_in: np.ndarray, b_in: np.ndarray) -> Transformer:
    """One layer of ReLU neurons on an embedding, behind attention that writes nothing."""
    n, width = embedding.shape
    config = TransformerConfig(
        n_layers=1, d_model=width, n_ctx=2, d_head=4, n_heads=1, d_mlp=len(b_in), d_vocab=n,
        act_fn="relu", normalization_type=None, seed=0,
    )  # fmt: skip
    model = Transformer(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.W_E.copy_(torch.from_numpy(embedding))
        mlp = model.blocks[0].mlp
        mlp.W_in.copy_(torch.from_numpy(W_in))
        mlp.b_in.copy_(torch.from_numpy(b_in))
        mlp.W_out.copy_(0.1 * torch.eye(len(b_in), width))
    return model


ANSWERS = 4


def writers(seed: int, kind: str, size: float, n: int = 64) -> Case:
    """Attention-only model: L0H0 does a task of four answers, L0H1 writes something else.

    A clue is somewhere in the prompt. L0H0 adds 8 to the logit of its answer. L0H1 adds `size`: to
    the commonest answer on every prompt ("constant"), to the answer that another token stands for
    ("unrelated"), to the right answer ("answer"), or to the right answer where the clue is common
    and so much less where it is rare that the mean is 0 ("rare").
    """
    rng = np.random.default_rng([seed, 5])
    share = rng.dirichlet((4, 1, 1, 1)) if kind == "constant" else np.full(ANSWERS, 1 / ANSWERS)
    rare = rng.choice([0.02, 0.05, 0.1])
    if kind == "rare":
        share = np.array([rare, *np.full(ANSWERS - 1, (1 - rare) / (ANSWERS - 1))])
    clue = rng.choice(ANSWERS, n, p=share)
    other = rng.integers(0, ANSWERS, n)
    V, T = 3 * ANSWERS + 8, 5
    tokens = rng.integers(3 * ANSWERS, V, (n, T))
    at = np.array([rng.permutation(T - 1)[:2] for _ in range(n)])
    tokens[np.arange(n), at[:, 0]] = clue
    tokens[np.arange(n), at[:, 1]] = ANSWERS + other
    config = TransformerConfig(
        n_layers=1, d_model=2 * V + 1, n_ctx=T, d_head=V + 1, n_heads=2, d_vocab=V, attn_only=True,
        normalization_type=None, seed=0,
    )  # fmt: skip
    model, one = Transformer(config).eval(), V
    gains = np.full(ANSWERS, size)
    if kind == "rare":
        gains[0] = -size * (1 - rare) / rare
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.W_E[:, :V] = torch.eye(V)
        model.pos_embed.W_pos[:, one] = 1
        model.unembed.W_U[V + 1 :, :] = torch.eye(V)
        a = model.blocks[0].attn
        first = ANSWERS if kind == "unrelated" else 0
        for k in range(ANSWERS):
            answer = V + 1 + 2 * ANSWERS + k
            a.W_Q[0, one, 0] = a.W_Q[1, one, 0] = 1
            a.W_K[0, k, 0] = 40
            a.W_V[0, k, k] = 1
            a.W_O[0, k, answer] = 8
            if kind != "constant":
                a.W_K[1, first + k, 0] = 40
                a.W_V[1, first + k, k] = 1
                a.W_O[1, k, answer] = float(gains[k])
        if kind == "constant":
            a.W_V[1, one, 0] = 1
            a.W_O[1, 0, V + 1 + 2 * ANSWERS] = size
    answers = 2 * ANSWERS + clue
    data: dict[str, Any] = {"tokens": tokens, "answers": answers}
    if seed % 2:
        data["wrong"] = 2 * ANSWERS + (clue + rng.integers(1, ANSWERS, n)) % ANSWERS
    return model, {"data": data}


def patched(seed: int, kind: str, size: float, n: int = 64) -> Case:
    """The models of `writers`, with corrupted prompts that have another clue in its place.

    For "rare" they have none, so that the effect of L0H1 is what it writes, on average nothing.
    L0H1 writes by the other token, which is another one in the corrupted prompt ("unrelated"), or
    is only there and stands for the clean prompt's answer, against which L0H1 writes ("released").
    """
    rng = np.random.default_rng([seed, 7])
    model, options = writers(seed, "unrelated" if kind == "released" else kind, size, n)
    tokens = np.array(options["data"]["tokens"])
    clue = np.array(options["data"]["answers"]) - 2 * ANSWERS
    other_clue = (clue + rng.integers(1, ANSWERS, n)) % ANSWERS
    is_other = (tokens >= ANSWERS) & (tokens < 2 * ANSWERS)
    in_its_place = np.full(n, 3 * ANSWERS) if kind == "rare" else other_clue
    corrupted = np.where(tokens < ANSWERS, in_its_place[:, None], tokens)
    if kind == "released":
        tokens = np.where(is_other, 3 * ANSWERS, tokens)
        corrupted = np.where(is_other, ANSWERS + clue[:, None], corrupted)
    else:
        redrawn = ANSWERS + rng.integers(0, ANSWERS, n)
        corrupted = np.where(is_other, redrawn[:, None], corrupted)
    data = {"tokens": tokens, "answers": 2 * ANSWERS + clue, "corrupted": corrupted}
    return model, {"data": data | {"wrong": 2 * ANSWERS + other_clue}}


def of_heads(case: Case) -> Case:
    """The same with heads alone patched."""
    model, options = case
    return model, options | {"kinds": ("head",)}


def untrained_pairs(seed: int, n: int = 64) -> Case:
    """An untrained model on prompts, corrupted prompts and answers at random."""
    model, rng = untrained(seed), np.random.default_rng([seed, 8])
    V = int(model.cfg.d_vocab)
    tokens, corrupted = rng.integers(0, V, (2, n, 6))
    answers = rng.integers(0, V, n)
    data = {"tokens": tokens, "corrupted": corrupted, "answers": answers}
    return model, {"data": data | {"wrong": (answers + 1 + rng.integers(0, V - 1, n)) % V}}


def second_patched(result: Any, model: Any) -> str:
    """Status of L0H1 among patched sites."""
    return next(s.status for s in result.sites if (s.layer, s.head) == (0, 1))


def second_writer(result: Any, model: Any) -> str:
    """Status of L0H1 among components."""
    return next(c.status for c in result.components if (c.layer, c.head) == (0, 1))


def own(seed: int, n: int = 64, *, of_two: bool = False, **changed: Any) -> Case:
    """An untrained model on what it predicts."""
    return untrained(seed, **changed), {"data": lambda m: own_answers(m, seed, n, of_two=of_two)}


def own_permuted(seed: int, n: int = 64, *, of_two: bool = False) -> Case:
    """A trained toy, permuted by `rates`, on what it then predicts."""
    return toy(seed)[0], {"data": lambda m: own_answers(m, seed, n, of_two=of_two)}


def toy(seed: int, names: Sequence[str] = TRAINED) -> Case:
    """A trained toy, permuted by `rates`."""
    return it.load(f"toy:{names[seed % len(names)]}"), {}


LOUD = (0.25, 1.0, 2.0)  # of the head that performs the task
BESIDE: tuple[Any, ...] = ("mute", "constant", "unrelated", "rare")


def pattern(seed: int, beside: Any, n: int = 64) -> Case:
    """A head with a pattern beside the one that performs the task."""
    model, data, _ = by_pattern(seed, beside, LOUD[seed % 3], n)
    return model, {"data": data}


def name(seed: int, beside: Any, n: int = 64, **more: Any) -> Case:
    """A head that attends to the answer's name beside the one that performs the task."""
    model, data = by_name(seed, beside, LOUD[seed % 3], n, **more)
    return model, {"data": data}


def second_head(result: Any, model: Any) -> str:
    """The firmest status of L0H1 for any pattern."""
    statuses = {h.status for h in result.heads if (h.layer, h.head) == (0, 1)}
    order = ("detected", "undecided", "uninformative", "not_detected")
    return next((s for s in order if s in statuses), str(result.status))


def second_role(result: Any, model: Any) -> str:
    """The firmest word on L0H1 for any role, as a status."""
    words = {h.word for h in result.heads if (h.layer, h.head) == (0, 1)}
    return (
        str(result.status) if result.status == "not_tested"
        else "detected" if "named" in words
        else "undecided" if "undecided" in words
        else "not_detected"
    )  # fmt: skip


def with_second(result: Any, model: Any) -> str:
    """The circuit's status, if L0H1 is in it."""
    inside = any("L0H1" in edge.edge for edge in result.edges)
    return str(result.status) if inside or result.status != "detected" else "not_detected"


def without_second(result: Any, model: Any) -> str:
    """The circuit's status, if L0H1 is not in it."""
    inside = any("L0H1" in edge.edge for edge in result.edges)
    return "with the head" if inside and result.status == "detected" else str(result.status)


def not_elsewhere(result: Any, model: Any) -> str:
    """The circuit's status, if it keeps another fraction of the metric on 512 other prompts."""
    if result.status != "detected":
        return str(result.status)
    data = own_answers(model, 10**6, 512, of_two=True)
    prompts = prompts_from_data(as_data(data, model), model)
    engine, rows = PatchedModel(model), torch.arange(len(prompts))
    names = {edge.edge for edge in result.edges}
    metric, _ = metric_for(model, prompts, None)
    trial = EdgeAblation(engine, prompts, rows, rows, metric, 2**30)
    keeps = faithfulness(trial, [e for e in engine.wiring.edges if e.name in names])
    # its own interval, since 512 prompts are not all there are
    holds = keeps.low <= 1 + EQUAL and keeps.high >= 1 - EQUAL
    return "holds elsewhere" if holds else str(result.status)


VALUES, LENGTH = 10, 4


@torch.no_grad()
def sorter(seed: int, noise: float, kind: int) -> Case:
    """A hand-set sorter by algorithm 1 or 2, with noise on its weights."""
    layout = default_layout(VALUES, LENGTH)
    if kind:
        model = sort_min_greater(VALUES, LENGTH)
    else:
        model = sort_argmax(VALUES, LENGTH, bidirectional=False, layout=layout)
    generator = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        normal = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
        weight += noise * weight.abs().max() * normal
    return model, {"layout": layout}


ALGORITHMS = ("argmax_piecewise_linear", "min_greater_than_previous")


def other_algorithm(seed: int) -> Case:
    """A sorter with little or much noise; `which_algorithm` is told by its kind."""
    model, options = sorter(seed, (0.0, 1e-4, 1e-3, 1e-2)[seed // 2 % 4], seed % 2)
    model.planted = ALGORITHMS[seed % 2]
    return model, options


def wrong_algorithm(result: Any, model: Any) -> str:
    """The status, unless the planted algorithm is named."""
    return "the planted one" if result.algorithm == model.planted else str(result.status)


def permuted(seed: int) -> Case:
    """A trained toy, permuted by `rates`; bits are the parity of two tokens' ids."""
    model = it.load(f"toy:{TRAINED[seed % len(TRAINED)]}")
    rng = np.random.default_rng([seed, 2])
    tokens = rng.integers(0, int(model.cfg.d_vocab), (200, min(4, int(model.cfg.n_ctx))))
    return model, {
        "data": {"tokens": tokens, "features": {f"f{i}": tokens[:, i] % 2 > 0 for i in range(2)}}
    }


def planted_xor(seed: int, strength: float) -> Case:
    """An embedding that carries two bits and, `strength` × as large as the noise, their XOR."""
    rng, n, width = np.random.default_rng(seed), 200, 12
    bits = rng.random((n, 2)) < 0.5
    config = TransformerConfig(
        n_layers=1, d_model=width, n_ctx=2, d_head=4, n_heads=1, d_vocab=n, attn_only=True,
        normalization_type=None, seed=seed,
    )  # fmt: skip
    model = Transformer(config).eval()
    directions = np.linalg.qr(rng.normal(size=(width, 3)))[0].T
    signs = np.column_stack([bits, bits[:, 0] ^ bits[:, 1]]) * 2.0 - 1
    sizes = np.array([2, 2, strength])
    with torch.no_grad():
        embedding = (signs * sizes) @ directions + rng.normal(size=(n, width))
        model.embed.W_E.copy_(torch.from_numpy(embedding))
    tokens = np.column_stack([rng.integers(0, n, n), np.arange(n)])
    return model, {"data": {"tokens": tokens, "features": named(bits)}}


def status(result: Any, model: Any) -> str:
    """Status of a result."""
    return str(result.status)


class Negative(NamedTuple):
    """What must not be confirmed.

    Attributes:
        analysis: its name.
        make: a case for a seed.
        says: what is judged.
        permute: whether weights are permuted first.
        times: how many times as many models, where they cost little.
    """

    analysis: str
    make: Callable[[int], Case]
    says: Says = status
    permute: bool = False
    times: int = 1


def _weights(analysis: Any) -> dict[str, Negative]:
    """Rows of `ov` or `qk`."""
    norms = (None, "LN", "RMS")

    def with_map(kind: Any) -> Callable[[int], Case]:
        return lambda s: (
            head_of(s, analysis, kind, (0.5, 1, 4, 16)[s % 4], normalization=norms[s % 3]), {}
        )  # fmt: skip

    return {
        f"{analysis}: untrained": Negative(analysis, lambda s: (untrained(s), {}), times=4),
        f"{analysis}: permuted": Negative(analysis, toy, permute=True, times=4),
        f"{analysis}: other tokens": Negative(analysis, with_map("other"), times=4),
        f"{analysis}: same for all tokens": Negative(analysis, with_map("constant"), times=4),
        f"{analysis}: few of the tokens": Negative(analysis, with_map("rare"), times=4),
    }


NEGATIVES: dict[str, Negative] = {
    "xor: true function of the tokens": Negative(
        "xor", lambda s: (untrained(s), {"data": bits_in_prompts(s, 200)})
    ),
    "xor: true function of the tokens, permuted": Negative("xor", permuted, permute=True),
    "xor: few rows": Negative("xor", lambda s: (untrained(s), {"data": bits_in_prompts(s, 24)})),
    "boolean: all inputs": Negative("boolean", all_inputs),
    "uand: linear copy": Negative("uand", linear_copy),
    "uand: dead neurons": Negative("uand", dead_neurons),
    "uand: random features": Negative(
        "uand",
        lambda s: (
            untrained(s, d_mlp=64),
            {"data": bits_in_prompts(s, 300) | {"features": named(
                np.random.default_rng(s).random((300, 3)) < 0.5)}},
        ),
    ),
    "logit-attribution: constant writer": Negative(
        "logit-attribution", lambda s: writers(s, "constant", 1 + s % 4), second_writer
    ),
    "logit-attribution: unrelated writer": Negative(
        "logit-attribution", lambda s: writers(s, "unrelated", 1 + s % 3), second_writer
    ),
    "logit-attribution: rare large effects": Negative(
        "logit-attribution",
        lambda s: writers(s, "rare", 1.0, (8, 16, 32, 64)[s % 4]), second_writer, times=4,
    ),
    "heads: own answers": Negative("heads", own),
    "heads: own answers, permuted": Negative("heads", own_permuted, permute=True),
    "heads: mute head": Negative("heads", lambda s: pattern(s, "mute"), second_head),
    "heads: constant writer": Negative("heads", lambda s: pattern(s, "constant"), second_head),
    "heads: unrelated writer": Negative("heads", lambda s: pattern(s, "unrelated"), second_head),
    "heads: head against the answer": Negative(
        "heads", lambda s: pattern(s, "opposed"), second_head
    ),
    "heads: rare large effects": Negative(
        "heads", lambda s: pattern(s, "rare", (8, 16, 32, 64)[s % 4]), second_head
    ),
    "heads: few prompts": Negative(
        "heads", lambda s: pattern(s, BESIDE[s // 2 % 4], (8, 12, 16)[s % 3]), second_head
    ),
    "roles: own preferences": Negative("roles", lambda s: own(s, of_two=True)),
    "roles: own preferences, permuted": Negative(
        "roles", lambda s: own_permuted(s, of_two=True), permute=True
    ),
    "roles: mute head": Negative("roles", lambda s: name(s, "mute"), second_role),
    "roles: constant writer": Negative("roles", lambda s: name(s, "constant"), second_role),
    "roles: unrelated writer": Negative("roles", lambda s: name(s, "unrelated"), second_role),
    "roles: rare large effects": Negative(
        "roles", lambda s: name(s, "rare", (8, 16, 32, 64)[s % 4]), second_role
    ),
    "roles: few prompts": Negative(
        "roles", lambda s: name(s, BESIDE[s // 2 % 4], (8, 12, 16)[s % 3]), second_role
    ),
    "circuit: own preferences": Negative(
        "circuit", lambda s: own(s, 32, of_two=True), not_elsewhere
    ),
    "circuit: own preferences, permuted": Negative(
        "circuit", lambda s: own_permuted(s, 32, of_two=True), not_elsewhere, permute=True
    ),
    "circuit: mute head": Negative(
        "circuit", lambda s: name(s, "mute", idle=True), with_second
    ),
    "circuit: constant writer": Negative(
        "circuit", lambda s: name(s, "constant", idle=True), with_second
    ),
    "circuit: part of the circuit": Negative(
        "circuit",
        lambda s: (lambda m, d: (m, {"data": d}))(
            *by_name(s, "route", 0.38, (16, 32, 64)[s % 3], idle=True)),
        without_second,
    ),
    "sorting: permuted": Negative("sorting", lambda s: sorter(s, 0.0, s % 2), permute=True),
    "sorting: other algorithm": Negative("sorting", other_algorithm, wrong_algorithm),
    **_weights("ov"),
    **_weights("qk"),
    "composition: untrained": Negative(
        "composition", lambda s: (untrained(s, n_layers=2 + s % 2), {}), times=4
    ),
    "composition: permuted": Negative(
        "composition", lambda s: toy(s, ("induction-trained", "induction")), permute=True, times=4
    ),
    "composition: reads what the other reads": Negative(
        "composition", lambda s: (composing(s, "read"), {}), times=4
    ),
    "composition: mute head": Negative(
        "composition", lambda s: (composing(s, "mute"), {}), times=4
    ),
    "skip-bigrams: untrained": Negative("skip-bigrams", lambda s: (untrained(s), {})),
    "skip-bigrams: permuted": Negative("skip-bigrams", toy, permute=True),
    "skip-bigrams: same for all tokens": Negative(
        "skip-bigrams", lambda s: (bigrams(s, "keys", (1, 4, 16)[s % 3]), {})
    ),
    "skip-bigrams: few large tokens": Negative(
        "skip-bigrams", lambda s: (bigrams(s, "large", (1, 4, 16)[s % 3]), {})
    ),
    "collapse: untrained": Negative("collapse", lambda s: (untrained(s), {})),
    "collapse: permuted": Negative("collapse", toy, permute=True),
    "collapse: bias": Negative("collapse", lambda s: (biased(s), {})),
    "patching: constant writer": Negative(
        "patching", lambda s: patched(s, "constant", 1 + s % 4), second_patched
    ),
    "patching: unrelated writer": Negative(
        "patching", lambda s: patched(s, "unrelated", 1 + s % 3), second_patched
    ),
    "patching: rare large effects": Negative(
        "patching",
        lambda s: patched(s, "rare", 1.0, (8, 16, 32, 64)[s % 4]), second_patched, times=4,
    ),
    "patching: released": Negative(
        "patching", lambda s: patched(s, "released", -2.0 - s % 3), second_patched
    ),
    "patching heads: untrained": Negative("patching", lambda s: of_heads(untrained_pairs(s))),
    "patching heads: permuted": Negative(
        "patching", lambda s: of_heads(toy(s, ("induction-trained", "induction"))), permute=True
    ),
    "patching heads: mute head": Negative(
        "patching", lambda s: of_heads(patched(s, "unrelated", 0.0)), second_patched
    ),
    "patching heads: constant writer": Negative(
        "patching", lambda s: of_heads(patched(s, "constant", 1 + s % 4)), second_patched
    ),
    "patching heads: unrelated writer": Negative(
        "patching", lambda s: of_heads(patched(s, "unrelated", 1 + s % 3)), second_patched
    ),
    "patching heads: rare large effects": Negative(
        "patching",
        lambda s: of_heads(patched(s, "rare", 1.0, (8, 16, 32, 64)[s % 4])), second_patched,
        times=4,
    ),
    "patching heads: released": Negative(
        "patching", lambda s: of_heads(patched(s, "released", -2.0 - s % 3)), second_patched
    ),
}  # fmt: skip
POSITIVES: dict[str, tuple[str, Callable[[int, float], Case], Says]] = {
    "xor: in the embedding": ("xor", planted_xor, status),
    "uand: gates": ("uand", gates, status),
    "logit-attribution: writer of the answer": (
        "logit-attribution", lambda s, size: writers(s, "answer", size), second_writer,
    ),
    "heads: needed in some of the prompts": (
        "heads",
        lambda s, size: (lambda m, d, _: (m, {"data": d}))(*by_pattern(s, "answer", size / 16)),
        second_head,
    ),
    "roles: writer of the answer": (
        "roles",
        lambda s, size: (lambda m, d: (m, {"data": d}))(*by_name(s, "answer", size / 16)),
        second_role,
    ),
    "circuit: writer of the answer": (
        "circuit",
        lambda s, size: (lambda m, d: (m, {"data": d}))(
            *by_name(s, "answer", size / 64, idle=True)),
        with_second,
    ),
    "sorting: less noise": ("sorting", lambda s, size: sorter(s, 0.04 / size, 1), status),
    "ov: copying": ("ov", lambda s, size: (head_of(s, "ov", "own", size / 16), {}), status),
    "qk: matching": ("qk", lambda s, size: (head_of(s, "qk", "own", size / 16), {}), status),
    "composition: reads what is written": (
        "composition", lambda s, size: (composing(s, "written", size / 4), {}), status,
    ),
    "skip-bigrams: pairs": (
        "skip-bigrams", lambda s, size: (bigrams(s, "pairs", 1.5 * size), {}), status,
    ),
    "collapse: what tokens share is amplified": (
        "collapse", lambda s, size: (amplifying(s, size / 4), {}), status,
    ),
    "patching: writer of the answer": (
        "patching", lambda s, size: patched(s, "answer", size), second_patched,
    ),
    "patching heads: writer of the answer": (
        "patching", lambda s, size: of_heads(patched(s, "answer", size)), second_patched,
    ),
}  # fmt: skip


def judged(analysis: str, case: Case, says: Says, permute: int | None = None) -> str:
    """The status that an analysis gives; "refused" where it does not fit."""
    model, options = case

    def answer() -> str:
        made = {key: value(model) if callable(value) else value for key, value in options.items()}
        return says(it.analyze(model, analysis, **made), model)

    try:
        if permute is None:
            return answer()
        with reinitialised(model, seed=permute):
            return answer()
    except it.InputError:
        return "refused"


def row(name: str, counts: Counter[str]) -> dict[str, Any]:
    """Rate of ✓ with its exact interval."""
    total = sum(counts.values()) - counts["refused"]
    yes = sum(n for said, n in counts.items() if STATUS_TONES.get(said) == "yes")
    low, high = clopper_pearson(yes, total) if total else (0.0, 1.0)
    return {
        "name": name, "judged": total, "yes": yes, "low": low, "high": high,
        "statuses": dict(counts),
    }  # fmt: skip


def rates(models: int, only: list[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rates of ✓ on negatives, and on positives by strength."""
    negatives, positives = [], []
    chosen = [n for n in (*NEGATIVES, *POSITIVES) if not only or any(o in n for o in only)]
    for name in track(chosen, "negatives and positives"):
        if name in NEGATIVES:
            analysis, make, says, permute, times = NEGATIVES[name]
            said = (
                judged(analysis, make(s), says, 1000 + s if permute else None)
                for s in range(times * models)
            )
            negatives.append(row(name, Counter(said)))
            continue
        analysis, plant, says = POSITIVES[name]
        for strength in STRENGTHS:
            seen = (judged(analysis, plant(s, strength), says) for s in range(max(models // 6, 1)))
            positives.append(row(name, Counter(seen)) | {"strength": strength})
    return negatives, positives


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=60)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = (*NEGATIVES, *POSITIVES)
    for only in options.only:
        if not any(only in name for name in names):
            parser.error(f"--only {only!r} is in none of: {', '.join(names)}")
    warnings.simplefilter("ignore")
    console, start = Console(), time.perf_counter()
    negatives, positives = rates(options.models, options.only)
    for title, rows in (("✓ of what is not there", negatives), ("What is there", positives)):
        table = Table(title=title)
        for column in ("what", "strength", "judged", "✓", "95 % interval", "statuses"):
            table.add_column(column)
        for r in rows:
            interval = f"{r['low']:.1%} to {r['high']:.1%}"
            cells = (r["name"], r.get("strength", ""), r["judged"], r["yes"], interval)
            table.add_row(*map(str, cells), str(r["statuses"]))
        console.print(table)
    console.print(f"{time.perf_counter() - start:.0f} s")
    if options.json:
        found = {"negatives": negatives, "positives": positives}
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
