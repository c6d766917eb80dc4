"""Are heads named, and causal words said, where there is nothing to say?

Four nulls, each with the Clopper-Pearson upper bound at 95 % on the share that goes wrong:

- random answers: untrained models, asked for random answers on rows of their own. Wrong: a model
  with any detected head, or with any head that is "major" or "contributes".
- shuffled twins: models that do a task (`shared_work`), with every weight tensor's entries in
  random order, on the task's rows. Wrong: as above.
- idle heads: models that do a task, in which other heads attend at random, or as the work heads do,
  and write where nothing reads. Nothing is lost with them, exactly. Wrong: a model in which one of
  them is detected, or has a word other than "no effect found", "undecided" or "not tested".
- words of nothing: groups of heads whose knockouts change rows at random, as often for better as
  for worse, through the very code that judges real knockouts. Wrong: a group with any head that
  carries, contributes or works against. Where no model is at home nothing is knocked out, so the
  first two nulls say little of the knockouts; this one says all.

Run: python benchmarks/knockout_calibration.py [--models 200] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from head_calibration import draw_shape, upper_bound
from rich.progress import track

import interp_toolkit as it
from interp_studies.challenge.families.layouts import RELATIONS, SHORTEST, Layout
from interp_studies.challenge.families.shared_work import Work, shared_work
from interp_toolkit.circuits.heads.attention_knockout import INTACT, Knockout, KnockoutRunner
from interp_toolkit.circuits.heads.rule import Group, group_effects
from interp_toolkit.circuits.metrics.causal_words import matters
from interp_toolkit.circuits.metrics.prompts import Prompts
from interp_toolkit.circuits.metrics.task import AnswerTask, TaskCheck
from interp_toolkit.data import FeatureData
from interp_toolkit.models.model import Head
from interp_toolkit.models.running.interventions import reinitialised
from interp_toolkit.stats import COVERAGE, LEVEL, Estimate
from interp_toolkit.toys.hand_set.untrained import random_model

ROWS = 256
LONGEST = 24  # positions of a row
MOST_VOCAB = 50
IDLE, DECOYS = 4, 2
RELATION = "relation"  # its name in groups of nothing
FLIPS = (0.005, 0.02, 0.1, 0.3)  # share of rows that a knockout of nothing changes
INTACT_RIGHT = (0.6, 0.9, 0.98)  # share of rows that are right without a knockout
CHANCE = 0.1
NULL_ROWS = (64, 256, 1024)
NULL_GROUPS = 5  # to each model: they take no model's time
SILENT = ("negligible", "undecided", "not_tested")


def random_answers(count: int, seed: int = 3) -> dict[str, Any]:
    """Untrained models, asked at random."""
    tally = _Tally("random answers", count)
    for i in track(range(count), tally.name):
        rng = np.random.default_rng([seed, i])
        shape = draw_shape(rng)
        shape["d_vocab"], shape["n_ctx"] = min(shape["d_vocab"], MOST_VOCAB), LONGEST
        n_pos = int(rng.integers(4, LONGEST + 1))
        rows = FeatureData(
            rng.integers(shape["d_vocab"], size=(ROWS, n_pos)),
            np.zeros((ROWS, 0), dtype=bool),
            (),
            answers=rng.integers(shape["d_vocab"], size=ROWS),
        )
        result = it.analyze(random_model(i, **shape), "heads", data=rows)
        tally.add(i, result)
    return tally.report()


def shuffled(count: int, seed: int = 4) -> dict[str, Any]:
    """Models that do a task, with their weights in random order."""
    tally = _Tally("shuffled twins", count)
    for i in track(range(count), tally.name):
        work = draw_task(np.random.default_rng([seed, i]), i)
        with reinitialised(shared_work(work), seed=i) as twin:
            tally.add(i, it.analyze(twin, "heads", data=work.layout.rows(ROWS, i)))
    return tally.report()


def idle(count: int, seed: int = 5) -> dict[str, Any]:
    """Models that do a task, with heads that do nothing beside."""
    tally = _Tally("idle heads", count)
    for i in track(range(count), tally.name):
        work = draw_task(np.random.default_rng([seed, i]), i, idle=IDLE, decoys=DECOYS)
        model = shared_work(work)
        result = it.analyze(model, "heads", data=work.layout.rows(ROWS, i))
        busy = {at[1:] for at in model.ground_truth.true}
        tally.add(i, result, spared=busy, both_ways=True)
    return tally.report()


def draw_task(rng: np.random.Generator, seed: int, **beside: int) -> Work:
    """A model that does a task, one or two heads at full strength."""
    name = str(rng.choice(list(RELATIONS)))
    n_ctx = max(SHORTEST[name] + 1, int(rng.integers(6, 17)))
    n_ctx += name == "lookup" and n_ctx % 2
    asked = 2 if name == "mixed" else 1
    layout = Layout(name, n_ctx, n_ctx + int(rng.integers(1, 9)), asked)
    return Work(layout, n=int(rng.integers(1, 3)), attention=1.0, seed=seed, **beside)


def words_of_nothing(count: int, seed: int = 6) -> dict[str, Any]:
    """Groups of heads whose knockouts change rows at random."""
    wrong: list[dict[str, Any]] = []
    said: dict[str, int] = {}
    for i in track(range(count), "words of nothing"):
        rng = np.random.default_rng([seed, i])
        nothing = Nothing.drawn(rng)
        group = nothing.judged()
        for member in group.members:
            said[member.word] = said.get(member.word, 0) + 1
        words = [m.word for m in group.members if m.word not in SILENT]
        if words:
            wrong.append({"seed": i, "words": words, **nothing.described()})
    return {
        "name": "words of nothing",
        "models": count,
        "words": said,
        "wrong_words": len(wrong),
        "upper_bound_words": upper_bound(len(wrong), count),
        "wrong": wrong,
    }


class Nothing(KnockoutRunner):
    """A `KnockoutRunner` whose knockouts turn rows right or wrong at random, equally often."""

    def __init__(
        self, rng: np.random.Generator, n_rows: int, heads: int, right: float, flip: float
    ):
        tokens = torch.zeros(n_rows, 2, dtype=torch.long)
        prompts = Prompts(tokens, 0, np.zeros(n_rows, dtype=int), "nothing")
        vars(self).update(  # a frozen class, without the model that it would need
            task=AnswerTask(prompts, torch.arange(n_rows)),
            targets={},
            whole_rows=(rng.random(n_rows) < right).astype(float),
            rng=rng,
            heads=heads,
            right=right,
            flip=flip,
        )

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Nothing:
        """Of a size, an accuracy and a restlessness drawn at random."""
        right = float(rng.choice(INTACT_RIGHT))
        flip = min(float(rng.choice(FLIPS)), 2 * (1 - right))  # no more can turn right than are not
        return cls(rng, int(rng.choice(NULL_ROWS)), int(rng.integers(1, 7)), right, flip)

    def described(self) -> dict[str, Any]:
        """What was drawn."""
        return {"heads": self.heads, "right": self.right, "flip": self.flip,
                "rows": len(self.whole_rows)}  # fmt: skip

    def judged(self) -> Group:
        """The group of heads, by the code that judges real knockouts."""
        value = Estimate(self.right, self.right, self.right, 0.0, len(self.whole_rows))
        above = self.whole_rows - CHANCE
        task_check = TaskCheck(True, value, CHANCE, 0.0, "nothing", "of the answers", above, 1.0)
        heads = [Head(0, h) for h in range(self.heads)]
        return group_effects(self, RELATION, heads, task_check)

    def readings(
        self, knockouts: Sequence[Knockout], rows: torch.Tensor
    ) -> dict[Knockout, np.ndarray]:
        """As `KnockoutRunner.readings`."""
        intact = self.whole_rows[rows.numpy()]
        chance = np.where(intact > 0, self.flip / 2 / self.right, self.flip / 2 / (1 - self.right))
        flips = {alike(c): self.rng.random(len(rows)) < chance for c in knockouts}
        turned = {c: np.where(flips[alike(c)], 1 - intact, intact) for c in knockouts}
        found = {c: intact if c == INTACT else turned[c] for c in knockouts}
        return {c: np.stack([value, 1 - value], axis=1) for c, value in found.items()}


def alike(knockout: Knockout) -> tuple[frozenset[Head], frozenset[Head]]:
    """The part that two ways of knocking out share, so that they change the same rows.

    That is the worst case for a rule which asks that both ways agree.
    """
    return knockout.heads | knockout.output, knockout.elsewhere


class _Tally:
    """Models in which something is wrong."""

    def __init__(self, name: str, count: int):
        self.name, self.count, self.at_home, self.knocked_out = name, count, 0, 0
        self.named: list[dict[str, Any]] = []
        self.said: list[dict[str, Any]] = []

    def add(
        self,
        model: int,
        result: Any,
        spared: set[tuple[int, int]] = frozenset(),  # type: ignore[assignment]
        both_ways: bool = False,
    ) -> None:
        """A model's result; `spared`: heads that do something."""
        self.at_home += bool(result.performs_task)
        for head in result.heads:
            if (head.layer, head.head) in spared:
                continue
            entry = {"model": model, "detector": head.detector, "head": head.name}
            self.knocked_out += head.knockout is not None
            # on rows the model is not at home on, attention alone detects: a label, not a claim
            if head.detected:
                self.named.append({**entry, "at_home": result.performs_task})
            if matters(head.causal) or (both_ways and head.causal not in SILENT):
                self.said.append({**entry, "word": head.causal})

    def report(self) -> dict[str, Any]:
        named = len({n["model"] for n in self.named})
        said = len({n["model"] for n in self.said})
        return {
            "name": self.name,
            "models": self.count,
            "at_home": self.at_home,
            "heads_knocked_out": self.knocked_out,
            "wrong_models": named,
            "upper_bound": upper_bound(named, self.count),
            "wrong_words": said,
            "upper_bound_words": upper_bound(said, self.count),
            "wrong": [*self.named, *self.said],
        }


def studies(count: int) -> Iterator[dict[str, Any]]:
    """All four."""
    yield random_answers(count)
    yield shuffled(count)
    yield idle(count)
    yield words_of_nothing(NULL_GROUPS * count)


def say(report: dict[str, Any]) -> None:
    named = ""
    if "wrong_models" in report:
        named = (
            f"{report['at_home']} at home, {report['heads_knocked_out']} heads knocked out; "
            f"{report['wrong_models']} with a head wrongly detected "
            f"(at most {report['upper_bound']:.2%}); "
        )
    print(
        f"{report['name']}, {report['models']}: {named}{report['wrong_words']} with a wrong word "
        f"(at most {report['upper_bound_words']:.2%}; level {LEVEL:.0%}, intervals {COVERAGE:.0%})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    reports = []
    for report in studies(options.models):
        say(report)
        reports.append(report)
    print(f"{time.perf_counter() - start:.0f} s")
    if options.json:
        options.json.write_text(json.dumps(reports, indent=1))


if __name__ == "__main__":
    main()
