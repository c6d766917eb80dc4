"""A small induction model that was trained, shipped with the package.

Two attention-only layers, made by the command in COMMAND; the file keeps the settings, the losses
and the curve. Its heads are what training found, not what anybody set.
"""

from __future__ import annotations

from pathlib import Path

from interp_toolkit.models.load import load
from interp_toolkit.models.transformer import Transformer
from interp_toolkit.registry import Toy

FILE = Path(__file__).with_name("induction.safetensors")
COMMAND = "OMP_NUM_THREADS=1 interp train induction --device cpu --out induction.safetensors"


def induction_trained() -> Transformer:
    """The trained model, in float32."""
    model: Transformer = load(FILE)
    return model


INDUCTION_TRAINED = Toy(
    "induction-trained",
    "two attention-only layers, trained on repeated random tokens",
    induction_trained,
    {"name": "induction"},
    "In-context Learning and Induction Heads (Olsson et al. 2022)",
)
