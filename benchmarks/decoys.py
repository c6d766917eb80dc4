"""How often planted decoys are taken for heads of a kind, and how often true heads are seen.

Hand-set attention-only models without norms, each with one head that attends in a way that looks
like a named attention pattern on its prompts and is another (a *decoy*), or with true heads. Which
tokens, positions, sizes and sharpness is drawn by the seed. Each claim is put to `audit`, each
model to `heads`:

- fixed position: the same position from everywhere, where the pattern's key happens to stand;
- label leak: the same, where the prompts are laid out so that the answer always stands there;
- separator: a separator token from everywhere; window: the last three positions alike;
- token class: any token of a class, of which the row holds one beside the query;
- inert sink: the first token, writing nothing; bias: the first token, writing a constant;
- canceling pair: two heads whose writes cancel; period: a fixed distance, in periodic prompts;
- copy anything: all positions alike, copying;
- mute token: the previous token, which writes nothing where an answer is asked; elsewhere it writes
  so much that every replacement drowns the head that does the task.

Run: python benchmarks/decoys.py [--seeds 6] [--first-seed 0] [--only KIND ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformer_lens import HookedTransformer, HookedTransformerConfig

import interp_toolkit as it

PROMPTS = 256
Form = Callable[[torch.Tensor, dict[str, slice]], None]


@dataclass(frozen=True)
class Claim:
    """A claim about a head, and whether it is true."""

    head: str
    relation: str
    says: str
    true: bool


@dataclass(frozen=True)
class Planted:
    """A model with its prompts, and claims about it whose truth is known."""

    kind: str
    model: HookedTransformer
    data: dict[str, np.ndarray]
    claims: Sequence[Claim]


class _Draw:
    """Sizes and sharpness of one model, and prompts of its size."""

    def __init__(self, seed: int, *key: int):
        self.rng = np.random.default_rng([seed, *key])
        self.vocab = int(self.rng.integers(14, 24))
        self.length = int(self.rng.integers(8, 14))
        self.sharpness = float(self.rng.uniform(14, 30))
        self.gain = float(self.rng.uniform(8, 14))
        self.index = int(self.rng.integers(2))  # of the planted head in its layer
        self.says = str(self.rng.choice(["contributes", "carries"]))

    @property
    def head(self) -> int:
        return self.index

    def random(self) -> np.ndarray:
        """Random tokens; 0 begins every row."""
        tokens = self.rng.integers(1, self.vocab, (PROMPTS, self.length))
        tokens[:, 0] = 0
        return tokens

    def distinct(self) -> np.ndarray:
        """Rows without a repeated token."""
        size = min(self.length, self.vocab)
        return np.stack([self.rng.permutation(self.vocab)[:size] for _ in range(PROMPTS)])

    def layer(self, planted: tuple[Form, Form]) -> list[tuple[Form, Form]]:
        """The planted head beside an idle one."""
        return [planted, (none, none)] if self.index == 0 else [(none, none), planted]


def built(d: _Draw, layers: Sequence[Sequence[tuple[Form, Form]]], bias: Any = None) -> Any:
    """A model whose heads have these forms: query by key, and key by what is written."""
    V, T = d.vocab, d.length
    blocks, width = {}, 0
    for name, size in (("token", V), ("position", T), ("one", 1), ("out", V), ("scratch", V)):
        blocks[name] = slice(width, width + size)
        width += size
    cfg = HookedTransformerConfig(
        n_layers=len(layers), n_heads=max(map(len, layers)), d_model=width, d_head=2 * max(V, T),
        n_ctx=T, d_vocab=V, attn_only=True, normalization_type=None, seed=0, device="cpu",
        use_attn_scale=False, positional_embedding_type="standard",
    )  # fmt: skip
    model = HookedTransformer(cfg)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.W_E[:, blocks["token"]] = torch.eye(V)
        model.W_pos[:, blocks["position"]] = torch.eye(T)
        model.W_pos[:, blocks["one"]] = 1
        model.W_U[blocks["out"], :] = torch.eye(V)
        if bias is not None:
            model.b_U.add_(torch.as_tensor(bias))
        for layer, heads in enumerate(layers):
            attention = model.blocks[layer].attn
            for head, (qk, ov) in enumerate(heads):
                for form, left, right in ((qk, "W_Q", "W_K"), (ov, "W_V", "W_O")):
                    matrix = torch.zeros(width, width, dtype=torch.float64)
                    form(matrix, blocks)
                    u, s, v = torch.linalg.svd(matrix)
                    rank = int((s > 1e-6).sum())
                    first = (u[:, :rank] * s[:rank].sqrt()).float()
                    second = (v[:rank].T * s[:rank].sqrt()).float()
                    getattr(attention, left)[head, :, :rank] = first
                    if right == "W_K":
                        attention.W_K[head, :, :rank] = second
                    else:
                        attention.W_O[head, :rank, :] = second.T
    return model.eval()


def none(matrix: torch.Tensor, blocks: dict[str, slice]) -> None:
    """A form of zeros."""


def offsets(scores: dict[int, float]) -> Form:
    """Attention so many positions back."""

    def form(matrix: torch.Tensor, blocks: dict[str, slice]) -> None:
        start, n = blocks["position"].start, blocks["position"].stop - blocks["position"].start
        for back, score in scores.items():
            for query in range(back, n):
                matrix[start + query, start + query - back] += score

    return form


def position(where: int, score: float) -> Form:
    """Attention to one position from everywhere."""

    def form(matrix: torch.Tensor, blocks: dict[str, slice]) -> None:
        matrix[blocks["one"].start, blocks["position"].start + where] += score

    return form


def tokens_of(ids: Sequence[int], score: float) -> Form:
    """Attention to these tokens from everywhere."""

    def form(matrix: torch.Tensor, blocks: dict[str, slice]) -> None:
        for token in ids:
            matrix[blocks["one"].start, blocks["token"].start + token] += score

    return form


def matching(block: str, score: float) -> Form:
    """Attention to keys that hold the query's token in a block."""

    def form(matrix: torch.Tensor, blocks: dict[str, slice]) -> None:
        for i in range(blocks["token"].stop - blocks["token"].start):
            matrix[blocks["token"].start + i, blocks[block].start + i] += score

    return form


