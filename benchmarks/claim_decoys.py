"""How often false claims about circuits, pairs, directions, algorithms, amounts are confirmed.

Hand-set models (`decoys.built`), of which is known what they do, each with true claims and with
*decoys*: false ones about a part that is there, or does something else. What is drawn: tokens,
positions, sizes, sharpness. Decoys:

- circuit, sufficient: an edge is left out; an idle head stands for the true one; a mechanism that
  serves half of the prompts; all edges of an idle head. Necessary: edges of a head that another
  backs up; edges of an idle head; the direct edge; a head that works on a tenth of the prompts;
- composition (one edge is necessary): another channel, sender or receiver; a sender that another
  backs up; the sender's direct edge;
- pair: the two tokens exchanged; another head; a key that every query attends to; a query that
  attends to half of all keys; a key's neighbor;
- direction: one that nothing reads; another feature's; a random one; a function that is not linear;
  a position where the feature is not yet; too short a step. Counted apart, as a stated limit: a
  dormant one plus one that nothing reads, where later layers read a single direction;
- algorithm: the other one; models that copy the list, shift it, or were never trained;
- threshold: more than the share of the prompts that need the head; more than the whole head is
  worth, whose other attention writes against the answer; what another head with other attention
  does too; an excess above the share of the attention, or of the queries that have it.

Run: python benchmarks/claim_decoys.py [--seeds 3] [--first-seed 0] [--only KIND ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from decoys import (
    PROMPTS,
    Form,
    _Draw,
    both,
    built,
    copying,
    matching,
    none,
    offsets,
    position,
)
from rich.console import Console
from rich.progress import track
from rich.table import Table

import interp_toolkit as it
from interp_toolkit.toys.hand_set.untrained import random_model

LIMIT = "stated limit"  # the subject of claims that docs/audit.md says are not told apart


@dataclass(frozen=True)
class Asked:
    """A claim about a model whose truth is known.

    Attributes:
        subject: the kind of claim.
        kind: the kind of decoy, or of true claim.
        claim: the claim, as `audit` takes it.
        true: whether it is true.
        model, data: the model, and its prompts (None: those that the audit makes).
    """

    subject: str
    kind: str
    claim: Any
    true: bool
    model: Any
    data: Any = None


def inducing(d: _Draw, senders: int = 1, receivers: int = 1) -> tuple[Any, dict[str, Any]]:
    """Previous-token heads that induction heads read by their keys, and an idle head in a layer."""
    tokens = d.distinct()
    rows, where = np.arange(PROMPTS), d.rng.integers(2, d.length - 1, PROMPTS)
    tokens[:, -1] = tokens[rows, where - 1]
    first = (offsets({1: d.sharpness}), copying(1.0, "token", "scratch"))
    second = (matching("scratch", d.sharpness), copying(d.gain / receivers))
    idle = [(none, none)] * (3 - senders)
    model = built(d, [[first] * senders + idle, [second] * receivers + [(none, none)] * 2])
    return model, {"tokens": tokens, "answers": tokens[rows, where]}


TRUE_EDGES = (
    "input->a0.h0<v>",
    "a0.h0->a1.h0<k>",
    "input->a1.h0<q>",
    "input->a1.h0<v>",
    "a1.h0->logits",
)


def circuits(seed: int) -> Iterator[Asked]:
    """Circuits, sufficient and necessary."""
    d = _Draw(seed, 101)
    model, data = inducing(d)
    out = int(d.rng.integers(len(TRUE_EDGES)))
    claims: list[tuple[str, Sequence[str], str, bool]] = [
        ("all edges", TRUE_EDGES, "sufficient", True),
        ("all edges", TRUE_EDGES, "necessary", True),
        ("with idle edges", (*TRUE_EDGES, "a0.h1->logits", "a0.h2->a1.h1<v>"), "both", True),
        ("an edge less", [e for i, e in enumerate(TRUE_EDGES) if i != out], "sufficient", False),
        (
            "an idle head instead",
            [edge.replace("a1.h0", "a1.h2") for edge in TRUE_EDGES],
            "sufficient",
            False,
        ),
        ("idle edges", ["input->a1.h1<v>", "a1.h1->logits"], "necessary", False),
        ("the direct edge", ["input->logits"], "necessary", False),
    ]
    for kind, edges, says, true in claims:
        yield Asked("circuit", kind, {"circuit": list(edges), "says": says}, true, model, data)
    model, data = inducing(_Draw(seed, 102), receivers=2)
    backed = {"circuit": [e for e in TRUE_EDGES if "a1.h0" in e], "says": "necessary"}
    yield Asked("circuit", "backed up", backed, False, model, data)
    for share, kind in ((0.5, "for half of the prompts"), (0.1, "for a tenth of the prompts")):
        model, data = split(_Draw(seed, 103), share)
        says = "sufficient" if share == 0.5 else "necessary"
        part = {"circuit": ["input->a0.h0<v>", "a0.h0->logits"], "says": says}
        yield Asked("circuit", kind, part, False, model, data)
    whole = {"circuit": ["a0.h0", "a0.h1"], "says": "both"}
    yield Asked("circuit", "both mechanisms", whole, True, model, data)


def split(d: _Draw, share: float) -> tuple[Any, dict[str, Any]]:
    """A previous-token head and a first-token head; the last token says which of them is needed.

    From tokens of the other half of the vocabulary, each head attends to position 1 instead, whose
    token writes nothing.
    """
    half = d.vocab // 2
    tokens = d.rng.integers(1, d.vocab, (PROMPTS, d.length))
    previous = d.rng.random(PROMPTS) < share
    tokens[:, -1] = np.where(
        previous, d.rng.integers(1, half, PROMPTS), d.rng.integers(half, d.vocab, PROMPTS)
    )
    tokens[:, 1] = 0

    def idle_from(asking: range) -> Form:
        def form(matrix: torch.Tensor, blocks: dict[str, slice]) -> None:
            for token in asking:
                row = blocks["token"].start + token
                matrix[row, blocks["position"].start + 1] += 3 * d.sharpness

        return form

    def quiet_copying(matrix: torch.Tensor, blocks: dict[str, slice]) -> None:
        copying(d.gain)(matrix, blocks)
        matrix[blocks["token"].start, blocks["out"].start] = 0.0

    first, second = range(half), range(half, d.vocab)
    heads = [
        (both(offsets({1: d.sharpness}), idle_from(second)), quiet_copying),
        (both(position(0, d.sharpness), idle_from(first)), quiet_copying),
    ]
    answers = np.where(previous, tokens[:, -2], tokens[:, 0])
    return built(d, [heads]), {"tokens": tokens, "answers": answers}


def compositions(seed: int) -> Iterator[Asked]:
    """One edge between two heads, necessary or not."""
    model, data = inducing(_Draw(seed, 111))
    for kind, edge, true in (
        ("the edge", "a0.h0->a1.h0<k>", True),
        ("another channel", "a0.h0->a1.h0<v>", False),
        ("another sender", "a0.h1->a1.h0<k>", False),
        ("another receiver", "a0.h0->a1.h1<k>", False),
        ("the direct edge", "a0.h0->logits", False),
    ):
        yield Asked(
            "composition", kind, {"circuit": [edge], "says": "necessary"}, true, model, data
        )
    model, data = inducing(_Draw(seed, 112), senders=2)
    for edges, kind, true in (
        (["a0.h0->a1.h0<k>"], "backed up", False),
        (["a0.h0->a1.h0<k>", "a0.h1->a1.h0<k>"], "both senders", True),
    ):
        yield Asked("composition", kind, {"circuit": edges, "says": "necessary"}, true, model, data)


def pairs(seed: int) -> Iterator[Asked]:
    """Skip-bigrams of heads with small random scores."""
    d = _Draw(seed, 121)
    d.vocab, d.length = 48, 12
    ids = [int(i) for i in d.rng.permutation(d.vocab)]
    key, query, second_key, second_query, loved, other, asking = ids[:7]
    noise = d.rng.normal(size=(d.vocab, d.vocab))
    half = ids[len(ids) // 2 :]

    def scores(wanted: Sequence[tuple[int, int, float]], common: Sequence[int] = ()) -> Form:
        def form(matrix: torch.Tensor, blocks: dict[str, slice]) -> None:
            start, n = blocks["token"].start, d.vocab
            matrix[start : start + n, start : start + n] += torch.as_tensor(noise * 0.5)
            for q, k, score in wanted:
                matrix[start + q, start + k] += score
            for k in common:
                matrix[start : start + n, start + k] += 6.0

        return form

    wanted = [(query, key, 7.0), (second_query, second_key, 7.0)]
    broad = [(asking, k, 3.0) for k in half]
    model = built(
        d, [[(scores([*wanted, *broad], [loved]), copying(1.0)), (scores([]), copying(1.0))]]
    )
    for kind, head, k, q, true in (
        ("planted", 0, key, query, True),
        ("planted", 0, second_key, second_query, True),
        ("exchanged", 0, query, key, False),
        ("another head", 1, key, query, False),
        ("a key for every query", 0, loved, other, False),
        ("half of all keys", 0, half[0], asking, False),
        ("another pair's key", 0, second_key, query, False),
    ):
        pair = {"pair": {"head": f"L0H{head}", "key": k, "query": q}}
        yield Asked("pair", kind, pair, true, model)


def directions(seed: int) -> Iterator[Asked]:
    """Directions of a binary feature, the token at one position, that the answer repeats."""
    d = _Draw(seed, 131)
    where = int(d.rng.integers(2, d.length - 2))
    a, b, *_ = (int(i) for i in 2 + d.rng.permutation(d.vocab - 3))
    dormant_token = d.vocab - 1
    tokens = d.rng.integers(1, d.vocab - 1, (PROMPTS, d.length))
    is_a, other = d.rng.random((2, PROMPTS)) < 0.5
    tokens[:, where] = np.where(is_a, a, b)
    often = is_a ^ (d.rng.random(PROMPTS) < 0.05)  # what the unused direction holds
    tokens[:, where + 1] = np.where(often, a, b)
    corrupted = tokens.copy()
    corrupted[:, where] = np.where(is_a, b, a)
    corrupted[:, where + 1] = np.where(often, b, a)
    heads = [
        (position(where, d.sharpness), copying(d.gain)),
        (position(where + 1, d.sharpness), copying(d.gain, "token", "scratch")),
    ]
    model = built(d, [heads])
    V, T = d.vocab, d.length
    start = {"token": 0, "position": V, "out": V + T + 1, "scratch": 2 * V + T + 1}
    with torch.no_grad():  # read by the logits, and never there
        model.W_U[start["token"] + dormant_token, a] = 1.0
        model.W_U[start["token"] + dormant_token, b] = -1.0
    data = {
        "tokens": tokens,
        "answers": tokens[:, where],
        "wrong": corrupted[:, where],
        "corrupted": corrupted,
        "features": {"a": is_a, "other": other},
    }

    def between(block: str) -> np.ndarray:
        vector = np.zeros(model.cfg.d_model)
        vector[start[block] + a], vector[start[block] + b] = 1.0, -1.0
        return vector / np.sqrt(2)

    used, unused = between("out"), between("scratch")
    dormant = np.zeros(model.cfg.d_model)
    dormant[start["token"] + dormant_token] = 1.0
    anything = d.rng.normal(size=model.cfg.d_model)
    for read in (used, unused):  # a random direction may read what is large
        anything -= (anything @ read) * read
    hook = "blocks.0.hook_resid_post"

    def asked(kind: str, vector: np.ndarray, true: bool, **more: Any) -> Asked:
        claim = {"direction": vector.tolist(), "hook": hook, "position": -1, **more}
        return Asked("direction", kind, claim, true, model, data)

    feature = {"says": "reads", "features": ["a"]}
    yield asked("reads", used, True, **feature)
    yield asked("reads, not used", unused, True, **feature)
    yield asked("carries", used, True, says="carries")
    yield asked("reads, opposite sign", -used, True, **feature)
    yield asked("another feature", used, False, says="reads", features=["other"])
    yield asked("not linear", used, False, says="reads", features=["a", "other"], table="0110")
    yield asked("random", anything, False, **feature)
    yield asked("not there yet", used, False, **feature | {"position": max(where - 1, 0)})
    yield asked("nothing reads it", unused, False, says="carries")
    both_parts = asked("dormant", (unused + dormant) / np.sqrt(2), False, says="carries")
    yield replace(both_parts, subject=LIMIT)
    yield asked("random", anything, False, says="carries")
    away = -used  # from a to b, which is wrong in half of the prompts
    for kind, vector, by, true in (
        ("steers", away, 3 * d.gain, True),
        ("too short a step", away, 0.05 * d.gain, False),
        ("nothing reads it", unused, 3 * d.gain, False),
    ):
        yield asked(kind, vector, true, says="steers", by=by, at_least=0.35)


def algorithms(seed: int) -> Iterator[Asked]:
    """Sorting models, and models that do something else with lists."""
    argmax, greater = "argmax_piecewise_linear", "min_greater_than_previous"
    for name, own, other in (
        ("sort-argmax", argmax, greater),
        ("sort-min-greater", greater, argmax),
    ):
        model = it.load(f"toy:{name}")
        yield Asked("algorithm", name, {"algorithm": own}, True, model)
        yield Asked("algorithm", "the other one", {"algorithm": other}, False, model)
    d = _Draw(seed, 141)
    n, vocab = 5, 12
    d.vocab, d.length = vocab, 2 * n + 2
    layout = f"{vocab - 2} list{n} {vocab - 1} sorted{n}"
    for kind, back in (("copies", n + 1), ("shifted", n)):
        head = (offsets({back: d.sharpness}), copying(d.gain))
        model = built(d, [[head, (none, none)]])
        claim = {"algorithm": [argmax, greater][seed % 2], "layout": layout}
        yield Asked("algorithm", kind, claim, False, model)
    model = random_model(seed, n_layers=1, d_vocab=vocab, n_ctx=d.length, d_model=32)
    yield Asked("algorithm", "untrained", {"algorithm": argmax, "layout": layout}, False, model)


def thresholds(seed: int) -> Iterator[Asked]:
    """Amounts of the metric, and of attention."""
    d = _Draw(seed, 151)
    share = float(d.rng.uniform(0.3, 0.45))
    model, data = split(d, share)
    amount = "L0H0's previous-token attention contributes at least {:.2f} of the metric"
    excess = "L0H0 attends to the previous token with an excess of at least {:.2f}"
    kind = "a share of the prompts"
    yield Asked("threshold", kind, amount.format(share - 0.18), True, model, data)
    yield Asked("threshold", kind, amount.format(share + 0.18), False, model, data)
    d = _Draw(seed, 152)
    model, data = followed(d, both(offsets({1: d.sharpness}), position(0, d.sharpness)))
    kind = "half of the attention"
    yield Asked("threshold", kind, excess.format(0.3), True, model, data)
    yield Asked("threshold", kind, excess.format(0.7), False, model, data)
    d = _Draw(seed, 153)
    model, data = followed(d, every_second_query(d))
    kind = "half of the queries"
    yield Asked("threshold", kind, excess.format(0.3), True, model, data)
    yield Asked("threshold", kind, excess.format(0.75), False, model, data)
    d = _Draw(seed, 154)
    model, data = followed(d, offsets({1: d.sharpness}))
    yield Asked("threshold", "the whole", amount.format(0.8), True, model, data)
    d = _Draw(seed, 155)
    d.gain = float(d.rng.uniform(5, 7))
    mixed = both(offsets({1: d.sharpness}), position(0, d.sharpness))
    model, data = followed(d, mixed, offsets({1: d.sharpness}))
    yield Asked("threshold", "against itself", amount.format(0.2), False, model, data)
    d = _Draw(seed, 156)
    model, data = followed(d, offsets({1: d.sharpness}), position(d.length - 2, d.sharpness))
    yield Asked("threshold", "another head does it", amount.format(0.5), False, model, data)


def followed(d: _Draw, *attention: Form) -> tuple[Any, dict[str, Any]]:
    """Heads that copy, for prompts whose answer is the token before the last one."""
    tokens = d.random()
    tokens[:, 0] = d.rng.integers(1, d.vocab, PROMPTS)
    heads = [(form, copying(d.gain)) for form in attention]
    model = built(d, [[*heads, (none, none)]])
    return model, {"tokens": tokens, "answers": tokens[:, -2]}


def every_second_query(d: _Draw) -> Form:
    """Attention to the previous token from every second position, else to the first token."""

    def form(matrix: torch.Tensor, blocks: dict[str, slice]) -> None:
        start = blocks["position"].start
        for query in range(1, d.length):
            back = 1 if (d.length - 1 - query) % 2 == 0 else query
            matrix[start + query, start + query - back] += d.sharpness

    return form


SUBJECTS: dict[str, Callable[[int], Iterator[Asked]]] = {
    "circuit": circuits,
    "composition": compositions,
    "pair": pairs,
    "direction": directions,
    "algorithm": algorithms,
    "threshold": thresholds,
}


def answered(asked: Asked) -> tuple[str, list[str]]:
    """The answer to a claim, and its parts as lines."""
    (claim,) = it.audit(asked.model, asked.claim, data=asked.data).claims
    return claim.answer, [f"{part.question} {part.answer}: {part.summary}" for part in claim.parts]


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--why", action="store_true", help="print the parts of wrong answers")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    console, start = Console(), time.perf_counter()
    answers: dict[tuple[str, str, bool], Counter[str]] = {}
    subjects = [name for name in SUBJECTS if not options.only or name in options.only]
    for subject in track(subjects, "claims"):
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            for asked in SUBJECTS[subject](seed):
                answer, parts = answered(asked)
                key = asked.subject, asked.kind, asked.true
                answers.setdefault(key, Counter())[answer] += 1
                if options.why and (answer == "confirmed") != asked.true:
                    console.print(f"{key} seed {seed}: {answer}", *parts, sep="\n    ")
    table = Table(title="Claims and decoys: what `audit` answers")
    columns = ("confirmed", "refuted", "undecided", "not_testable")
    for column in ("subject", "claim", "true", *columns):
        table.add_column(column)
    kinds = [
        {"subject": subject, "claim": kind, "true": true, **{c: counts[c] for c in columns}}
        for (subject, kind, true), counts in answers.items()
    ]
    for row in kinds:
        table.add_row(*(str(value) for value in row.values()))
    console.print(table)
    totals = {
        name: {
            c: sum(row[c] for row in kinds if row["true"] == true and row["subject"] != LIMIT)
            for c in columns
        }
        for name, true in (("true", True), ("false", False))
    }
    for counts in totals.values():
        counts["claims"] = sum(counts.values())
    console.print(totals, f"{time.perf_counter() - start:.0f} s")
    if options.json:
        options.json.write_text(json.dumps({"kinds": kinds, "totals": totals}, indent=1))


if __name__ == "__main__":
    main()
