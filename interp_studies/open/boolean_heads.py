"""How many attention heads does a boolean function need? An exact answer, and trained models.

A layer of h attention-only heads, read linearly at a query that does not depend on the bits,
computes only functions of threshold degree at most h (`probes.boolean.theorem`). Are that many
heads sufficient, and does gradient descent find them?

    exact     every function of three bits, and every symmetric function of up to six bits:
              polynomial weights prove that one head fewer fails; heads with rational weights
              compute the function
    trained   every function of three bits with one to four heads, over seeds

Two functions are in one class (NPN) if one becomes the other by permuting inputs, negating inputs,
and possibly negating the output. The 256 functions of three bits form 14 classes.

The model is that of `training.xor` with a third bit: token and position embeddings, h heads, and a
linear readout with a threshold at '='. The query of '=' is the same for all inputs, so a layer
consists of its embeddings, keys, values and readout. All functions are trained as one batch of
models, each from its own initialization.

Source: "How many attention heads do you need to do XOR?", which settles XOR and leaves other
functions open.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp_studies.claims import JudgedClaim, coverage_of_each
from interp_studies.jobs.attempt import Job, Outcome
from interp_studies.result import FRESH, StudyResult
from interp_studies.seed_interval import over_seeds
from interp_studies.study import Grid, Plan, Study, StudyRun
from interp_toolkit import plots
from interp_toolkit.boolean_functions import threshold_degree
from interp_toolkit.results import Figure, Table
from interp_toolkit.stats import clopper_pearson
from interp_toolkit.toys.hand_set.boolean_heads import head_formula

SEEDS = 8
HEADS = (1, 2, 3, 4)
MOST_BITS = 6  # of functions of how many bits are on
CLAIMS = 5
NEVER, MOSTLY, HELP = 0.005, 0.5, 0.1  # the bounds of the claims about training
D_MODEL, D_HEAD = 8, 4
LR = 0.02
STEPS = 1_500
SOLVED = 0.01  # nats, as of `training.xor`
N_BITS = 3
NAMES = {  # of the class of a well-known function
    "00000001": "AND of three",
    "00000011": "AND of two",
    "00001111": "one bit",
    "00010111": "majority",
    "00011011": "multiplexer",
    "00111100": "XOR of two",
    "01101001": "parity",
    "01111110": "not all equal",
    "00010110": "exactly two",
    "00000000": "constant",
}


def functions() -> list[str]:
    """All truth tables that are not constant."""
    return [format(i, f"0{2**N_BITS}b") for i in range(1, 2 ** (2**N_BITS) - 1)]


@cache
def representative(table: str) -> str:
    """The smallest truth table of its class."""
    inputs = list(itertools.product((0, 1), repeat=N_BITS))
    moved = [
        "".join(
            table[sum((x[order[k]] ^ flips[k]) << (N_BITS - 1 - k) for k in range(N_BITS))]
            for x in inputs
        )
        for order in itertools.permutations(range(N_BITS))
        for flips in inputs
    ]
    return min(*moved, *(one.translate(str.maketrans("01", "10")) for one in moved))


def class_name(table: str) -> str:
    """The name of a table's class: that of a well-known function, or its smallest table."""
    by_class = {representative(known): name for known, name in NAMES.items()}
    least = representative(table)
    return by_class.get(least, least)


class Layers:
    """A batch of one-layer models of n bits, with h heads each.

    Args:
        n_models: number of models.
        n_bits: number of bits of the inputs.
        n_heads: number of heads of each model.
        seed: random seed of the weights.
    """

    def __init__(self, n_models: int, n_bits: int, n_heads: int, seed: int):
        generator = torch.Generator().manual_seed(seed)

        def drawn(*shape: int) -> Tensor:
            values: Tensor = torch.randn(n_models, *shape, generator=generator) * D_MODEL**-0.5
            return values.requires_grad_()

        self.tokens = drawn(3, D_MODEL)  # 0, 1, '='
        self.places = drawn(n_bits + 1, D_MODEL)
        self.W_Q, self.W_K, self.W_V = (drawn(n_heads, D_MODEL, D_HEAD) for _ in range(3))
        self.W_O = drawn(n_heads, D_HEAD, D_MODEL)
        self.readout = drawn(D_MODEL)
        self.threshold = torch.zeros(n_models, requires_grad=True)
        self.inputs = torch.tensor(
            [[*bits, 2] for bits in itertools.product((0, 1), repeat=n_bits)]
        )

    @property
    def parameters(self) -> list[Tensor]:
        """All trained parameters."""
        heads = [self.W_Q, self.W_K, self.W_V, self.W_O]
        return [self.tokens, self.places, *heads, self.readout, self.threshold]

    def updates(self) -> Float[Tensor, "model input d_model"]:
        """The heads' output at '=', for every input."""
        embedded = self.tokens[:, self.inputs] + self.places[:, None]
        query = torch.einsum("md,mhde->mhe", embedded[:, 0, -1], self.W_Q)
        toward = torch.einsum("mhe,mhde->mhd", query, self.W_K) / math.sqrt(D_HEAD)
        pattern = torch.einsum("mhd,mipd->miph", toward, embedded).softmax(2)
        mixed = torch.einsum("miph,mipd->mihd", pattern, embedded)
        values = torch.einsum("mihd,mhde->mihe", mixed, self.W_V)
        return torch.einsum("mihe,mhed->mid", values, self.W_O)

    def logits(self) -> Float[Tensor, "model input"]:
        """The readout's score of every input, minus the threshold."""
        scores = torch.einsum("mid,md->mi", self.updates(), self.readout)
        return scores - self.threshold[:, None]


