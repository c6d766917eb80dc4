"""What ablating induction heads costs, in nats, beside hooks on transformers' own modules."""

import pytest
import torch

from interp_toolkit.circuits import repeated_prompts, score_heads
from interp_toolkit.circuits.heads.ablation import ablation_effects

pytestmark = pytest.mark.real

ROWS, N_POS, STRONGEST = 8, 24, 3


@pytest.fixture(scope="module")
def prompts(bridge):
    return repeated_prompts(bridge, rows=ROWS, n_pos=N_POS)


@pytest.fixture(scope="module")
def strongest(bridge, prompts):
    frame = score_heads(bridge, prompts.tokens, detectors=["induction"])
    best = frame.nlargest(STRONGEST, "excess")
    return [tuple(at) for at in best[["layer", "head"]].to_numpy().tolist()]


def loss(logits, prompts):
    """Nats of the next token where the row tells it, a row's mean, in double precision."""
    likely = logits[:, :-1].double().log_softmax(-1)
    found = likely.gather(-1, prompts.tokens[:, 1:, None])[..., 0]
    repeated = prompts.repeated()[:, :-1]
    return -torch.stack([row[at].mean() for row, at in zip(found, repeated, strict=True)])


def test_effects_of_the_strongest_induction_heads(bridge, plain_model, prompts, strongest):
    from plain import HeadEdit

    found = ablation_effects(bridge, prompts, strongest, n_others=0)
    intact, held = plain_model.logits(prompts.tokens), plain_model.heads(prompts.tokens)
    for ablated in found.heads:
        z = held[ablated.layer][:, :, ablated.head]
        others = (z.double().sum(0) - z.double()) / (ROWS - 1)
        edit = HeadEdit(ablated.layer, ablated.head, others.float())
        without = plain_model.logits(prompts.tokens, [edit])
        expected = (loss(without, prompts) - loss(intact, prompts)).mean()
        assert abs(ablated.effect - float(expected)) < 1e-3
    assert max(abs(ablated.effect) for ablated in found.heads) > 0.01
