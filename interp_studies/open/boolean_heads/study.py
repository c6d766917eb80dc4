"""How many attention heads does a boolean function need? Exact, and as training finds it.

A layer of h attention-only heads, read linearly at a query that does not see the bits, computes
only functions of threshold degree at most h (`probes.boolean.theorem`). Is that many enough, and
does gradient descent find them?

    exact     every function of three bits, and every function of how many of up to six bits are
              on: weights that show that one head fewer fails, heads in fractions that compute it
    trained   every function of three bits with one to four heads, over seeds

Source: "How many attention heads do you need to do XOR?" settles XOR; the rest it leaves open.
"""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from interp_studies.jobs.runner import Job, Outcome, Runner
from interp_studies.open.boolean_heads.classes import class_name, functions, representative
from interp_studies.open.boolean_heads.training import STEPS, solved, train
from interp_studies.open.claim import JudgedClaim, coverage_of_each
from interp_studies.open.result import FRESH, OpenResult, open_result
from interp_studies.seed_interval import over_seeds
from interp_toolkit import plots
from interp_toolkit.boolean_functions import threshold_degree
from interp_toolkit.registry import Artefact
from interp_toolkit.results import Figure, Table
from interp_toolkit.stats import clopper_pearson
from interp_toolkit.toys.hand_set.boolean_heads import head_formula

NAME = "open/boolean-heads"
SOURCE = "How many attention heads do you need to do XOR?, its question for other functions"
QUESTION = "How many attention heads does a boolean function need?"
SEEDS = 8
HEADS = (1, 2, 3, 4)
MOST_BITS = 6  # of functions of how many bits are on
CLAIMS = 5
NEVER, MOSTLY, HELP = 0.005, 0.5, 0.1  # the bounds of the claims about training

Values = Mapping[str, Any]


def exact(*, folder: Path, most_bits: int) -> Outcome:
    """How many functions need as many heads as their threshold degree, in exact arithmetic."""
    three = functions()
    counted = [t for n in range(2, most_bits + 1) for t in _of_counts(n)]
    return Outcome(
        {
            "three_bits": [len(three), sum(map(_as_many_as_the_degree, three))],
            "counts": [len(counted), sum(map(_as_many_as_the_degree, counted))],
            "degrees": {t: threshold_degree(t).degree for t in three},
        }
    )


def _of_counts(n_bits: int) -> list[str]:
    """The functions of how many of so many bits are on, but the constants."""
    values = list(itertools.product("01", repeat=n_bits + 1))[1:-1]
    return ["".join(v[i.bit_count()] for i in range(2**n_bits)) for v in values]


def _as_many_as_the_degree(table: str) -> bool:
    """Whether heads in fractions compute it, as many as the weights say are needed."""
    least, formula = threshold_degree(table), head_formula(table)
    return len(formula.heads) == least.degree and bool(formula.computes(table))


def trained(*, folder: Path, n_heads: int, steps: int, seed: int) -> Outcome:
    """Which functions of three bits layers of so many heads have learned."""
    tables = functions()
    found = solved(train(tables, n_heads, seed, steps), tables)
    return Outcome(
        {
            "heads": n_heads,
            "seed": seed,
            "solved": [t for t, s in zip(tables, found, strict=True) if s],
        }
    )


def study(preset: str, seeds: int | None, runner: Runner) -> OpenResult:
    """Ask exactly, then train; `seeds` overrides how often."""
    numbers = runner.seeds(seeds or SEEDS)
    first = Job("exact", exact, {"most_bits": MOST_BITS}, cost=10.0)
    plan = {(h, s): _job(h, s) for s in numbers for h in HEADS}
    found = runner.run([first, *plan.values()])
    degrees: dict[str, int] = found[first.name]["degrees"]
    learned = {key: set(found[job.name]["solved"]) for key, job in plan.items()}
    findings = _findings(found[first.name], degrees, learned, numbers)
    shares = _by_class(degrees, learned, numbers)
    settings = {"preset": preset, "steps": STEPS, "heads": list(HEADS)}
    return open_result(
        NAME,
        SOURCE,
        QUESTION,
        _verdict(findings),
        findings,
        found,
        settings=settings,
        seeds=numbers,
        details=[_table(degrees, shares, len(numbers))],
        notes=[
            "One attention-only layer without norms behind the heads, bits in positions of their "
            "own, read linearly at a query that does not see them. Beyond three bits equality is "
            "shown for functions of how many bits are on only; it cannot hold for all functions "
            "of many bits, as these have more threshold polynomials than heads have weights."
        ],
        plots=[_figure(degrees, shares)],
    )


def _job(n_heads: int, seed: int) -> Job:
    arguments = {"n_heads": n_heads, "steps": STEPS, "seed": seed}
    return Job(f"{n_heads}-heads-seed-{seed}", trained, arguments, cost=float(n_heads))


Learned = Mapping[tuple[int, int], set[str]]


