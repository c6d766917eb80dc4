"""What a command imports, by counting modules in a new process: a clock would prove nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from interp_toolkit.cli import descriptions
from interp_toolkit.registry import GROUPS, names

ROOT = Path(__file__).parents[2]
#: prints the modules that a command line has imported when it exits
CODE = """
import atexit, sys
from pathlib import Path

def write_modules():
    Path("modules.txt").write_text(" ".join(m for m in sys.modules if sys.modules[m]))

atexit.register(write_modules)
from interp_toolkit.__main__ import interp
sys.argv = ["interp", *sys.argv[1:]]
interp()
"""
#: the modules of TransformerLens that are imported without its `__init__`
LIGHT = {
    "transformer_lens",
    "transformer_lens.ActivationCache",
    "transformer_lens.FactoredMatrix",
    "transformer_lens.HookedRootModule",
    "transformer_lens.hook_points",
}
LIGHT_PACKAGES = ("transformer_lens.conversion_utils", "transformer_lens.utilities")


def modules(folder: Path, *arguments: str) -> set[str]:
    """The modules that `interp` with these arguments imports."""
    ran = subprocess.run(
        [sys.executable, "-c", CODE, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return set((folder / "modules.txt").read_text().split())


def heavy(loaded: set[str]) -> set[str]:
    """The modules that only a full import of TransformerLens, or a language model, needs."""
    of_lens = {name for name in loaded if name.startswith("transformer_lens")}
    others = {"transformers", "datasets", "accelerate", "sae_lens"} & loaded
    return {n for n in of_lens - LIGHT if not n.startswith(LIGHT_PACKAGES)} | others


@pytest.mark.parametrize("command", [["list"], ["show", "heads"], ["show", "open/boolean-heads"]])
def test_names_are_listed_and_described_without_any_analysis(tmp_path: Path, command) -> None:
    loaded = modules(tmp_path, *command)
    assert not {"torch", "scipy", "numpy", "sklearn", "pandas", "transformer_lens"} & loaded
    packages = {"probes", "circuits", "toys", "training", "tasks", "auditing"}
    ours = {name for name in loaded if name.startswith("interp_toolkit.")}
    assert not {name for name in ours if name.split(".")[1] in packages}
    assert not {name for name in loaded if name.startswith("interp_studies.open")}


def test_a_toy_is_analyzed_without_importing_transformer_lens(tmp_path: Path) -> None:
    loaded = modules(tmp_path, "analyze", "toy:xor-2head", "--probe", "xor")
    assert "torch" in loaded
    assert not heavy(loaded)
    assert not {"pandas", "sklearn", "sympy", "scipy.stats"} & loaded


def test_a_trained_recipe_and_its_state_dict_run_without_it(tmp_path: Path) -> None:
    train = ["train", "xor", "--set", "steps=20", "--out", "model.pt"]
    assert not heavy(modules(tmp_path, *train))
    assert not heavy(modules(tmp_path, "analyze", "model.pt", "--probe", "xor"))
    save = "import torch; torch.save(torch.load('model.pt')['state_dict'], 'plain.pt')"
    subprocess.run([sys.executable, "-c", save], cwd=tmp_path, check=True)
    assert not heavy(modules(tmp_path, "analyze", "plain.pt", "--probe", "ov"))


def test_every_toy_runs_without_it(tmp_path: Path) -> None:
    script = (
        "import sys, torch, interp_toolkit as it\n"
        "from interp_toolkit.registry import names\n"
        "for toy in names('toys'):\n"
        "    model = it.load(f'toy:{toy}')\n"
        "    tokens = torch.zeros(1, min(3, model.cfg.n_ctx), dtype=torch.long)\n"
        "    if hasattr(model, 'embed'): model.run_with_cache(tokens)\n"
        "print(*(m for m in sys.modules if sys.modules[m]))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not heavy(set(ran.stdout.split()))


@pytest.mark.parametrize("package", descriptions.PACKAGES)
def test_the_written_descriptions_are_those_of_the_objects(package: str) -> None:
    folder = Path(__import__(package).__file__).parent
    described = descriptions.as_json(package)
    assert descriptions._of_package(package) == described, "make texts writes them anew"
    assert (folder / descriptions.FILE).is_file()


def test_every_name_has_a_description() -> None:
    for group in GROUPS:
        assert set(descriptions.descriptions(group)) == set(names(group))
