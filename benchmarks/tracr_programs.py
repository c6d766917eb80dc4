"""Circuits that a compiler knows: `heads`, `circuit`, `logit-attribution`, EAP-IG on RASP programs.

DeepMind's tracr compiles RASP programs of its library, and some that InterpBench compiles, into
weights that name the axes of the residual stream. Beside the program's heads stand decoys, which
attend as one of them, and idle heads; both write where nothing reads. The truth has two sources:

1. The compiled weights. An edge belongs to the program if its reader reads an axis that its writer
   writes, and the axis leads on to the answer's axes.
2. Patching with TransformerLens' own hooks, in float64 (`plain_attribution`). Each edge is patched
   alone from the corrupted prompts, each head of the program is given its mean.

True edges and heads belong to the program and move the logit difference by MATTERS of what the
corrupted prompts move it, on the mean prompt. False ones are not in the program. Those in the
program that move it less (saturated, constant on prompts of one length) are not scored, and are
counted.

Scores: recall, precision, and AUROC over edges. MIB's AUROC takes the greedy circuit from the
logits backwards at ten sizes (Mueller et al. 2025, "MIB: A Mechanistic Interpretability Benchmark",
arXiv 2504.13151); the other one is over all ranks. EAP-IG has no threshold of its own: what it
claims is as many edges and heads as are true, a number that no user knows.

Sources: Lindner et al. 2023, "Tracr", arXiv 2301.05062; Gupta et al. 2024, "InterpBench",
arXiv 2407.14494: programs 3, 4, 13 and 38 are written from their descriptions.

Run: python benchmarks/tracr_programs.py [--seeds 1] [--only NAME ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from plain_attribution import comes_before, hooked_attribution, writes
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor
from tracr.compiler import lib
from tracr.rasp import rasp
from transformer_lens import HookedTransformer, HookedTransformerConfig

import interp_toolkit as it
from interp_studies.challenge.families.compiled import program_rows
from interp_studies.challenge.programs import LIBRARY, Program
from interp_studies.challenge.tracr_model import Compiled, compile_program
from interp_toolkit.data import FeatureData
from interp_toolkit.files import replacing
from interp_toolkit.models.model import Head
from interp_toolkit.stats import clopper_pearson

PROMPTS, MORE = 64, 256  # of each program; of those whose circuit is then partial
MATTERS = 0.02  # of what the corrupted prompts move the logit difference, on the mean prompt
STEPS = 5  # gradients of EAP-IG, its default
SIZES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)  # of MIB's circuits
CAUSAL = ("major", "contributes")
METHODS = ("heads", "circuit", "logit-attribution", "EAP-IG")

Scores = Mapping[str, float]


def reverse_by_length(rng: np.random.Generator) -> Program:
    """The row backwards, as tracr's library has it: the length is counted first."""
    n, v = 6, 7
    place = int(rng.choice([0, 1, 4, 5]))
    return Program(
        "reverse, by length", lib.make_reverse(rasp.tokens), v, n, _symbols(v), False, place,
        lambda r: [int(s) for s in r.permutation(v)[:n]],
        lambda row: row[::-1][place],
    )  # fmt: skip


def any_of_prefix(rng: np.random.Generator) -> Program:
    """Whether the fraction of 0 among the symbols so far is above 0 (`frac_prevs`; InterpBench 3).

    Tracr tells apart no other fractions than 0 and 1 / n.
    """
    n, v = 7, 3
    any_zero = rasp.Map(lambda x: int(x > 0), lib.make_frac_prevs(rasp.tokens == 0))
    return Program(
        "fraction of previous", any_zero, v, n, (v + 1, v + 2), True, n - 1,
        lambda r: [int(s) for s in np.where(r.random(n) < 0.1, 0, r.integers(1, v, n))],
        lambda row: int(0 in row),
    )  # fmt: skip


def pair_balance(rng: np.random.Generator) -> Program:
    """Whether 0 opens more often than 1 closes (`pair_balance`; InterpBench 4)."""
    n, v = 7, 3
    more = rasp.Map(lambda x: int(x > 0), lib.make_pair_balance(rasp.tokens, 0, 1))
    return Program(
        "pair balance", more, v, n, (v + 1, v + 2), True, n - 1,
        lambda r: [int(s) for s in r.integers(v, size=n)],
        lambda row: int(row.count(0) > row.count(1)),
    )  # fmt: skip


