"""Whether a model does a behaviour at all, asked before anything is said of what carries it.

The share of answers that are right, or preferred to the wrong ones, with its interval, against
chance (see `task`). Where rows have corrupted prompts, the same share on these stands beside it,
of the clean prompts' answers: where it is as large there, what was exchanged is not what the
preference rests on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from interp_toolkit.circuits.behaviour.prompts import Prompts
from interp_toolkit.circuits.behaviour.task import AtHome, measured_home, task_of
from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Model


@dataclass(frozen=True)
class CheckedHome:
    """What a model does on rows with answers, and on their corrupted prompts.

    Attributes:
        clean: on the rows; certainly above chance.
        corrupted: on the corrupted prompts, with the answers of the clean ones; None: there are
            none.
    """

    clean: AtHome
    corrupted: AtHome | None

    @property
    def said(self) -> str:
        """In one sentence."""
        if self.corrupted is None:
            return self.clean.said
        value = self.corrupted.value
        return (
            f"{self.clean.said}; on the corrupted prompts {value.mean:.1%} "
            f"({value.low:.1%} to {value.high:.1%})"
        )


def checked_home(model: Model, prompts: Prompts, memory: int | str | None = None) -> CheckedHome:
    """What a model does on rows with answers; refused where it is not certainly above chance.

    Args:
        model: any TransformerLens model.
        prompts: rows with answers.
        memory: bound for the run.

    Raises:
        InputError: rows without answers; a model whose interval does not lie above chance, with
            its figure.

    Examples:
        >>> import interp_toolkit as it
        >>> from interp_toolkit.circuits.behaviour.prompts import prompts_from_tokens
        >>> model = it.load("toy:induction")
        >>> rows = prompts_from_tokens(np.array([[5, 7, 9, 5, 7], [3, 8, 2, 3, 8]]), model)
        >>> checked_home(model, rows)
        Traceback (most recent call last):
            ...
        interp_toolkit.errors.InputError: these rows have no answers, so there is no behaviour to \
look for; give answers
    """
    if prompts.answers is None:
        raise InputError(
            "these rows have no answers, so there is no behaviour to look for; give answers"
        )
    task, _ = task_of(model, prompts)
    assert task is not None
    clean = measured_home(model, task, memory)
    if not clean.yes:
        raise InputError(
            f"the model is not seen to do this: {clean.said}; nothing can be said of what carries "
            "it; take another model or task, or more rows"
        )
    if prompts.corrupted is None:
        return CheckedHome(clean, None)
    other, _ = task_of(model, replace(prompts, tokens=prompts.corrupted))
    assert other is not None
    return CheckedHome(clean, measured_home(model, other, memory))
