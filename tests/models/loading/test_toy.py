"""`toy:NAME` builds the registered toy and records its task."""

import torch

from interp_toolkit import load, registry
from interp_toolkit.models.about.record import record_of


def test_a_toy_comes_with_its_task():
    model = load("toy:xor-2head")
    record = record_of(model)
    assert (record.name, record.kind) == ("toy:xor-2head", "toy")
    assert record.task == registry.find("toys", "xor-2head").task
    assert record.config["n_heads"] == 2
    assert not model.training


def test_a_toy_in_another_dtype():
    model = load("toy:xor-2head", dtype="float32")
    assert model.cfg.dtype == torch.float32
    assert record_of(model).config["dtype"] == "float32"