def sort_with_ties(rng: np.random.Generator) -> Program:
    """The row sorted, symbols may repeat (`sort`)."""
    n, v = 6, 5
    place = int(rng.integers(n))
    output = lib.make_sort(rasp.tokens, rasp.tokens, max_seq_len=n, min_key=1)
    return Program(
        "sort with ties", output, v, n, _symbols(v), False, place,
        lambda r: [int(s) for s in r.integers(v, size=n)],
        lambda row: sorted(row)[place],
    )  # fmt: skip


def sort_by_frequency(rng: np.random.Generator) -> Program:
    """Symbols by how often they occur, the most frequent first (`sort_freq`)."""
    n, v = 6, 4
    place = int(rng.integers(n))

    def answer(row: list[int]) -> int:
        counts = Counter(row)
        return sorted(row, key=lambda s: -counts[s])[place]

    return Program(
        "sort by frequency", lib.make_sort_freq(n), v, n, _symbols(v), False, place,
        lambda r: [int(s) for s in r.integers(v, size=n)], answer,
    )  # fmt: skip


def count_rare(rng: np.random.Generator) -> Program:
    """How many symbols occur at most twice (`count_less_freq`; InterpBench 13)."""
    n, v = 6, 3
    return Program(
        "count of rare", lib.make_count_less_freq(2), v, n, tuple(range(v + 1, v + 2 + n)), False,
        int(rng.integers(n)),
        lambda r: [int(s) for s in r.integers(v, size=n)],
        lambda row: sum(row.count(s) <= 2 for s in row),
    )  # fmt: skip


def count_of_symbol(rng: np.random.Generator) -> Program:
    """How often symbol 0 occurs (`count`)."""
    n, v = 6, 3
    return Program(
        "count", lib.make_count(rasp.tokens, 0), v, n, tuple(range(v + 1, v + 2 + n)), False,
        int(rng.integers(n)),
        lambda r: [int(s) for s in np.where(r.random(n) < r.random(), 0, r.integers(1, v, n))],
        lambda row: row.count(0),
    )  # fmt: skip


def pattern(rng: np.random.Generator) -> Program:
    """Whether the last three symbols are 0, 1, 0 (`detect_pattern`)."""
    n, v = 6, 3
    found = rasp.Map(lambda x: int(bool(x)), lib.detect_pattern(rasp.tokens, [0, 1, 0]))

    def draw(r: np.random.Generator) -> list[int]:
        row = [int(s) for s in r.integers(v, size=n)]
        row[-3:] = [0, 1, 0]
        if r.random() < 1 / 2:
            row[n - 1 - int(r.integers(3))] = int(r.integers(v))
        return row

    return Program(
        "detect pattern", found, v, n, (v + 1, v + 2), True, n - 1, draw,
        lambda row: int(row[-3:] == [0, 1, 0]),
    )  # fmt: skip


def alternates(rng: np.random.Generator) -> Program:
    """Whether a symbol differs from both its neighbors (InterpBench 38)."""
    n, v = 6, 3
    place = int(rng.integers(1, n - 1))
    before, after = lib.shift_by(1, rasp.tokens), lib.shift_by(-1, rasp.tokens)
    differs = [
        rasp.SequenceMap(lambda a, b: a != b, rasp.tokens, other) for other in (before, after)
    ]
    both = rasp.SequenceMap(lambda a, b: int(bool(a and b)), *differs)
    return Program(
        "alternation", both, v, n, (v + 1, v + 2), False, place,
        lambda r: [int(s) for s in r.integers(v, size=n)],
        lambda row: int(row[place - 1] != row[place] != row[place + 1]),
        {"previous-token": (before,), "next-token": (after,)},
    )  # fmt: skip


PROGRAMS: Mapping[str, Callable[[np.random.Generator], Program]] = {
    **LIBRARY,
    "reverse, by length": reverse_by_length,
    "fraction of previous": any_of_prefix,
    "pair balance": pair_balance,
    "sort with ties": sort_with_ties,
    "sort by frequency": sort_by_frequency,
    "count of rare": count_rare,
    "count": count_of_symbol,
    "detect pattern": pattern,
    "alternation": alternates,
}


