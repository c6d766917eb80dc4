"""What a job computes is told by its arguments, so that --resume does not mix old with new."""

from __future__ import annotations

from types import ModuleType

import pytest

from interp_studies.jobs.runner import Runner
from interp_studies.open import bigram_capacity, quadratic_or_relu, random_layers
from interp_studies.superposition import stacking

STUDIES = {
    stacking: stacking.STACKING,
    random_layers: random_layers.RANDOM_LAYERS,
    quadratic_or_relu: quadratic_or_relu.QUADRATIC_OR_RELU,
    bigram_capacity: bigram_capacity.BIGRAM_CAPACITY,
}
CONSTANTS = [
    *((stacking, name) for name in ("FEATURES", "PER_GATE", "AXES", "MOST_ON")),
    *((random_layers, name) for name in ("MOST_ON", "HELD_OUT")),
    *((quadratic_or_relu, n) for n in ("MOST_ON", "HELD_OUT", "MOST_INPUTS", "CONNECTED")),
    *((bigram_capacity, n) for n in ("D_MODEL", "D_HEAD", "FEATURES", "STEPS", "RATE", "OTHERS")),
]


def identities(module: ModuleType) -> list[dict]:
    plan = STUDIES[module].plan("small", 1, Runner())
    grid = module.stacked_grid(plan, [256]) if module is stacking else module.grid(plan)
    return [job.identity() for jobs in grid.values() for job in jobs]


@pytest.mark.parametrize(("module", "name"), CONSTANTS)
def test_a_job_with_another_constant_is_another_job(
    module: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = identities(module)
    value = getattr(module, name)
    monkeypatch.setattr(module, name, value + 1)
    if name == "AXES":
        arms = {arm: (axes and value + 1, even) for arm, (axes, even) in stacking.ARMS.items()}
        monkeypatch.setattr(module, "ARMS", arms)
    assert identities(module) != before