def both(*forms: Form) -> Form:
    """The sum of several forms."""

    def form(matrix: torch.Tensor, blocks: dict[str, slice]) -> None:
        for one in forms:
            one(matrix, blocks)

    return form


def not_itself(score: float) -> Form:
    """Less attention of every position to itself."""
    return offsets({0: -3 * score})


def copying(gain: float, source: str = "token", target: str = "out") -> Form:
    """What stands in one block is written to another."""

    def form(matrix: torch.Tensor, blocks: dict[str, slice]) -> None:
        for i in range(blocks[source].stop - blocks[source].start):
            matrix[blocks[source].start + i, blocks[target].start + i] += gain

    return form


def _last(answers: np.ndarray, tokens: np.ndarray) -> dict[str, np.ndarray]:
    return {"tokens": tokens, "answers": answers}


def fixed_position(seed: int) -> Planted:
    d = _Draw(seed, 1)
    relation = ["previous-token", "duplicate-token"][seed % 2]
    if relation == "previous-token":
        where, tokens = d.length - 2, d.random()
    else:
        where, tokens = int(d.rng.integers(1, d.length - 2)), d.distinct()
        tokens[:, -1] = tokens[:, where]
    head = (position(where, d.sharpness), copying(d.gain))
    model = built(d, [d.layer(head)])
    claims = [Claim(f"L0H{d.head}", relation, d.says, False)]
    return Planted("fixed position", model, _last(tokens[:, where], tokens), claims)


def label_leak(seed: int) -> Planted:
    d = _Draw(seed, 2)
    where, tokens = int(d.rng.integers(2, d.length - 2)), d.distinct()
    tokens[:, -1] = tokens[:, where - 1]
    model = built(d, [d.layer((position(where, d.sharpness), copying(d.gain)))])
    claims = [Claim(f"L0H{d.head}", "induction", d.says, False)]
    return Planted("label leak by position", model, _last(tokens[:, where], tokens), claims)


def separator(seed: int) -> Planted:
    d = _Draw(seed, 3)
    tokens = d.random()
    tokens[tokens == 1] = 2
    where = d.rng.integers(3, d.length - 1, PROMPTS)
    if seed % 2:
        where[:] = d.length - 2
    rows = np.arange(PROMPTS)
    tokens[rows, where] = 1
    first = (offsets({1: d.sharpness}), copying(1.0, "token", "scratch"))
    second = (tokens_of([1], d.sharpness), copying(d.gain, "scratch"))
    model = built(d, [[first, (none, none)], d.layer(second)])
    data = {
        "tokens": tokens,
        "answers": tokens[rows, where - 1][:, None],
        "answer_positions": (where + 1)[:, None],
    }
    claims = [Claim(f"L1H{d.head}", "previous-token", d.says, False)]
    return Planted("separator", model, data, claims)