def _symbols(v: int) -> tuple[int, ...]:
    """Token ids of symbols: 0 is BOS."""
    return tuple(range(1, v + 1))


def hooked(made: Compiled, dtype: torch.dtype) -> HookedTransformer:
    """The compiled weights in TransformerLens' own model, with a hook at every edge's end."""
    keys = "n_layers d_model n_ctx d_head n_heads d_vocab d_mlp attn_only act_fn attention_dir"
    sizes = {key: getattr(made.model.cfg, key) for key in keys.split()}
    cfg = HookedTransformerConfig(**sizes, normalization_type=None, dtype=dtype, device="cpu")
    model = HookedTransformer(cfg)
    state = {name: value.to(dtype) for name, value in made.model.state_dict().items()}
    _, unknown = model.load_state_dict(state, strict=False)
    assert not unknown, unknown
    cfg.use_split_qkv_input = cfg.use_attn_result = True
    cfg.use_hook_mlp_in = not cfg.attn_only
    return model.eval()


def axes_of(made: Compiled) -> tuple[dict[str, set[int]], dict[str, set[int]]]:
    """Axes of the residual stream that each node writes, and that each reader reads."""
    w = {name: value.detach() for name, value in made.model.state_dict().items()}
    used = lambda matrix: set(matrix.abs().sum(1).nonzero().flatten().tolist())  # noqa: E731
    written = {"input": used(w["embed.W_E"].T) | used(w["pos_embed.W_pos"].T)}
    read = {"logits": used(w["unembed.W_U"])}
    for layer in range(made.model.cfg.n_layers):
        for head in range(made.model.cfg.n_heads):
            at = f"blocks.{layer}.attn."
            written[f"a{layer}.h{head}"] = used(w[f"{at}W_O"][head].T)
            for c in "qkv":
                read[f"a{layer}.h{head}<{c}>"] = used(w[f"{at}W_{c.upper()}"][head])
        if not made.model.cfg.attn_only:
            written[f"m{layer}"] = used(w[f"blocks.{layer}.mlp.W_out"].T)
            read[f"m{layer}"] = used(w[f"blocks.{layer}.mlp.W_in"])
    return written, read


def program_edges(made: Compiled) -> tuple[list[tuple[str, str]], set[str]]:
    """Every edge of the model, and the names of those on a path of axes from input to logits."""
    written, read = axes_of(made)
    edges = [(s, t) for t in read for s in written if comes_before(s, t)]
    carried = [(s, t) for s, t in edges if written[s] & read[t]]
    wanted, size = {"logits"}, 0
    while size != len(wanted):  # back from the logits: writers of what a wanted node reads
        size = len(wanted)
        wanted |= {s for s, t in carried if t.partition("<")[0] in wanted}
    return edges, {f"{s}->{t}" for s, t in carried if t.partition("<")[0] in wanted}


