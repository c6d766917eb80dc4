from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from interp_toolkit.report.console import fit, fold, render
from interp_toolkit.results import Evidence, Table


@dataclass(frozen=True)
class Loose(Evidence):
    """Evidence of any shape, as a plugin's may be."""

    held: Any


def shown(results, width=80, encoding="utf-8", color=False, **options) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
    console = Console(
        file=file, width=width, force_terminal=color, color_system="standard" if color else None
    )
    render(results, console, **options)
    return raw.getvalue().decode(encoding)


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def with_table(result, table: Table):
    class WithTable(type(result)):
        def tables(self):
            return [table]

    return WithTable(**result.arguments)


def test_the_separable_result_at_80_columns(separable, texts):
    texts(lines(shown([separable])))


def test_quiet_prints_a_sign_and_a_verdict_a_line(separable, not_separable):
    assert lines(shown([separable, not_separable], quiet=True)) == [
        f"xor of toy:xor-2head: ✓ {separable.verdict}",
        f"xor of toy:xor-1head: ✗ {not_separable.verdict}",
    ]
    assert lines(shown([separable], quiet=True)) == [f"✓ {separable.verdict}"]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_line_is_wider_than_the_console(separable, not_separable, width):
    assert max(map(cell_len, shown([separable, not_separable], width).splitlines())) <= width


def test_a_terminal_that_knows_ascii_only_gets_ascii(separable, not_separable, texts):
    text = shown([separable, not_separable], encoding="ascii")  # would raise on anything else
    texts(text)


def test_colour_is_added_to_the_sign_and_not_instead_of_it(separable, not_separable):
    assert "\x1b[1;32m✓" in shown([separable], color=True)
    assert "\x1b[1;35m✗" in shown([not_separable], color=True)
    assert "\x1b" not in shown([separable, not_separable])


def test_the_row_that_the_verdict_is_about_is_bold(separable):
    bold = [line for line in shown([separable], color=True).splitlines() if "\x1b[1m" in line]
    assert sum("0.2175" in line and "resid_post" in line and "XOR" in line for line in bold) == 1
    assert not any("AND" in line for line in bold)


def test_names_in_brackets_are_text_and_no_markup(separable):
    result = replace(separable, verdict="[red]head[/red] [0, 3] :smile:")
    assert "✓ [red]head[/red] [0, 3] :smile:" in shown([result], quiet=True)
    assert "✓ [red]head[/red] [0, 3] :smile:" in shown([result])


def test_columns_that_do_not_fit_are_named_and_numbers_stay_whole(separable, texts):
    columns = ["hook", *(f"measure {i}" for i in range(12))]
    row = ["blocks.0.hook_resid_post", *(0.12345 + i for i in range(12))]
    text = lines(shown([with_table(separable, Table("Wide", columns, [row]))]))
    start = text.index("Wide")
    texts(text[start + 1 : start + 8])


def test_a_wide_heading_breaks_between_its_words(separable):
    table = Table("T", ["re-initialised accuracy", "n"], [[0.5, 1], [0.75, 2]])
    text = lines(shown([with_table(separable, table)]))
    start = text.index("T")
    assert text[start : start + 6] == [
        "T",
        "re-initialised",
        "      accuracy  n",
        "─────────────────",
        "        0.5000  1",
        "        0.7500  2",
    ]


def test_a_long_table_is_cut_and_says_so(separable, texts):
    table = Table("Long", ["n"], [[i] for i in range(50)])
    text = lines(shown([with_table(separable, table)]))
    assert "19" in text
    assert "20" not in text
    texts(text)


def test_an_empty_table_shows_its_heading(separable):
    assert "hook  score" in lines(shown([with_table(separable, Table("E", ["hook", "score"], []))]))


def test_fit_shrinks_the_widest_text_first_and_never_a_number():
    floors = [12, 12, 12]
    assert fit([24, 8, 20], floors, [False, True, False], 60) == {0: 24, 1: 8, 2: 20}
    assert fit([24, 8, 20], floors, [False, True, False], 50) == {0: 19, 1: 8, 2: 19}
    assert fit([24, 8, 20], floors, [True, True, False], 50) == {0: 24, 1: 8, 2: 14}
    assert fit([24, 8, 20], floors, [True, True, True], 50) == {0: 24, 1: 8}
    assert fit([90], [12], [True], 80) == {0: 90}


def test_the_column_that_decides_is_the_last_to_go(separable, texts):
    assert fit([24, 8, 20], [12] * 3, [True] * 3, 50, {0, 2}) == {0: 24, 2: 20}
    assert fit([60, 8, 30], [12] * 3, [True] * 3, 80, {0, 2}) == {0: 60}
    columns = ["hook", *(f"measure {i}" for i in range(12)), "status"]
    row = ["blocks.0.hook_resid_post", *(0.12345 + i for i in range(12)), "separable"]
    text = shown([with_table(separable, Table("Wide", columns, [row]))])
    shown_row = next(line for line in text.splitlines() if line.startswith("blocks.0.hook_ "))
    assert shown_row.rstrip().endswith("separable")
    texts(" ".join(text.split()))


def test_a_column_keeps_the_width_of_its_headings_words() -> None:
    assert fit([24, 8, 16], [12, 12, 16], [False, True, False], 44) == {0: 16, 1: 8, 2: 16}


def test_names_from_files_cannot_steer_the_terminal(separable):
    table = Table("T\x1b[2J", ["h\x1b[2J"], [["blocks\x1b[31m"]], "c\x07")
    result = replace(
        with_table(separable, table),
        verdict="v\x1b]0;t\x07",
        evidence=Loose("separable", {"e\x1b[1m": "x\rfake"}),
    )
    text = shown([result])
    assert not set(text) & set("\x1b\x07\r")
    assert "blocks\\x1b[31m" in text


def test_fold_breaks_a_name_after_its_dots_and_underscores(texts):
    assert fold("blocks.0.hook_resid_post", 24) == "blocks.0.hook_resid_post"
    assert fold("blocks.0.hook_resid_post", 15) == "blocks.0.hook_\nresid_post"
    assert fold("blocks.10.attn.hook_z", 11) == "blocks.10.\nattn.hook_z"
    texts(fold("a sentence, not a name", 5))
