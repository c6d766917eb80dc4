"""The result of the litmus test: its decision, the gap, and the figures of all seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from interp_studies.litmus.figures import curves, gap_figure
from interp_studies.litmus.rules import (
    SENTENCES,
    Decision,
    Seeds,
    decide,
)
from interp_studies.result import study_provenance
from interp_studies.seed_interval import Interval
from interp_toolkit.formatting import percent
from interp_toolkit.results import Evidence, Figure, Result, Table
from interp_toolkit.stats import COVERAGE
from interp_toolkit.training.engine.metrics import FinalScore

if TYPE_CHECKING:
    import pandas as pd

NAME = "litmus"
PERCENT = f"{100 * COVERAGE:g} %"
SOURCE = "Is random attention sufficient for sequence modeling?"
CAVEAT = (
    "This speaks of these two architectures at this budget: not to learn is no proof of "
    "impossibility, and MixiT's result depends on its heads and its width."
)


@dataclass(frozen=True)
class LitmusEvidence(Evidence):
    """The evidence behind the verdict of a litmus test.

    Attributes:
        why: the condition that decided.
        measured, unit: name and unit of the figure by which both variants are judged.
        gap: figure of standard minus that of MixiT; `interval` is its interval at `level`.
        level: coverage of the intervals.
        margin: the smallest gap that counts.
        guess: figure of guessing, if it is known.
        test_examples: number of test examples behind each figure.
        standard, mixit: results of the two variants.
    """

    why: str
    measured: str
    unit: str
    gap: float
    interval: tuple[float, float]
    level: float
    margin: float
    guess: float | None
    test_examples: int
    standard: Mapping[str, Any]
    mixit: Mapping[str, Any]


@dataclass(frozen=True)
class LitmusResult(Result):
    """Whether a task needs in-context reasoning.

    Attributes:
        decision: the decision, the gap and the margin.
        standard, mixit: results of the seeds of each variant.
        trained: the results as rows, one per seed, with the learning curve.
    """

    decision: Decision
    standard: Seeds
    mixit: Seeds
    trained: Sequence[Mapping[str, Any]]

    omit_from_json: ClassVar[frozenset[str]] = frozenset({"decision", "standard", "mixit"})

    def to_frame(self) -> pd.DataFrame:
        """One row per seed."""
        import pandas as pd

        return pd.DataFrame(self.trained).drop(columns=["steps", "curve"])

    def tables(self) -> list[Table]:
        """Tables of both variants and of every seed."""
        return [_variants(self.standard, self.mixit, self.decision.margin), _by_seed(self)]

    def figures(self) -> list[Figure]:
        """The gap beside the margin, and the learning curve of every seed."""
        measured = self.standard.measured
        figures = [gap_figure(self.decision.gap, self.decision.margin, measured)]
        if any(seed["curve"] for seed in self.trained):
            figures.append(curves(self.trained, measured))
        return figures


def litmus_result(
    task: str,
    standard: Seeds,
    mixit: Seeds,
    *,
    settings: Mapping[str, Mapping[str, Any]],
    preset: str = "small",
    given: Mapping[str, Any] | None = None,
    margin: float | None = None,
) -> LitmusResult:
    """The result of the litmus test from the seeds of both variants.

    Args:
        task: name of the recipe.
        standard: seeds of the standard transformer.
        mixit: seeds of MixiT.
        settings: all settings of each variant's first seed, by variant.
        preset: preset of the recipe.
        given: settings that replace those of the preset.
        margin: smallest gap that counts; see `rules`.
    """
    decision = decide(standard, mixit, margin)
    budget = _budget(standard, mixit, preset, given or {}, settings)
    chosen = {
        "task": task,
        "preset": preset,
        "given": dict(given or {}),
        "seeds": [run.seed for run in standard.runs],
        "margin": decision.margin,
        **settings,
    }
    return LitmusResult(
        probe=NAME,
        verdict=f"{SENTENCES[decision.status].format(task=task)}: {decision.why}. "
        f"{_numbers(decision, standard, mixit)} {budget} {CAVEAT}",
        evidence=_evidence(decision, standard, mixit),
        provenance=study_provenance(task, SOURCE, chosen, standard.runs[0].seed),
        decision=decision,
        standard=standard,
        mixit=mixit,
        trained=[
            {
                "variant": seeds.name,
                "seed": run.seed,
                "value": run.measured.value,
                "late_rise": run.rise,
                "steps": list(run.steps),
                "curve": list(run.curve),
            }
            for seeds in (standard, mixit)
            for run in seeds.runs
        ],
    )


def _numbers(decision: Decision, standard: Seeds, mixit: Seeds) -> str:
    """The figures of both variants and the gap, as text."""
    measured = standard.measured
    guess = ""
    if measured.guess is not None:
        guess = f", {measured.guess_rule or 'guessing'} {_said(measured.guess, measured)}"
    return (
        f"Standard reaches {_with_range(standard.interval, measured)}, "
        f"MixiT {_with_range(mixit.interval, measured)}{guess}; the gap is "
        f"{_gap(decision, measured)}."
    )


def _gap(decision: Decision, measured: FinalScore) -> str:
    gap, margin = decision.gap, decision.margin
    shares = measured.unit == "share"
    scale, unit = (100, "points") if shares else (1, "nats")
    digits = 2 if shares else 3
    known = math.isfinite(gap.low)
    where = f"{scale * gap.low:.{digits}f} to {scale * gap.high:.{digits}f}" if known else "unknown"
    return (
        f"{scale * gap.value:.{digits}f} {unit} ({PERCENT} interval {where}), "
        f"the margin {scale * margin:g}"
    )


def _with_range(interval: Interval, measured: FinalScore) -> str:
    value = _said(interval.value, measured)
    if not math.isfinite(interval.low):
        return value
    low, high = (_said(end, measured).removesuffix(" %") for end in (interval.low, interval.high))
    return f"{value} ({low} to {high})"


def _said(value: float, measured: FinalScore) -> str:
    return percent(value, 2) if measured.unit == "share" else f"{value:.3f}"


def _budget(
    standard: Seeds,
    mixit: Seeds,
    preset: str,
    given: Mapping[str, Any],
    settings: Mapping[str, Mapping[str, Any]],
) -> str:
    """The number of seeds, the sizes and the length of the training, as text."""
    seeds = len(standard.runs)
    count = f"{seeds} seed{'s' if seeds > 1 else ''} each"
    changed = ", ".join(f"{key}={value}" for key, value in given.items() if key != "steps")
    preset = f"preset {preset}{f' with {changed}' if changed else ''}"
    lengths = dict.fromkeys(_length(s) for s in (settings["standard"], settings["mixit"]))
    return f"{count}, {preset}, {' against '.join(lengths)}."


def _length(settings: Mapping[str, Any]) -> str:
    rows = f" of {settings['rows']:,} rows" if "rows" in settings else ""
    return f"{settings['steps']:,} steps{rows}"


def _evidence(decision: Decision, standard: Seeds, mixit: Seeds) -> LitmusEvidence:
    measured, gap = standard.measured, decision.gap
    return LitmusEvidence(
        status=decision.status,
        reason=decision.why if decision.status == "undecided" else None,
        why=decision.why,
        measured=measured.name,
        unit=measured.unit,
        gap=gap.value,
        interval=(gap.low, gap.high),
        level=COVERAGE,
        margin=decision.margin,
        guess=measured.guess,
        test_examples=measured.examples,
        standard=_reached(standard, decision.margin),
        mixit=_reached(mixit, decision.margin),
    )


def _reached(seeds: Seeds, margin: float) -> dict[str, Any]:
    return {
        "mean": seeds.interval.value,
        "interval": [seeds.interval.low, seeds.interval.high],
        "clearly_above_guess": seeds.clearly_above_guess(margin),
        "learned": seeds.learned(margin),
        "solved": seeds.solved(margin),
        "late_rise": seeds.rise,
        "still_improving": seeds.improving(margin),
    }


def _variants(standard: Seeds, mixit: Seeds, margin: float) -> Table:
    rows = [
        [
            seeds.name,
            len(seeds.runs),
            seeds.interval.value,
            seeds.interval.low,
            seeds.interval.high,
            seeds.rise,
            seeds.learned(margin),
        ]
        for seeds in (standard, mixit)
    ]
    measured = standard.measured
    shared = f" and the {measured.examples:,} test examples" if measured.unit == "share" else ""
    caption = (
        f"{measured.name} ({measured.unit}), the mean over seeds; low and high: its {PERCENT} "
        f"interval, from the spread between seeds{shared}. It takes that spread as normal: a "
        "seed that fails now and then may be missing from a few. Late rise: the gain in the last "
        "quarter of the steps."
    )
    columns = ["variant", "seeds", "mean", "low", "high", "late rise", "learned"]
    return Table("Standard and MixiT", columns, rows, caption)


def _by_seed(result: LitmusResult) -> Table:
    rows = [[s["variant"], s["seed"], s["value"], s["late_rise"]] for s in result.trained]
    columns = ["variant", "seed", result.standard.measured.name, "late rise"]
    return Table("Every seed", columns, rows)