class Plain:
    """Prompts in TransformerLens' own model: the logit difference, whole, patched and ablated."""

    def __init__(self, made: Compiled, data: FeatureData, dtype: torch.dtype = torch.float64):
        assert data.corrupted is not None
        assert data.answers is not None
        assert data.wrong is not None
        assert data.answer_positions is not None
        self.model = hooked(made, dtype)
        self.clean = torch.from_numpy(data.token_matrix())
        self.corrupted = torch.from_numpy(np.stack(list(data.corrupted)))
        self.answers, self.wrong = torch.from_numpy(data.answers), torch.from_numpy(data.wrong)
        self.positions = torch.from_numpy(data.answer_positions)

    def difference(self, logits: Tensor) -> Tensor:
        """Answer minus wrong, [prompt]."""
        rows = torch.arange(len(logits))[:, None]
        at = logits[rows, self.positions]
        return (at.gather(2, self.answers[..., None]) - at.gather(2, self.wrong[..., None])).mean(
            (1, 2)
        )

    @torch.no_grad()
    def effects(
        self, edges: Collection[tuple[str, str]], heads: Collection[Any]
    ) -> tuple[dict[str, float], dict[Any, float]]:
        """How far each edge patched alone, and each head at its mean, move the logit difference."""
        here, there = writes(self.model, self.clean), writes(self.model, self.corrupted)
        logits = self.model(self.clean)
        rows = torch.arange(len(logits))[:, None]
        assert (logits[rows, self.positions].argmax(-1) == self.answers).all()
        clean = self.difference(logits)
        whole = (clean - self.difference(self.model(self.corrupted))).abs().mean()

        def moved(hook: str, change: Callable[[Tensor, Any], Tensor]) -> float:
            logits = self.model.run_with_hooks(self.clean, fwd_hooks=[(hook, change)])
            return float((self.difference(logits) - clean).abs().mean() / whole)

        of_edges = {}
        for source, target in edges:
            change, (hook, head) = there[source] - here[source], self._hook_of(target)
            of_edges[f"{source}->{target}"] = moved(hook, _adding(change, head))
        of_heads = {}
        for head in heads:
            out = here[f"a{head.layer}.h{head.head}"]
            change = out.mean(0) - out
            of_heads[head] = moved(f"blocks.{head.layer}.hook_attn_out", _adding(change, None))
        return of_edges, of_heads

    def _hook_of(self, target: str) -> tuple[str, int | None]:
        if target == "logits":
            return f"blocks.{self.model.cfg.n_layers - 1}.hook_resid_post", None
        if target[0] == "m":
            return f"blocks.{target[1:]}.hook_mlp_in", None
        node, channel = target[:-1].split("<")
        layer, head = node[1:].split(".h")
        return f"blocks.{layer}.hook_{channel}_input", int(head)

    def attribution(self) -> dict[str, float]:
        """EAP-IG with hooks alone, the mean over prompts; see `plain_attribution`."""
        scores = hooked_attribution(self.model, self.clean, self.corrupted, self.difference, STEPS)
        return {name: float(score.detach().mean()) for name, score in scores.items()}


def _adding(change: Tensor, head: int | None) -> Callable[[Tensor, Any], Tensor]:
    def add(value: Tensor, hook: Any) -> Tensor:
        if head is None:
            return value + change
        value = value.clone()
        value[:, :, head] += change
        return value

    return add


def rank_auroc(scores: Scores, true: Collection[str], false: Collection[str]) -> float:
    """The chance that a true edge has a larger absolute score than a false one; ties count half."""
    ours, theirs = (
        np.array([abs(scores.get(e, 0.0)) for e in some]) for some in (sorted(true), sorted(false))
    )
    return float(((ours[:, None] > theirs) + 0.5 * (ours[:, None] == theirs)).mean())


def greedy_circuit(scores: Scores, edges: Sequence[tuple[str, str]], size: int) -> set[str]:
    """The `size` largest edges that lead to the logits, taken one by one from there backwards.

    Edges of nodes that nothing reaches are taken out at the end, as MIB's code does.
    """
    circuit: set[tuple[str, str]] = set()
    nodes = {"logits"}
    size_of = {edge: abs(scores.get("->".join(edge), 0.0)) for edge in edges}
    for _ in range(size):
        open_edges = [e for e in edges if e not in circuit and e[1].partition("<")[0] in nodes]
        if not open_edges:
            break
        best = max(open_edges, key=lambda e: size_of[e])
        circuit.add(best)
        nodes.add(best[0])
    while dead := {
        e
        for e in circuit
        if e[0] != "input" and not any(t.partition("<")[0] == e[0] for _, t in circuit)
    }:
        circuit -= dead
    return {"->".join(edge) for edge in circuit}


def mib_auroc(
    scores: Scores, edges: Sequence[tuple[str, str]], true: Collection[str], false: Collection[str]
) -> float:
    """Area under true and false positive rates of greedy circuits of MIB's ten sizes."""
    points = {(0.0, 0.0), (1.0, 1.0)}
    for part in SIZES:
        kept = greedy_circuit(scores, edges, math.ceil(part * len(edges)))
        points.add((len(kept & set(false)) / len(false), len(kept & set(true)) / len(true)))
    x, y = np.array(sorted(points)).T
    return float(np.trapezoid(y, x))


def largest(scores: Mapping[Any, float], n: int) -> set[Any]:
    """The `n` with the largest absolute score, none whose score is zero."""
    ordered = sorted(scores, key=lambda name: -abs(scores[name]))
    return {name for name in ordered[:n] if scores[name]}