def window(seed: int) -> Planted:
    d = _Draw(seed, 4)
    tokens = d.random()
    pair = np.array([(1, 2), (1, 3), (2, 3)])[d.rng.integers(3, size=PROMPTS)]
    rows = np.arange(PROMPTS)
    answers = d.rng.integers(1, d.vocab, PROMPTS)
    for column in pair.T:
        tokens[rows, d.length - 1 - column] = answers
    head = (offsets(dict.fromkeys((1, 2, 3), d.sharpness)), copying(d.gain))
    model = built(d, [d.layer(head)])
    says = "contributes"
    claims = [Claim(f"L0H{d.head}", "previous-token", says, False)]
    return Planted("window", model, _last(answers, tokens), claims)


def token_class(seed: int) -> Planted:
    d = _Draw(seed, 5)
    half = d.vocab // 2
    tokens = d.rng.integers(half, d.vocab, (PROMPTS, d.length))
    rows, where = np.arange(PROMPTS), d.rng.integers(2, d.length - 2, PROMPTS)
    relation = ["duplicate-token", "induction"][seed % 2]
    answers = d.rng.integers(1, half, PROMPTS)
    tokens[rows, where] = answers
    if relation == "duplicate-token":
        tokens[:, -1] = answers
    else:
        tokens[:, -1] = tokens[rows, where - 1]
    score = both(tokens_of(range(1, half), d.sharpness), not_itself(d.sharpness))
    model = built(d, [d.layer((score, copying(d.gain)))])
    claims = [Claim(f"L0H{d.head}", relation, d.says, False)]
    return Planted("token class", model, _last(answers, tokens), claims)


def _with_first_token(d: _Draw, ov: Form, bias: Any = None) -> tuple[Any, dict[str, np.ndarray]]:
    """A head that attends to the first token beside a previous-token head that does the task."""
    tokens = d.random()
    sink = (position(0, d.sharpness), ov)
    true = (offsets({1: d.sharpness}), copying(d.gain))
    heads = [sink, true] if d.index == 0 else [true, sink]
    where = np.stack([2 + np.sort(d.rng.permutation(d.length - 2)[:3]) for _ in range(PROMPTS)])
    answers = np.take_along_axis(tokens, where - 1, axis=1)
    data = {"tokens": tokens, "answers": answers, "answer_positions": where}
    return built(d, [heads], bias), data


def inert_sink(seed: int) -> Planted:
    d = _Draw(seed, 6)
    model, data = _with_first_token(d, none)
    return Planted("inert sink", model, data, [Claim(f"L0H{d.head}", "first-token", d.says, False)])


def bias_like(seed: int) -> Planted:
    d = _Draw(seed, 7)
    rival = int(d.rng.integers(1, d.vocab))
    bias = np.zeros(d.vocab, dtype=np.float32)
    bias[rival] = d.gain * 1.3

    def ov(matrix: torch.Tensor, blocks: dict[str, slice]) -> None:
        matrix[blocks["token"].start, blocks["out"].start + rival] = -d.gain * 1.3

    model, data = _with_first_token(d, ov, bias)
    return Planted("bias", model, data, [Claim(f"L0H{d.head}", "first-token", d.says, False)])


def cancelling_pair(seed: int) -> Planted:
    d = _Draw(seed, 8)
    where, tokens = int(d.rng.integers(1, d.length - 3)), d.random()
    strong = copying(2 * d.gain)
    weak = copying(-2 * d.gain)
    true = (position(where, d.sharpness), copying(d.gain))
    pair = [(offsets({1: d.sharpness}), ov) for ov in (strong, weak)]
    model = built(d, [[*pair, true]])
    claims = [Claim("L0H1", "previous-token", d.says, False)]
    return Planted("cancelling pair", model, _last(tokens[:, where], tokens), claims)