def _findings(
    found: Values, degrees: Mapping[str, int], learned: Learned, seeds: Sequence[int]
) -> list[JudgedClaim]:
    level = coverage_of_each(CLAIMS)
    too_few = [(t, h, s) for t, d in degrees.items() for h in HEADS if h < d for s in seeds]
    wonders = sum(t in learned[h, s] for t, h, s in too_few)
    least = [_share(degrees, learned, s, 0) for s in seeds]
    more = [_share(degrees, learned, s, 1) for s in seeds]
    gain = over_seeds([b - a for a, b in zip(least, more, strict=True)], level=level)
    mostly = over_seeds(least, level=level)
    low, high = clopper_pearson(wonders, len(too_few), level)
    over = f"{len(seeds)} seeds of {len(degrees)} functions"
    return [
        _exactly(
            "every function of three bits needs exactly as many heads as its threshold degree",
            *found["three_bits"],
            overturned_by="a function whose weights or fractions fail the check in integers",
        ),
        _exactly(
            f"so does every function of how many of up to {MOST_BITS} bits are on",
            *found["counts"],
            overturned_by="the same",
        ),
        JudgedClaim(
            f"with fewer heads training solves less than {100 * NEVER:g} % of models",
            wonders / len(too_few),
            low,
            high,
            f"{len(too_few)} models",
            below=NEVER,
            check=True,
            overturned_by="one trained model that answers all inputs rightly with too few heads",
        ),
        JudgedClaim(
            f"with just enough heads it solves more than {100 * MOSTLY:g} % of functions",
            mostly.value,
            max(0.0, mostly.low),
            min(1.0, mostly.high),
            over,
            above=MOSTLY,
            overturned_by="a seed's share below, other optimisers or widths",
        ),
        JudgedClaim(
            f"one head more than enough raises that by more than {100 * HELP:g} points",
            gain.value,
            max(-1.0, gain.low),
            min(1.0, gain.high),
            over,
            above=HELP,
            overturned_by="other optimisers or widths under which spare heads do not help",
        ),
    ]


def _exactly(claim: str, n: int, holds: int, *, overturned_by: str) -> JudgedClaim:
    """A claim about all of a finite set, each member checked: there is no sampling error."""
    share = holds / n
    return JudgedClaim(
        claim,
        share,
        share,
        share,
        f"all {n} functions",
        above=1 - 0.5 / n,
        overturned_by=overturned_by,
        check=True,
    )


def _share(degrees: Mapping[str, int], learned: Learned, seed: int, spare: int) -> float:
    """The share of functions that a seed solves with so many heads more than the degree."""
    return statistics.fmean(t in learned[d + spare, seed] for t, d in degrees.items())


def _verdict(findings: Sequence[JudgedClaim]) -> str:
    three, counts, never, mostly, help_ = findings
    if three.judgement == counts.judgement == "confirmed":
        exactly = (
            f"As many as its threshold degree: exactly so for all {three.units.split()[1]} "
            f"functions of three bits and for {counts.units} of how many of up to {MOST_BITS} bits "
            "are on; fewer never do."
        )
    else:
        exactly = "The threshold degree bounds the heads from below, and is not always enough here."
    learned = (
        f"With just enough heads training solves {_percent(mostly, '%')} of the functions of three "
        f"bits, and one head more adds {_percent(help_, 'points')}; with fewer it solves "
        f"{100 * never.value:.2g} % (at most {100 * never.high:.2g} %)."
    )
    return f"{exactly} {learned}"


def _percent(finding: JudgedClaim, unit: str) -> str:
    low, high = f"{100 * finding.low:.0f}", f"{100 * finding.high:.0f}"
    return f"{100 * finding.value:.0f} {unit} ({low} to {high})"


Shares = Mapping[str, Sequence[float]]  # solved with each number of heads, by class


def _by_class(degrees: Mapping[str, int], learned: Learned, seeds: Sequence[int]) -> Shares:
    members = defaultdict(list)
    for table in degrees:
        members[representative(table)].append(table)
    return {
        least: [statistics.fmean(t in learned[h, s] for t in mine for s in seeds) for h in HEADS]
        for least, mine in sorted(members.items(), key=lambda m: (degrees[m[0]], m[0]))
    }


def _table(degrees: Mapping[str, int], shares: Shares, n_seeds: int) -> Table:
    sizes = {least: sum(representative(t) == least for t in degrees) for least in shares}
    rows = [
        [class_name(least), least, sizes[least], degrees[least], *(100 * s for s in mine)]
        for least, mine in shares.items()
    ]
    columns = ["class", "table", "functions", "degree", *(f"{h} heads %" for h in HEADS)]
    caption = (
        "Functions of three bits up to names and signs of bits and value; solved by training, in "
        f"% of {n_seeds} seeds of each function. With fewer heads than the degree none can be."
    )
    return Table("Heads needed, and found by training", columns, rows, caption)


def _figure(degrees: Mapping[str, int], shares: Shares) -> Figure:
    names = [f"{class_name(least)} ({degrees[least]})" for least in shares]
    cells = [[100 * s for s in mine] for mine in shares.values()]
    trace = plots.heatmap([str(h) for h in HEADS], names, cells, "% solved", low=0, high=100)
    caption = (
        "In brackets the threshold degree, below which no weights do. At it and above, how often "
        "training solves the class, in % of seeds and functions."
    )
    layout = plots.layout(plots.axis("heads"), {"automargin": True} | plots.DOWNWARD)
    return Figure("Solved by training, by class and heads", caption, [trace], layout)


BOOLEAN_HEADS = Artefact(
    name=NAME,
    summary="how many attention heads a boolean function needs: its threshold degree, and training",
    source=SOURCE,
    presets={"small": f"all functions of three bits exactly; {SEEDS} seeds × {len(HEADS)} heads"},
    run=study,
    first_seed=FRESH,
)