def judged(name: str, seed: int, prompts: int = PROMPTS) -> dict[str, Any]:
    """Truth of one program, and what each method says of it, counted."""
    program = PROGRAMS[name](np.random.default_rng([seed, 2]))
    made = compile_program(program, seed)
    data = program_rows(program, seed, prompts)
    plain = Plain(made, data)
    edges, known = program_edges(made)
    of_edges, of_heads = plain.effects(edges, made.heads)
    outside = max((e for n, e in of_edges.items() if n not in known), default=0.0)
    assert outside < 1e-9, outside  # nothing outside the program moves anything
    true = {edge for edge in known if of_edges[edge] >= MATTERS}
    false = set(of_edges) - known
    all_heads = [
        Head(i, h) for i in range(made.model.cfg.n_layers) for h in range(made.model.cfg.n_heads)
    ]
    true_heads = {f"a{h.layer}.h{h.head}" for h, effect in of_heads.items() if effect >= MATTERS}
    false_heads = {f"a{h.layer}.h{h.head}" for h in all_heads if h not in made.heads}
    direct = {h for h in true_heads if f"{h}->logits" in true}
    sought = {made.places[id(one)] for some in program.relations.values() for one in some}
    named = {f"a{h.layer}.h{h.head}" for h in sought} & true_heads
    model = made.model.float()
    said: dict[str, dict[str, Any]] = {}
    heads = it.analyze(model, "heads", data=data, seed=seed)
    said["heads"] = {
        "status": heads.status,
        "heads": {
            f"a{h.layer}.h{h.head}" for h in heads.heads if h.detected and h.causal in CAUSAL
        },
    }
    circuit = it.analyze(model, "circuit", data=data, seed=seed)
    said["circuit"] = {
        "status": circuit.status,
        "heads": {
            eap_name(n) for n in circuit.nodes if n[0] == "L" and circuit.node_intervals[n][0] > 0
        },
        "edges": {eap_name(e.edge) for e in circuit.edges},
        "scores": {eap_name(e.edge): abs(e.effect or 0.0) + 1e-9 for e in circuit.edges},
    }
    direct_effects = it.analyze(model, "logit-attribution", data=data, seed=seed)
    said["logit-attribution"] = {
        "status": direct_effects.status,
        "heads": {
            f"a{c.layer}.h{c.head}"
            for c in direct_effects.components
            if c.kind == "head" and c.status == "detected" and c.effect > 0
        },
    }
    scores = plain.attribution()
    of_node = Counter[str]()
    for edge, score in scores.items():
        if edge[0] == "a":
            of_node[edge.partition("->")[0]] += abs(score)
    asked = {e: s for e, s in scores.items() if e in true | false}
    said["EAP-IG"] = {
        "status": None,
        "heads": largest({h: of_node[h] for h in true_heads | false_heads}, len(true_heads)),
        "edges": largest(asked, len(true)),
        "scores": scores,
    }
    methods = {}
    for method, one in said.items():
        counts = {"status": one["status"], "heads": _counts(one["heads"], true_heads, false_heads)}
        if method == "heads":
            counts["named heads"] = _counts(one["heads"], named, false_heads)
        if method == "logit-attribution":
            counts["direct heads"] = _counts(one["heads"], direct, false_heads)
        if "edges" in one:
            counts["edges"] = _counts(one["edges"], true, false)
            counts["AUROC"] = rank_auroc(one["scores"], true, false)
            counts["AUROC, MIB"] = mib_auroc(one["scores"], edges, true, false)
        methods[method] = counts
    return {
        "program": name,
        "seed": seed,
        "prompts": len(data),
        "layers": model.cfg.n_layers,
        "heads": len(all_heads),
        "true heads": len(true_heads),
        "heads not scored": len(made.heads) - len(true_heads),
        "edges": len(edges),
        "true edges": len(true),
        "edges not scored": len(known) - len(true),
        "largest effect outside the program": outside,
        "methods": methods,
    }


def eap_name(name: str) -> str:
    """The name of a node or edge in EAP-IG's notation, which this file uses."""
    return re.sub(r"L(\d+)H(\d+)", r"a\1.h\2", re.sub(r"MLP(\d+)", r"m\1", name))


def _counts(claimed: Collection[str], true: set[str], false: set[str]) -> dict[str, int]:
    """Of claims: how many are true, how many false; how many there are to claim."""
    return {
        "right": len(true & set(claimed)),
        "wrong": len(false & set(claimed)),
        "true": len(true),
    }


