"""The analysis of roles: `interp analyze MODEL --probe roles --data FILE`.

Asks first whether the model does the task of the rows (`behaviour`); then judges every head under
every kind of `kinds` by what it attends to and what it writes (`find`), and takes the named ones
out.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from interp_toolkit.circuits.behaviour.prompts import Prompts, copies_note, prompts_from_data
from interp_toolkit.circuits.behaviour.task import AtHome, measured_home, task_of
from interp_toolkit.circuits.roles import figures
from interp_toolkit.circuits.roles.asks import asks_of
from interp_toolkit.circuits.roles.find import CHECKED, find_roles
from interp_toolkit.circuits.roles.result import RolesFinding
from interp_toolkit.circuits.roles.verdict import evidence_of, findings, headline, not_tested
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.finding import Run, analysis
from interp_toolkit.models.about.record import provenance
from interp_toolkit.models.weights.contributions import additive
from interp_toolkit.models.weights.view import weights
from interp_toolkit.options import Flag, Options


def _as_lists(value: Any) -> Any:
    """Lists of ids from a text such as "1,2,3,4;7,8,9,10"."""
    if not isinstance(value, str):
        return value
    try:
        return tuple(tuple(int(token) for token in part.split(",")) for part in value.split(";"))
    except ValueError:
        raise ValueError(f"{value!r} is no list of token ids such as 1,2,3,4;7,8,9,10") from None


class RolesOptions(Options):
    """Options of `--probe roles`."""

    lists: Annotated[
        tuple[tuple[int, ...], ...] | None,
        BeforeValidator(_as_lists),
        Flag(metavar="IDS;IDS", repeated=False),
    ] = Field(
        None,
        description="Token ids in order, for successor heads; default: the tokenizer's weekdays, "
        "months, numbers and letters.",
    )


def analyze(run: Run[RolesOptions]) -> RolesFinding:
    """Find the heads that move, suppress, inhibit or park where prompts ask for an answer.

    The model's heads must add to the residual stream; the prompts have one length, answers, and
    wrong answers beside them.

    Raises:
        InputError: no prompts with answers, too few, or a model whose heads cannot be read.
    """
    model, data, options, progress = run.model, run.data, run.options, run.progress
    quick = options.effort == "quick"
    if data is None:
        raise InputError(_NO_ROWS)
    progress("does the model do its task here?")
    user_prompts, prompts, task_check = asked(model, data, options.memory)
    described = {"source": data.source, "rows": len(prompts), "sha256": data.digest()}
    about = provenance(model, described, options.settings(effort=options.effort), options.seed)
    if not task_check.yes:
        return RolesFinding(
            headline="Not tested: the model is not seen to perform the task on these prompts.",
            findings=[f"Task: {task_check.said}."],
            evidence=not_tested(task_check),
            provenance=about,
            home=task_check,
            difference=None,
            heads=[],
            writers=[],
            groups={},
            untested={},
        )
    roles = find_roles(
        model,
        prompts,
        lists=options.lists,
        checked=CHECKED[options.effort],
        seed=options.seed,
        memory=options.memory,
        progress=progress,
    )
    return RolesFinding(
        headline=headline(roles, quick=quick),
        findings=findings(roles),
        evidence=evidence_of(task_check, roles, quick=quick),
        provenance=about,
        home=task_check,
        difference=roles.difference,
        heads=roles.heads,
        writers=roles.writers,
        groups=roles.groups,
        untested=roles.untested,
        notes=[
            *(f"{name} is not tested: {why}" for name, why in roles.untested.items()),
            *roles.notes,
            *filter(None, [copies_note(user_prompts, prompts)]),
        ],
        plots=[figures.direct_map(roles), *figures.attention_panels(roles)],
    )


def asked(
    model: Any, data: FeatureData, memory: int | str | None
) -> tuple[Prompts, Prompts, AtHome]:
    """The prompts given, each of them once, and whether the model performs their task.

    Raises InputError for prompts that ask nothing, too few of them, or all for the same.
    """
    user_prompts = prompts_from_data(data, model)
    prompts = user_prompts.distinct()
    asks_of(prompts)
    task, reason = task_of(model, prompts)
    if task is None:
        raise InputError(str(reason))
    return user_prompts, prompts, measured_home(model, task, memory)


_NO_ROWS = "roles of heads are told by what rows ask; give rows with answers (--data)"


def unfit(model: Any, data: FeatureData | None) -> str | None:
    """Why heads cannot be judged by what prompts ask; None where they can."""
    if int(model.cfg.n_layers) < 1:
        return "the model has no layers"
    if data is None or data.answers is None:
        return "needs rows with answers (--data)"
    try:
        asks_of(prompts_from_data(data, model))
        view = weights(model)
        for layer in range(view.n_layers):
            additive(view, layer)
    except InputError as error:
        return str(error)
    return None


ROLES = analysis(
    "roles",
    "which heads move, suppress or park: name movers, S-inhibition, successor, ...",
    RolesOptions,
    analyze,
    unfit,
)
