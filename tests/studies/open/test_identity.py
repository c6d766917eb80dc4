"""What a job computes is told by its arguments, so that --resume does not mix old with new."""

from __future__ import annotations

from types import ModuleType

import pytest

from interp_studies.open import bigram_capacity, quadratic_or_relu
from interp_studies.open.random_layers import study as random_layers
from interp_studies.superposition import stacking

CONSTANTS = [
    *((stacking, name) for name in ("FEATURES", "PER_GATE", "AXES", "MOST_ON")),
    *((random_layers, name) for name in ("MOST_ON", "HELD_OUT")),
    *((quadratic_or_relu, n) for n in ("MOST_ON", "HELD_OUT", "MOST_INPUTS", "CONNECTED")),
    *((bigram_capacity, n) for n in ("D_MODEL", "D_HEAD", "FEATURES", "STEPS", "RATE", "OTHERS")),
]


def identities(module: ModuleType) -> list[dict]:
    jobs = module.stacked_jobs([256], [0]) if module is stacking else module.study_jobs([0])
    return [job.identity() for job in jobs]


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
