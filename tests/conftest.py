"""Shapes are checked while the tests run, and nothing reaches for a hub."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # on tiny tensors threads only wait for each other

from jaxtyping import install_import_hook

install_import_hook(
    [
        "interp_toolkit.data",
        "interp_toolkit.stats",
        "interp_toolkit.models",
        "interp_toolkit.probes",
        "interp_toolkit.toys",
        "interp_toolkit.training",
    ],
    "beartype.beartype",
)
