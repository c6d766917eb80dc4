"""The data of `interp analyze`: a file, plain texts, a text in pieces, or a task's prompts.

For a task, the model's performance is tested first; if it does not perform the task, no analysis is
run.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interp_toolkit.cli import options
from interp_toolkit.errors import InputError, printable

if TYPE_CHECKING:
    from interp_toolkit.data import FeatureData
    from interp_toolkit.data.schema import Schema

TEXT_LENGTH = 128
_NOT_OF_SCHEMA = ("column", "schema")  # options whose values are no field of a schema


def _column(help: str, *names: str, metavar: str = "NAME") -> Any:
    return options.flag(help, *names, metavar=metavar, rich_help_panel="Columns of --data")


@dataclass(frozen=True)
class ColumnFlags:
    """The columns of a table of prompts; default: decided by their names and values."""

    prompt_column: Annotated[str | None, _column("The prompts.")] = None
    answer_column: Annotated[str | None, _column("What follows each prompt.")] = None
    wrong_column: Annotated[str | None, _column("Wrong answers.")] = None
    corrupted_column: Annotated[str | None, _column("Corrupted prompts.")] = None
    column: Annotated[
        list[str] | None,
        _column("A feature, or NAME=VALUE; repeatable.", "--column", "--feature-column"),
    ] = None
    group_column: Annotated[str | None, _column("Groups that are not split.")] = None
    answer_space: Annotated[
        str | None, _column("A space before answers.", metavar="auto|add|keep")
    ] = None
    answer_ids: Annotated[
        bool,
        typer.Option(
            "--answer-ids",
            help="Numbers are token ids.",
            rich_help_panel="Columns of --data",
            show_default=False,
        ),
    ] = False
    answer_index_from: Annotated[
        int | None, _column("The first option's number.", metavar="0|1")
    ] = None
    records: Annotated[str | None, _column("Records in a .json file.", metavar="KEY")] = None
    schema: Annotated[str | None, _column("A file of these options.", metavar="FILE.yaml")] = None

    @property
    def is_used(self) -> bool:
        """Whether any of these options was given."""
        return bool(self._used)

    @property
    def _used(self) -> list[str]:
        fields = [field.name for field in dataclasses.fields(ColumnFlags)]
        values = {name: getattr(self, name) for name in fields}
        return [name for name, v in values.items() if v not in (None, []) and v is not False]

    def columns(self) -> Schema:
        """The choices in --schema, and those of the options, which take precedence.

        The features are left to `column`. Raises InputError for a file that cannot be read.
        """
        from interp_toolkit.data.schema import as_schema

        named = {name: getattr(self, name) for name in self._used if name not in _NOT_OF_SCHEMA}
        return as_schema(self.schema, named)


@dataclass(frozen=True)
class TaskFlags(ColumnFlags):
    """Prompts with answers: from a file, or of a named task."""

    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "--prompts",
            metavar="FILE",
            help="Prompts: .npz, .parquet, .jsonl, .json, .csv, .tsv; .txt: one per line.",
        ),
    ] = None
    task: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A task with synthetic prompts, in place of --data (interp list tasks).",
            autocompletion=options.of("tasks"),
        ),
    ] = None
    task_rows: Annotated[
        int | None, options.flag("Prompts of --task; default: 64.", metavar="N")
    ] = None

    @property
    def sources(self) -> Mapping[str, Any]:
        """Sources of prompts, by flag."""
        return {"--data": self.data, "--task": self.task}

    def check(self) -> None:
        """Raise InputError for two sources, or an option of a source that is missing."""
        sources = [flag for flag, value in self.sources.items() if value]
        if len(sources) > 1:
            raise InputError(f"{' and '.join(sources)} both define the prompts; give one")
        if self._used and self.data is None:
            raise InputError(f"--{self._used[0].replace('_', '-')} needs --data")
        if self.task_rows is not None and self.task is None:
            raise InputError("--task-rows needs --task")
        for flag in ("--data", "--text"):
            file = self.sources.get(flag)
            if file is not None and not os.path.exists(file):
                raise InputError(f"{flag} {file}: there is no such file")
        if self.data is not None:
            from interp_toolkit.data.files import check_header

            check_header(self.data, self.column, self.columns())  # fail before the model is loaded
        if self.task is not None:
            from interp_toolkit.registry import find
            from interp_toolkit.tasks.rows import task_name

            find("tasks", task_name(self.task))  # fail before the model is loaded

    def read(
        self,
        model: Any,
        *,
        seed: int,
        memory: int | str | None,
        say: Callable[[str], None],
        quiet: bool,
        columns: Sequence[str] | None = None,
    ) -> FeatureData | None:
        """The prompts for this model; None if the analyses generate their own.

        Args:
            model: its performance on a task is tested first.
            seed: random seed of a task's prompts.
            memory: bound on memory used at once.
            say: called with progress messages.
            quiet: print nothing about the task.
            columns: features of --data to read; None: all.

        Raises:
            InputError: from the source, or if the model does not perform the task.
        """
        if self.task is None:
            data = self._read_source(model, columns)
            if data is not None and self.data is not None and not quiet:
                if data.source != self.data:
                    print(printable(data.source), file=sys.stderr)  # includes what was left out
                for line in data.reading:
                    if line not in data.source:
                        print(f"  {printable(line)}", file=sys.stderr)
            return data
        from interp_toolkit.circuits.metrics.prompts import prompts_from_data
        from interp_toolkit.circuits.metrics.task_check import task_performance
        from interp_toolkit.tasks.rows import ROWS, task

        rows = ROWS if self.task_rows is None else self.task_rows
        data = task(model, self.task, rows=rows, seed=seed)
        say(f"checking task performance: {self.task}")
        performance = task_performance(model, prompts_from_data(data, model), memory)
        if not quiet:
            print(f"{self.task}: {printable(performance.summary)}", file=sys.stderr)
        return data

    def _read_source(self, model: Any, columns: Sequence[str] | None) -> FeatureData | None:
        from interp_toolkit import analysis

        schema = None if self.data is None else self.columns()
        return analysis.as_data(self.data, model, columns, schema)


@dataclass(frozen=True)
class PromptFlags(TaskFlags):
    """Prompts from any source."""

    prompt: Annotated[
        list[str] | None,
        options.flag(
            "A prompt without an answer, in place of --data; may be repeated.", metavar="TEXT"
        ),
    ] = None
    text: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A text file, in place of --data; it is cut into prompts of equal length.",
        ),
    ] = None
    text_length: Annotated[
        int | None,
        options.flag(
            "Tokens per prompt from --text; default: 128, or the model's context if shorter.",
            metavar="N",
            min=2,
        ),
    ] = None

    @property
    def sources(self) -> Mapping[str, Any]:
        """Sources of prompts, by flag."""
        return {
            "--data": self.data,
            "--prompt": self.prompt,
            "--text": self.text,
            "--task": self.task,
        }

    def check(self) -> None:
        """Raise InputError for two sources, or an option of a source that is missing."""
        if self.text_length is not None and self.text is None:
            raise InputError("--text-length needs --text")
        super().check()

    def _read_source(self, model: Any, columns: Sequence[str] | None) -> FeatureData | None:
        from interp_toolkit import analysis

        if self.prompt:
            return analysis.as_data(self.prompt, model)
        if self.text is not None:
            return self._pieces(self.text, model)
        return super()._read_source(model, columns)

    def _pieces(self, file: str, model: Any) -> FeatureData:
        from interp_toolkit.data.text.tokenization import data_from_prose, read_text

        most = getattr(model.cfg, "n_ctx", TEXT_LENGTH)
        length = min(TEXT_LENGTH, most) if self.text_length is None else self.text_length
        if length > most:
            raise InputError(f"--text-length {length}: the model takes at most {most} tokens")
        tokenizer = getattr(model, "tokenizer", None)
        data = data_from_prose(read_text(file), tokenizer, length, file)
        return data.check_vocabulary(model.cfg.d_vocab)
