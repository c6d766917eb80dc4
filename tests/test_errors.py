"""What an error suggests in place of a name that there is not."""

from __future__ import annotations

import pytest

from interp_toolkit.errors import suggestion

KNOWN = (
    "sorting",
    "paper/table-1",
    "paper/table-2",
    "paper/table-11",
    "paper/sde",
    "other/table-3",
)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("sortin", "; did you mean sorting?"),
        ("xyz", f"; known: {', '.join(sorted(KNOWN))}"),
        ("paper", "; known: paper/sde, paper/table-1, paper/table-11, paper/table-2"),
        ("paper/", "; known: paper/sde, paper/table-1, paper/table-11, paper/table-2"),
        ("paper/xyz", "; known: paper/sde, paper/table-1, paper/table-11, paper/table-2"),
        ("paper/sed", "; did you mean paper/sde?"),
        ("sde", "; did you mean paper/sde?"),
        ("table-3", "; did you mean other/table-3?"),
    ],
)
def test_a_near_name_or_all_that_begin_alike(name: str, says: str) -> None:
    assert suggestion(name, KNOWN) == says


def test_a_table_that_is_missing_offers_those_of_the_same_document() -> None:
    said = suggestion("paper/table-12", KNOWN)
    assert said.startswith("; did you mean ")
    assert "paper/table-11" in said
    assert "other/" not in said
