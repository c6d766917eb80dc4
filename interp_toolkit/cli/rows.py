"""What `interp analyze` runs on: a file, plain texts, a text in pieces, or a named task's rows.

For a task it is asked first whether the model does it at all; where it is not seen to, nothing is
run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interp_toolkit.errors import InputError, printable

if TYPE_CHECKING:
    from interp_toolkit.data import FeatureData


TEXT_LENGTH = 128


@dataclass(frozen=True)
class RowsGiven:
    """Where the rows come from; one source at most.

    Attributes:
        data: a file of prompts.
        column: its features to read.
        prompt: plain texts.
        text: a file of text, to be cut into pieces.
        text_length: tokens of a piece; None: as many as the model takes, `TEXT_LENGTH` at most.
        task: the name of a task.
        task_rows: how many rows of it; None: its default.

    Raises InputError where two sources are given, or an option of one that is not.
    """

    data: str | None = None
    column: Sequence[str] | None = None
    prompt: Sequence[str] = ()
    text: str | None = None
    text_length: int | None = None
    task: str | None = None
    task_rows: int | None = None

    def __post_init__(self) -> None:
        sources = {
            "--data": self.data,
            "--prompt": self.prompt,
            "--text": self.text,
            "--task": self.task,
        }
        given = [flag for flag, value in sources.items() if value]
        if len(given) > 1:
            raise InputError(f"{' and '.join(given)} both say what the rows are; give one")
        if self.column and self.data is None:
            raise InputError("--column chooses features of --data, which is not given")
        if self.text_length is not None and self.text is None:
            raise InputError("--text-length is of the pieces of --text, which is not given")
        if self.task_rows is not None and self.task is None:
            raise InputError("--task-rows says how many rows of --task, which is not given")
        for flag, file in (("--data", self.data), ("--text", self.text)):
            if file is not None and not os.path.exists(file):
                raise InputError(f"{flag} {file}: there is no such file")
        if self.data is not None:
            from interp_toolkit.data.files import check_header

            check_header(self.data, self.column)  # nor should a wrong file
        if self.task is not None:
            from interp_toolkit.registry import find

            find("tasks", self.task)  # a wrong name should not wait for the model

    def read(
        self,
        model: Any,
        *,
        features_elsewhere: bool,
        seed: int,
        memory: int | str | None,
        say: Callable[[str], None],
        quiet: bool,
    ) -> FeatureData | None:
        """The rows for this model; None where the analyses are left to make their own.

        Raises InputError as the source does; for a task, where the model is not seen to do it.
        """
        from interp_toolkit import analysis

        if self.task is not None:
            return self._made(model, seed, memory, say, quiet)
        if self.prompt:
            return analysis.as_data(list(self.prompt), model)
        if self.text is not None:
            return self._pieces(self.text, model)
        data = analysis.as_data(self.data, model, () if features_elsewhere else self.column)
        if data is not None and data.source != self.data and not quiet:
            print(printable(data.source), file=sys.stderr)
        return data

    def _pieces(self, file: str, model: Any) -> FeatureData:
        from interp_toolkit.data.text.prompts import data_from_prose, read_text

        most = getattr(model.cfg, "n_ctx", TEXT_LENGTH)
        length = min(TEXT_LENGTH, most) if self.text_length is None else self.text_length
        if length > most:
            raise InputError(f"--text-length {length}: the model takes at most {most} tokens")
        tokenizer = getattr(model, "tokenizer", None)
        found = data_from_prose(read_text(file), tokenizer, length, file)
        return found.check_vocabulary(model.cfg.d_vocab)

    def _made(
        self,
        model: Any,
        seed: int,
        memory: int | str | None,
        say: Callable[[str], None],
        quiet: bool,
    ) -> FeatureData:
        from interp_toolkit.circuits.behaviour.at_home import checked_home
        from interp_toolkit.circuits.behaviour.prompts import prompts_from_data
        from interp_toolkit.tasks.rows import ROWS, task

        assert self.task is not None
        rows = ROWS if self.task_rows is None else self.task_rows
        data = task(model, self.task, rows=rows, seed=seed)
        say(f"does the model do {self.task}?")
        home = checked_home(model, prompts_from_data(data, model), memory)
        if not quiet:
            print(f"{self.task}: {printable(home.said)}", file=sys.stderr)
        return data
