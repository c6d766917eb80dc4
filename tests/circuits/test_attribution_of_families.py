"""Direct effects of many families: they sum to the logits that transformers returns."""

import numpy as np
import pytest
import torch
from family_models import loaded_or_skipped

import interp_toolkit as it
from interp_toolkit.data import FeatureData

FAMILIES = (
    *("Gemma3", "Olmo2", "Granite", "Cohere", "GptOss", "DeepseekV3", "Qwen3Next", "Lfm2", "OPT"),
    *("Mamba", "GPTJ", "Mixtral", "FalconH1", "Afmoe", "GlmMoeDsa", "BitNet"),
)


@pytest.fixture(params=FAMILIES)
def pair(request):
    return loaded_or_skipped(request.param)


def questions(n=8):
    rng = np.random.default_rng(0)
    tokens = rng.integers(3, 50, (n, 9))
    answers, wrong = rng.permuted(np.tile(np.arange(3, 50), (n, 1)), axis=1)[:, :2].T
    return FeatureData(
        tokens, np.zeros((n, 0), bool), (), answers=answers[:, None], wrong=wrong[:, None]
    )


def test_components_sum_to_the_returned_difference(pair):
    original, model = pair
    data = questions()
    tokens = torch.as_tensor(np.stack(list(data.tokens)))
    answers, wrong = torch.as_tensor(data.answers), torch.as_tensor(data.wrong)
    with torch.no_grad():
        logits = original(tokens).logits[:, -1].double()
    truth = (logits.gather(1, answers) - logits.gather(1, wrong)).mean()
    finding = it.analyze(model, "logit-attribution", data=data)
    total = sum(component.effect for component in finding.components)
    assert total == pytest.approx(float(truth), abs=1e-4 * float(logits.abs().max()))
    layers = {c.layer for c in finding.components if c.kind in ("head", "mixer")}
    assert layers == set(range(model.cfg.n_layers))