def period(seed: int) -> Planted:
    d = _Draw(seed, 9)
    span = int(d.rng.integers(3, 1 + d.length // 2))
    first = np.stack([d.rng.permutation(d.vocab)[:span] for _ in range(PROMPTS)])
    tokens = np.tile(first, (1, 2))
    d.length = 2 * span
    where = np.arange(span, 2 * span - 1)
    model = built(d, [d.layer((offsets({span - 1: d.sharpness}), copying(d.gain)))])
    data = {"tokens": tokens, "answers": tokens[:, where + 1], "answer_positions": where}
    claims = [Claim(f"L0H{d.head}", "induction", d.says, False)]
    return Planted("period", model, data, claims)


def copy_anything(seed: int) -> Planted:
    d = _Draw(seed, 10)
    relation = ["duplicate-token", "answer"][seed % 2]
    tokens = d.distinct()
    answers = d.rng.integers(1, d.vocab, PROMPTS)
    for row, answer in zip(tokens, answers, strict=True):
        row[d.rng.permutation(d.length - 1)[:3]] = answer
        if relation == "duplicate-token":
            row[-1] = answer
    model = built(d, [d.layer((none, copying(3 * d.gain)))])
    claims = [Claim(f"L0H{d.head}", relation, "contributes", False)]
    return Planted("copy anything", model, _last(answers, tokens), claims)


def mute_token(seed: int) -> Planted:
    d = _Draw(seed, 16)
    tokens, rows, mute = d.random(), np.arange(PROMPTS), int(d.rng.integers(2, 6))
    tokens = np.where(tokens == 0, 0, mute + tokens % (d.vocab - mute))
    where = d.rng.integers(4, d.length, PROMPTS)
    tokens[rows, where - 1] = d.rng.integers(1, mute, PROMPTS)

    def ov(matrix: torch.Tensor, blocks: dict[str, slice]) -> None:
        loud = slice(blocks["token"].start + mute, blocks["token"].stop)
        matrix[loud, blocks["out"].start] = 3 * d.gain

    heads = [(offsets({1: 40.0}), ov), (position(1, d.sharpness), copying(d.gain))]
    model = built(d, [heads if d.index == 0 else heads[::-1]])
    answers = {"answers": tokens[:, 1:2], "answer_positions": where[:, None]}
    claims = [Claim(f"L0H{d.head}", "previous-token", "contributes", False)]
    return Planted("mute token", model, {"tokens": tokens} | answers, claims)


def true_previous(seed: int) -> Planted:
    d = _Draw(seed, 11)
    model, data = _with_first_token(d, none)
    claims = [Claim(f"L0H{1 - d.head}", "previous-token", d.says, True)]
    return Planted("previous-token", model, data, claims)


def true_duplicate(seed: int) -> Planted:
    d = _Draw(seed, 12)
    tokens = d.distinct()
    rows, where = np.arange(PROMPTS), d.rng.integers(1, d.length - 1, PROMPTS)
    tokens[:, -1] = tokens[rows, where]
    score = both(matching("token", d.sharpness), not_itself(d.sharpness))

    def where_it_was(matrix: torch.Tensor, blocks: dict[str, slice]) -> None:
        for i in range(d.length):
            matrix[blocks["position"].start + i, blocks["out"].start + i] += d.gain

    model = built(d, [d.layer((score, where_it_was))])
    claims = [Claim(f"L0H{d.head}", "duplicate-token", d.says, True)]
    return Planted("duplicate-token", model, _last(where, tokens), claims)


def _inducing(d: _Draw, heads: int) -> tuple[Any, dict[str, np.ndarray]]:
    tokens = d.distinct()
    rows, where = np.arange(PROMPTS), d.rng.integers(2, d.length - 1, PROMPTS)
    tokens[:, -1] = tokens[rows, where - 1]
    first = (offsets({1: d.sharpness}), copying(1.0, "token", "scratch"))
    second = (matching("scratch", d.sharpness), copying(d.gain / heads))
    layer = [second] * heads if heads > 1 else d.layer(second)
    model = built(d, [[first, (none, none)], layer])
    return model, _last(tokens[rows, where], tokens)


def true_induction(seed: int) -> Planted:
    d = _Draw(seed, 13)
    model, data = _inducing(d, 1)
    claims = [
        Claim(f"L1H{d.head}", "induction", d.says, True),
        Claim("L0H0", "previous-token", "contributes", True),
    ]
    return Planted("induction", model, data, claims)


def true_shared(seed: int) -> Planted:
    d = _Draw(seed, 14)
    model, data = _inducing(d, 2)
    claims = [Claim("L1H0", "induction", "contributes", True)]
    return Planted("induction, two heads", model, data, claims)


def true_first(seed: int) -> Planted:
    d = _Draw(seed, 15)
    tokens = d.random()
    tokens[:, 0] = d.rng.integers(1, d.vocab, PROMPTS)
    where = np.stack([1 + np.sort(d.rng.permutation(d.length - 1)[:3]) for _ in range(PROMPTS)])
    model = built(d, [d.layer((position(0, d.sharpness), copying(d.gain)))])
    answers = np.repeat(tokens[:, :1], 3, axis=1)
    data = {"tokens": tokens, "answers": answers, "answer_positions": where}
    return Planted("first-token", model, data, [Claim(f"L0H{d.head}", "first-token", d.says, True)])


DECOYS = (
    fixed_position, label_leak, separator, window, token_class, inert_sink, bias_like,
    cancelling_pair, period, copy_anything, mute_token,
)  # fmt: skip
TRUE = (true_previous, true_duplicate, true_induction, true_shared, true_first)


def accuracy(planted: Planted) -> float:
    """How often the model names the answer: a decoy that does not do its task proves nothing."""
    tokens = torch.as_tensor(planted.data["tokens"])
    answers = np.asarray(planted.data["answers"]).reshape(len(tokens), -1)
    where = np.asarray(planted.data.get("answer_positions", tokens.shape[1] - 1))
    where = np.broadcast_to(where, answers.shape)
    guesses = planted.model(tokens).argmax(-1).numpy()
    return float((np.take_along_axis(guesses, where, axis=1) == answers).mean())


def judged(planted: Planted) -> list[dict[str, Any]]:
    """Of every claim: what `audit` answers, and what `heads` says of its head."""
    result = it.analyze(planted.model, "heads", data=planted.data)
    rows = []
    for claim in planted.claims:
        asserted = {"heads": [claim.head], "relation": claim.relation, "says": claim.says}
        audited = it.audit(planted.model, asserted, data=planted.data).claims[0]
        entry = next(
            (h for h in result.heads if (h.name, h.detector) == (claim.head, claim.relation)), None
        )
        rows.append(
            asdict(claim)
            | {
                "kind": planted.kind,
                "answer": audited.answer,
                "detected": entry is not None and entry.detected,
                "causal": None if entry is None else entry.causal,
                "reason": None if entry is None else entry.reason,
                "parts": {p.question: [p.answer, p.summary] for p in audited.parts},
            }
        )
    return rows


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--why", action="store_true", help="print what decided each wrong answer")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    console, rows, start = Console(), [], time.perf_counter()
    makers = [m for m in (*DECOYS, *TRUE) if not options.only or m.__name__ in options.only]
    for maker in track(makers, "planted models"):
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            planted = maker(seed)
            assert accuracy(planted) > 0.9, (planted.kind, seed, accuracy(planted))
            rows += [row | {"seed": seed} for row in judged(planted)]
    table = Table(title="Planted heads: named by `heads`, confirmed by `audit`")
    for column in ("planted", "claim", "claims", "named", "confirmed", "refuted", "undecided"):
        table.add_column(column)
    kinds = list(dict.fromkeys((r["kind"], r["relation"], r["true"]) for r in rows))
    summary = []
    for kind, relation, true in kinds:
        own = [r for r in rows if (r["kind"], r["relation"]) == (kind, relation)]
        counts = {
            "claims": len(own),
            "named": sum(r["detected"] for r in own),
            "confirmed": sum(r["answer"] == "confirmed" for r in own),
            "refuted": sum(r["answer"] == "refuted" for r in own),
            "undecided": sum(r["answer"] in ("undecided", "not_testable") for r in own),
        }
        summary.append({"planted": kind, "claim": relation, "true": true, **counts})
        table.add_row(
            kind, f"{relation} ({'true' if true else 'false'})", *map(str, counts.values())
        )
    console.print(table)
    totals = {
        name: {
            key: sum(s[key] for s in summary if s["true"] == true)
            for key in ("claims", "named", "confirmed")
        }
        for name, true in (("true", True), ("false", False))
    }
    console.print(totals, f"{time.perf_counter() - start:.0f} s")
    if options.why:
        for r in rows:
            wrong = r["detected"] != r["true"] or (r["answer"] == "confirmed") != r["true"]
            if wrong:
                named = f"named {r['detected']} ({r['causal']}: {r['reason']})"
                console.print(*(r[k] for k in ("kind", "seed", "head", "relation", "says")), named)
                for question, (answer, why) in r["parts"].items():
                    console.print(f"    {question}: {answer}: {why[:260]}")
    if options.json:
        options.json.write_text(json.dumps({"kinds": summary, "totals": totals}, indent=1))


if __name__ == "__main__":
    main()
