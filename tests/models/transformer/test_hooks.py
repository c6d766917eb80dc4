"""TransformerLens imported in part is TransformerLens, once anything else of it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIGHT = (
    "from interp_toolkit.models.transformer.hooks import HookPoint, HookedRootModule; import sys;"
)
SAME = """
import transformer_lens, transformer_lens.hook_points
assert transformer_lens.HookedRootModule is HookedRootModule
assert transformer_lens.hook_points.HookPoint is HookPoint
for name in ("ActivationCache", "FactoredMatrix"):
    assert isinstance(getattr(transformer_lens, name), type), name
"""


def run(script: str) -> None:
    """Run lines in a new interpreter."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_our_transformer_runs_without_transformers() -> None:
    run(
        "import interp_toolkit as it, torch, sys;"
        "model = it.load('toy:induction');"
        "logits, cache = model.run_with_cache(torch.arange(5)[None]);"
        "assert cache['pattern', 1].shape[-1] == 5;"
        "assert 'transformers' not in sys.modules"
    )


@pytest.mark.parametrize(
    "ask",
    [
        "from transformer_lens.model_bridge import TransformerBridge",
        "import transformer_lens.model_bridge",
        "import transformer_lens; transformer_lens.supported_models",
        "from transformer_lens import *",
        "import transformer_lens.utilities as u; u.get_act_name('k', 0); u.tokenize_utils",
        "import transformer_lens.patching",
    ],
)
def test_anything_else_of_it_is_there_as_ever(ask: str) -> None:
    whole = "import types; assert type(sys.modules['transformer_lens']) is types.ModuleType"
    run(f"{LIGHT}\n{ask}\n{whole if 'utilities' not in ask else ''}\n{SAME}")


def test_without_anything_else_its_classes_are_the_same() -> None:
    run(f"{LIGHT}\n{SAME}")


def test_a_whole_import_gives_the_names_that_it_gives_alone() -> None:
    names = (
        "import transformer_lens; transformer_lens.patching; print(sorted(dir(transformer_lens)))"
    )
    alone, after = (
        subprocess.run([sys.executable, "-c", first + names], capture_output=True, text=True)
        for first in ("", LIGHT)
    )
    assert alone.returncode == after.returncode == 0, after.stderr
    missing = set(eval(alone.stdout)) - set(eval(after.stdout))
    assert not missing


def test_one_that_is_imported_already_is_left_alone() -> None:
    run(
        "import transformer_lens, types; before = dict(vars(transformer_lens));"
        f"{LIGHT} assert type(transformer_lens) is types.ModuleType;"
        "assert vars(transformer_lens) == before;"
        "assert transformer_lens.HookedRootModule is HookedRootModule"
    )