def train(tables: Sequence[str], n_heads: int, seed: int, steps: int = STEPS) -> Layers:
    """A layer for each function, trained with `steps` steps of Adam on all inputs."""
    n_bits = len(tables[0]).bit_length() - 1
    layers = Layers(len(tables), n_bits, n_heads, seed)
    truth = _truth(tables)
    optimizer = torch.optim.Adam(layers.parameters, lr=LR)
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        total = _losses(layers, truth).sum()
        total.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return layers


def solved(layers: Layers, tables: Sequence[str]) -> Bool[Tensor, " model"]:
    """Models that classify all inputs correctly, with a mean cross-entropy below `SOLVED`."""
    truth = _truth(tables)
    with torch.no_grad():
        right = ((layers.logits() > 0) == truth.bool()).all(1)
        return right & (_losses(layers, truth) < SOLVED)


def _truth(tables: Sequence[str]) -> Float[Tensor, "model input"]:
    return torch.tensor([[float(bit) for bit in table] for table in tables])


def _losses(layers: Layers, truth: Float[Tensor, "model input"]) -> Float[Tensor, " model"]:
    """The mean cross-entropy of each model."""
    loss = torch.nn.functional.binary_cross_entropy_with_logits(
        layers.logits(), truth, reduction="none"
    )
    return loss.mean(1)


def exact(*, folder: Path, most_bits: int) -> Outcome:
    """How many functions need as many heads as their threshold degree, in exact arithmetic."""
    three = functions()
    counted = [
        "".join(values[i.bit_count()] for i in range(2**n_bits))
        for n_bits in range(2, most_bits + 1)
        for values in list(itertools.product("01", repeat=n_bits + 1))[1:-1]  # not the constants
    ]
    return Outcome(
        {
            "three_bits": [len(three), sum(map(_as_many_as_the_degree, three))],
            "counts": [len(counted), sum(map(_as_many_as_the_degree, counted))],
            "degrees": {t: threshold_degree(t).degree for t in three},
        }
    )


def _as_many_as_the_degree(table: str) -> bool:
    """Whether that many heads, with rational weights, compute the function."""
    least, formula = threshold_degree(table), head_formula(table)
    return len(formula.heads) == least.degree and bool(formula.computes(table))


def trained(*, folder: Path, n_heads: int, steps: int, seed: int) -> Outcome:
    """Train layers with `n_heads` heads, and list the functions of three bits that they learn."""
    tables = functions()
    solves = solved(train(tables, n_heads, seed, steps), tables)
    names = [table for table, is_solved in zip(tables, solves, strict=True) if is_solved]
    return Outcome({"heads": n_heads, "seed": seed, "solved": names})


EXACT = "exact"


def grid(plan: Plan) -> Grid:
    """The exact answers, and training with every number of heads."""
    trained_jobs = {
        h: plan.each_seed(f"{h}-heads", trained, cost=float(h), n_heads=h, steps=STEPS)
        for h in HEADS
    }
    return {EXACT: [Job("exact", exact, {"most_bits": MOST_BITS}, cost=10.0)], **trained_jobs}


Learned = Mapping[int, Sequence[set[str]]]  # the functions solved with so many heads, by seed


def share_solved(degrees: Mapping[str, int], learned: Learned, spare: int) -> list[float]:
    """The fraction of functions solved with `spare` heads more than the degree, by seed."""
    return [
        statistics.fmean(t in learned[d + spare][seed] for t, d in degrees.items())
        for seed in range(len(learned[HEADS[0]]))
    ]


def exact_claim(claim: str, n: int, holds: int, *, overturned_by: str) -> JudgedClaim:
    """A claim about all members of a finite set, each of which is checked: no sampling error."""
    return JudgedClaim(
        claim,
        holds / n,
        holds / n,
        holds / n,
        f"all {n} functions",
        above=1 - 0.5 / n,
        overturned_by=overturned_by,
        check=True,
    )