def summary(programs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of each method: recall and precision over all programs with 95 % intervals, mean AUROC."""
    rows = []
    for method in METHODS:
        answers = [program["methods"][method] for program in programs]
        row: dict[str, Any] = {"method": method}
        for kind in ("heads", "named heads", "direct heads", "edges"):
            counts = [answer[kind] for answer in answers if kind in answer]
            if counts:
                right, wrong, true = (sum(c[k] for c in counts) for k in ("right", "wrong", "true"))
                row[kind] = {"right": right, "wrong": wrong, "true": true}
                if true:
                    interval = clopper_pearson(right, true)
                    row[kind] |= {"recall": right / true, "recall_interval": interval}
                if claimed := right + wrong:
                    interval = clopper_pearson(right, claimed)
                    row[kind] |= {"precision": right / claimed, "precision_interval": interval}
        for kind in ("AUROC", "AUROC, MIB"):
            if kind in answers[0]:
                values = [answer[kind] for answer in answers]
                row[kind] = {"mean": float(np.mean(values)), "least": min(values)}
        rows.append(row)
    return rows


def tables(
    programs: Sequence[Mapping[str, Any]], again: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Methods over all programs, and programs: what was found of what is true, and wrong claims.

    Args:
        programs: results with PROMPTS prompts.
        again: with MORE prompts, of programs whose circuit was partial.
    """

    def shown(counts: Mapping[str, int]) -> str:
        wrong = f", {counts['wrong']} wrong" if counts["wrong"] else ""
        return f"{counts['right']} of {counts['true']}{wrong}"

    def share(row: Mapping[str, Any], kind: str) -> str:
        if "recall" not in row.get(kind, {}):
            return "–"
        low, high = row[kind]["recall_interval"]
        return f"{shown(row[kind])}: {row[kind]['recall']:.0%} [{100 * low:.0f}, {100 * high:.0f}]"

    methods = []
    for row in summary(programs):
        means = [row[k]["mean"] if k in row else None for k in ("AUROC", "AUROC, MIB")]
        own = "named heads" if row["method"] == "heads" else "direct heads"
        cells = [share(row, kind).replace("%", " %") for kind in ("heads", own, "edges")]
        methods.append([row["method"], *cells, *means])
    rows: tuple[list[Any], list[Any]] = ([], [])
    for program in (*programs, *again):
        said = program["methods"]
        cells = [shown(said[method]["heads"]) for method in METHODS[:3]]
        for method in ("circuit", "EAP-IG"):
            cells += [shown(said[method]["edges"]), said[method]["AUROC"]]
        which = rows[any(program is one for one in again)]
        which.append([program["program"], said["circuit"]["status"].replace("_", " "), *cells])
    columns = ["program", "circuit is", *METHODS[:3], "circuit, edges", "its AUROC"]
    columns += ["EAP-IG, edges", "EAP-IG, AUROC"]
    kinds = ["method", "heads", "heads in its scope", "edges", "AUROC", "AUROC, MIB"]
    return [
        {"title": "Methods", "columns": kinds, "rows": methods},
        {"title": "Programs", "columns": columns, "rows": rows[0]},
        {"title": f"Again, {MORE} prompts", "columns": columns, "rows": rows[1]},
    ]


def main() -> None:
    """Print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=1, help="models of each program")
    parser.add_argument("--only", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    jobs = [(name, seed) for seed in range(options.seeds) for name in options.only]
    programs = [judged(name, seed) for name, seed in track(jobs, "programs")]
    unsure = [p for p in programs if p["methods"]["circuit"]["status"] == "partial"]
    again = [judged(p["program"], p["seed"], MORE) for p in track(unsure, "with more prompts")]
    found = {
        "tables": tables(programs, again),
        "summary": summary(programs),
        "programs": programs,
        "again": again,
    }
    for table in found["tables"]:
        printed = Table(*table["columns"], title=table["title"])
        for row in table["rows"]:
            printed.add_row(*(f"{v:.2f}" if isinstance(v, float) else str(v or "–") for v in row))
        Console(width=150).print(printed)
    if options.json:
        with replacing(options.json) as partial:
            partial.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
