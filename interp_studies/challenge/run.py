"""`run_challenge`: draw models with known truth, ask tools about them, and score the answers."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from interp_studies.challenge.case import Case
from interp_studies.challenge.question import Asked, questions_of
from interp_studies.challenge.result import (
    ChallengeEvidence,
    ChallengeResult,
    kind_of_variant,
    reliability_figure,
    weak_spots,
)
from interp_studies.challenge.score import Scored, reliability, scores_by
from interp_studies.challenge.suite import (
    FAMILIES,
    HOW_TO_GET_TRACR,
    MODELS,
    PUBLIC_SEED,
    counts,
    draw,
)
from interp_studies.challenge.tools.tool import (
    MakeTool,
    Tool,
    as_tool,
    checked,
    find_tool,
    make_tool,
)
from interp_toolkit.errors import InputError
from interp_toolkit.models.about.record import versions
from interp_toolkit.models.model import Model
from interp_toolkit.results import Provenance

DEFAULT_TOOLS = ("interp-toolkit",)
REASON = 200  # characters of why a tool raised
NOT_TOLD = (
    "The models are small and made by hand or trained for seconds: a tool that succeeds here "
    "may fail on a language model, but a failure here is not due to scale."
)


def run_challenge(
    tools: str | Sequence[Any] | Mapping[str, Any] = DEFAULT_TOOLS,
    *,
    seed: int = PUBLIC_SEED,
    models: int = MODELS,
    families: Sequence[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> ChallengeResult:
    """Score tools on models with known truth.

    Args:
        tools: names for `find_tool` or tools for `as_tool`; a mapping gives them other names.
        seed: random seed of the models and questions; PUBLIC_SEED gives the score card in the docs.
        models: number of models.
        families: some of `suite.FAMILIES`; None: all (without tracr, all that do not need it).
        progress: called with a description of each step.

    Raises:
        InputError: the tool or family is unknown, tracr is missing, a tool cannot be made, there
            are fewer models than families, or the seed is negative.

    Examples:
        >>> card = run_challenge([lambda model, question: [0.5] * len(question.items)],
        ...                      models=1, families=["xor"])
        >>> card.by_kind[0].claimed
        0
    """
    if seed < 0:
        raise InputError(f"the seed is {seed}; give 0 or more")
    asked = named_tools(tools)
    wanted = counts(models, families)
    say = progress or (lambda text: None)
    if families is None and (left_out := set(FAMILIES) - set(wanted)):
        names = ", ".join(name for name in FAMILIES if name in left_out)
        say(f"without the families {names}, which need tracr: {HOW_TO_GET_TRACR}")
    answers: list[Scored] = []
    for number, case in enumerate(draw(seed, models, families), start=1):
        say(f"model {number} of {models}: {case.family}, {case.variant}")
        answers += answers_on(case, asked)
    return card(answers, list(asked), seed, wanted)


def named_tools(tools: str | Sequence[Any] | Mapping[str, Any]) -> dict[str, MakeTool]:
    """Tools by name; raises InputError for an unknown tool or an empty list."""
    if isinstance(tools, Mapping) and tools:
        return {name: as_tool(tool, name) for name, tool in tools.items()}
    listed = [tools] if isinstance(tools, str) else list(tools)
    found: dict[str, MakeTool] = {}
    for tool in listed:
        if isinstance(tool, str):
            found[tool] = find_tool(tool)
        else:
            name = str(getattr(tool, "name", getattr(tool, "__name__", type(tool).__name__)))
            found[name] = as_tool(tool, name)
    if len(found) < max(1, len(listed)):
        raise InputError("give at least one tool, each with a name of its own")
    return found


def answers_on(case: Case, tools: Mapping[str, MakeTool]) -> list[Scored]:
    """The answers of every tool to all questions about a case.

    Each tool gets a copy of the model and of every question. Raises InputError if a tool cannot be
    made.
    """
    made = {
        name: (make_tool(make, name), copy.deepcopy(case.model)) for name, make in tools.items()
    }
    return [
        _answer(case, asked, name, tool, model)
        for asked in questions_of(case)
        for name, (tool, model) in made.items()
    ]


def _answer(case: Case, asked: Asked, name: str, tool: Tool, model: Model) -> Scored:
    """One answer; if the tool raises, there is no answer, and the reason is stored."""
    question = copy.deepcopy(asked.question)  # rows and vectors can be changed in place
    counter = _Rows()
    start, failed = time.process_time(), None
    stated: list[float | None] = [None] * len(question.items)
    handle: Any = None
    if isinstance(model, torch.nn.Module):
        handle = model.register_forward_pre_hook(counter)
    try:
        given = tool.score(model, question)
        stated = checked(given, len(question.items))
    except Exception as error:  # another's code: whatever it raises is its answer
        failed = f"{type(error).__name__}: {error}"[:REASON]
    finally:
        if handle is not None:
            handle.remove()
    return Scored(
        tool=name,
        family=case.family,
        variant=case.variant,
        strength=case.strength,
        seed=case.seed,
        kind=question.kind,
        about=question.about,
        truths=asked.truths,
        stated=tuple(stated),
        failed=failed,
        seconds=time.process_time() - start,
        rows=counter.rows,
    )


class _Rows:
    """Counts the prompts that a tool runs through a model."""

    def __init__(self) -> None:
        self.rows = 0

    def __call__(self, module: Any, inputs: tuple[Any, ...]) -> None:
        if inputs and hasattr(inputs[0], "shape") and len(inputs[0].shape):
            self.rows += int(inputs[0].shape[0])


def card(
    answers: Sequence[Scored], tools: Sequence[str], seed: int, wanted: Mapping[str, int]
) -> ChallengeResult:
    """The score card of all answers."""
    spots, bins = weak_spots(answers), reliability(answers)
    n_models, n_items = sum(wanted.values()), sum(len(a.truths) for a in answers) // len(tools)
    mine = [spot for spot in spots if spot.tool == tools[0]]
    graded = [a for a in answers if a.strength is not None]
    return ChallengeResult(
        probe="challenge",
        verdict=_verdict(answers, tools[0], n_models, n_items, len(mine)),
        evidence=ChallengeEvidence(
            "described", n_models, len(answers) // len(tools), n_items, seed == PUBLIC_SEED
        ),
        provenance=Provenance(
            model={"name": "the challenge's models", "families": dict(wanted)},
            data={"source": f"drawn from seed {seed}", "rows": n_items},
            settings={"tools": list(tools), "models": n_models, "families": list(wanted)},
            seed=seed,
            versions=versions(),
        ),
        by_kind=scores_by(answers, lambda a: (a.kind,)),
        by_family=scores_by(answers, lambda a: (a.kind, a.family)),
        by_variant=scores_by(answers, lambda a: (a.kind, a.family, kind_of_variant(a.variant))),
        by_strength=scores_by(graded, lambda a: (a.kind, _strength(a))),
        weak_spots=spots,
        bins=bins,
        failures=[(a.tool, f"{a.kind}, {a.variant}", a.failed) for a in answers if a.failed],
        answers=list(answers),
        notes=[NOT_TOLD],
        plots=[reliability_figure(bins)],
    )


def _strength(answer: Scored) -> str:
    """The exact strength of planted heads, and the range of strength of skip-bigrams."""
    assert answer.strength is not None
    if answer.family == "planted":
        return f"{answer.strength:.3g} times the noise"
    for bound in (4, 6, 9):
        if answer.strength < bound:
            return f"below {bound} times the noise"
    return "9 times the noise and more"


def _verdict(answers: Sequence[Scored], tool: str, n_models: int, n_items: int, n_weak: int) -> str:
    scores = scores_by([a for a in answers if a.tool == tool], lambda a: ())
    one = scores[0]
    precision = (
        f"{one.right} of {one.claimed} claims are true" if one.claimed else "nothing claimed"
    )
    return (
        f"{tool}, on {n_models} models and {n_items} items of known truth: {one.right} of "
        f"{one.true} true items claimed; {precision}; {one.abstained:.0%} abstentions; {n_weak} "
        f"weak spot{'' if n_weak == 1 else 's'}."
    )
