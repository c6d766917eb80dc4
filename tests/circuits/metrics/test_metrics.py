"""Metrics refuse logits that they cannot be computed from."""

import numpy as np
import pytest
import torch

from interp_toolkit.circuits.metrics.metrics import LogitDifference, LogProbability
from interp_toolkit.circuits.metrics.prompts import Prompts
from interp_toolkit.errors import InputError


def test_logits_that_lack_an_answer_are_refused():
    prompts = Prompts(
        torch.zeros(2, 3, dtype=torch.long),
        0,
        np.zeros(2, dtype=np.int64),
        "here",
        answers=torch.tensor([[1], [2]]),
        answer_positions=torch.tensor([[2], [2]]),
        wrong=torch.tensor([[0], [4]]),
    )
    rows, logits = torch.arange(2), torch.zeros(2, 1, 5)
    assert LogitDifference(prompts)(logits, rows).tolist() == [0.0, 0.0]
    for metric in (LogitDifference(prompts), LogProbability(prompts)):
        with pytest.raises(InputError, match="logits"):
            metric(logits[..., :2], rows)
