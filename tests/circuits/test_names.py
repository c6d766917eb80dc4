"""What `interp_toolkit.circuits` re-exports, and the link of that name in a checkout."""

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import interp_toolkit
from interp_toolkit import circuits

ROOT = Path(interp_toolkit.__file__).parents[1]


def test_names_are_not_hidden_by_modules_of_the_same_name():
    for module in pkgutil.iter_modules(circuits.__path__):
        importlib.import_module(f"interp_toolkit.circuits.{module.name}")
    for name in circuits.__all__:
        assert callable(getattr(circuits, name)), name
        assert callable(getattr(circuits, name)), f"{name}, the second time"


def test_the_import_takes_no_torch():
    code = "import sys, interp_toolkit.circuits; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(not (ROOT / "circuits").is_symlink(), reason="not a checkout with links")
def test_the_link_gives_the_very_same_functions():
    code = (
        "import circuits, interp_toolkit.circuits as inner\n"
        "assert circuits.__all__ == inner.__all__\n"
        "assert circuits.partners is inner.partners\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
