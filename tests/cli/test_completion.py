"""What a shell completes behind `interp`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from interp_toolkit.registry import names


def completed(line: str) -> list[str]:
    """What bash is offered for the last word of a line."""
    words = line.split(" ")
    asked = {
        "_INTERP_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    code = "import sys; sys.argv = ['interp']; sys.modules['torch'] = None"  # may not be imported
    code += "; from interp_toolkit.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "group"),
    [
        ("interp analyze toy:xor-2head --probe ", "probes"),
        ("interp train ", "recipes"),
        ("interp analyze m.pt --task ", "tasks"),
    ],
)
def test_names_are_completed(line: str, group: str) -> None:
    assert sorted(completed(line)) == names(group)  # type: ignore[arg-type]


def test_what_is_typed_narrows() -> None:
    assert completed("interp analyze toy:xor-2") == ["toy:xor-2head"]
    assert completed("interp analyze toy : xor-2") == ["xor-2head"]  # as bash splits it
    assert completed("interp analyze mod") == []  # files, which the shell completes itself
    assert completed("interp reproduce al") == ["all"]
    assert "uand" in completed("interp show u")
    assert "compare" in completed("interp com")