def judge(
    three: Sequence[int], counts: Sequence[int], degrees: Mapping[str, int], learned: Learned
) -> list[JudgedClaim]:
    """The claims; `three`, `counts`: number of functions, and of those that need their degree."""
    level = coverage_of_each(CLAIMS)
    seeds = range(len(learned[HEADS[0]]))
    too_few = [(t, h, s) for t, d in degrees.items() for h in HEADS if h < d for s in seeds]
    solved_anyway = sum(t in learned[h][s] for t, h, s in too_few)
    least, more = (share_solved(degrees, learned, spare) for spare in (0, 1))
    gain = over_seeds([b - a for a, b in zip(least, more, strict=True)], level=level)
    mostly = over_seeds(least, level=level)
    over = f"{len(seeds)} seeds of {len(degrees)} functions"
    return [
        exact_claim(
            "every function of three bits needs exactly as many heads as its threshold degree",
            *three,
            overturned_by="a function whose weights or fractions fail the check in integers",
        ),
        exact_claim(
            f"every function of the number of bits that are on, up to {MOST_BITS} bits, needs "
            "exactly as many heads as its threshold degree",
            *counts,
            overturned_by="the same",
        ),
        JudgedClaim(
            f"with fewer heads than the threshold degree, less than {100 * NEVER:g} % of training "
            "runs solve their function",
            solved_anyway / len(too_few),
            *clopper_pearson(solved_anyway, len(too_few), level),
            f"{len(too_few)} models",
            below=NEVER,
            check=True,
            overturned_by="one trained model that answers all inputs rightly with too few heads",
        ),
        JudgedClaim(
            f"with just enough heads, more than {100 * MOSTLY:g} % of training runs solve their "
            "function",
            mostly.value,
            max(0.0, mostly.low),
            min(1.0, mostly.high),
            over,
            above=MOSTLY,
            overturned_by="a seed's share below, other optimizers or widths",
        ),
        JudgedClaim(
            "with one head more, the solved percentage is higher by more than "
            f"{100 * HELP:g} points",
            gain.value,
            max(-1.0, gain.low),
            min(1.0, gain.high),
            over,
            above=HELP,
            overturned_by="other optimizers or widths under which spare heads do not help",
        ),
    ]


def verdict(findings: Sequence[JudgedClaim]) -> str:
    """The exact result, and what training finds."""
    three, counts, never, mostly, gain = findings
    exactly = (
        "The threshold degree is a lower bound on the number of heads and does not always "
        "suffice here."
    )
    if three.judgement == counts.judgement == "confirmed":
        exactly = (
            "A function needs as many heads as its threshold degree: exactly so for all "
            f"{three.units.split()[1]} functions of three bits and for {counts.units} of the "
            f"number of bits that are on, up to {MOST_BITS} bits; fewer heads never suffice."
        )
    solves, adds = (
        f"{100 * f.value:.0f} {unit} ({100 * f.low:.0f} to {100 * f.high:.0f})"
        for f, unit in ((mostly, "%"), (gain, "points"))
    )
    return (
        f"{exactly} With exactly that many heads, training solves {solves} of the functions of "
        f"three bits; one more head adds {adds}; with fewer heads it solves "
        f"{100 * never.value:.2g} % (at most {100 * never.high:.2g} %)."
    )


def report(run: StudyRun) -> StudyResult:
    """The claims, and the functions that training solves, by class and number of heads."""
    [answers] = run.by_point[EXACT]
    degrees: dict[str, int] = answers["degrees"]
    learned = {h: [set(v["solved"]) for v in run.by_point[h]] for h in HEADS}
    findings = judge(answers["three_bits"], answers["counts"], degrees, learned)
    classes = defaultdict(list)
    for table in degrees:
        classes[representative(table)].append(table)
    percent = {
        least: [100 * statistics.fmean(t in of for t in tables for of in learned[h]) for h in HEADS]
        for least, tables in sorted(classes.items(), key=lambda c: (degrees[c[0]], c[0]))
    }
    shown = Table(
        "Heads needed, and found by training",
        ["class", "table", "functions", "degree", *(f"{h} heads %" for h in HEADS)],
        [
            [class_name(least), least, len(classes[least]), degrees[least], *solves]
            for least, solves in percent.items()
        ],
        "Functions of three bits up to names and signs of bits and value; solved by training, in "
        f"% of {len(run.seeds)} seeds of each function. With fewer heads than the degree none can "
        "be.",
    )
    names = [f"{class_name(least)} ({degrees[least]})" for least in percent]
    cells = list(percent.values())
    figure = Figure(
        "Solved by training, by class and heads",
        "In brackets the threshold degree, below which no weights do. At it and above, how often "
        "training solves the class, in % of seeds and functions.",
        [plots.heatmap([str(h) for h in HEADS], names, cells, "% solved", low=0, high=100)],
        plots.layout(plots.axis("heads"), {"automargin": True} | plots.DOWNWARD),
    )
    return run.result(
        verdict(findings),
        settings={"steps": STEPS, "heads": list(HEADS)},
        claims=findings,
        details=[shown],
        notes=[
            "One attention-only layer without norms behind the heads, bits in positions of their "
            "own, read linearly at a query that does not see them. Beyond three bits equality is "
            "shown for functions of how many bits are on only; it cannot hold for all functions "
            "of many bits, as these have more threshold polynomials than heads have weights."
        ],
        plots=[figure],
    )


BOOLEAN_HEADS = Study(
    "open/boolean-heads",
    "how many attention heads a boolean function needs: its threshold degree, and trained models",
    "How many attention heads do you need to do XOR?, its question for other functions",
    {"small": f"all functions of three bits exactly; {SEEDS} seeds × {len(HEADS)} heads"},
    grid,
    report,
    SEEDS,
    question="How many attention heads does a boolean function need?",
    first_seed=FRESH,
)
