"""What ablating induction heads costs, in nats, beside hooks on transformers' own modules."""

import pytest
import torch

from interp_toolkit.circuits import repeated_prompts, score_heads
from interp_toolkit.circuits.heads.attention_knockout import INTACT, Knockout, KnockoutRunner
from interp_toolkit.circuits.metrics.task import task_of
from interp_toolkit.models.model import Head

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

    task, _ = task_of(bridge, prompts)
    runner = KnockoutRunner(bridge, task, {})
    ablated = {at: Knockout(way="mean", output=frozenset([Head(*at)])) for at in strongest}
    readings = runner.readings([INTACT, *ablated.values()], task.rows)
    intact, held = plain_model.logits(prompts.tokens), plain_model.heads(prompts.tokens)
    effects = []
    for (layer, head), knockout in ablated.items():
        effects.append(float((readings[INTACT] - readings[knockout])[:, 0].mean()))
        z = held[layer][:, :, head]
        others = (z.double().sum(0) - z.double()) / (ROWS - 1)
        edit = HeadEdit(layer, head, others.float())
        without = plain_model.logits(prompts.tokens, [edit])
        expected = (loss(without, prompts) - loss(intact, prompts)).mean()
        assert abs(effects[-1] - float(expected)) < 1e-3
    assert max(map(abs, effects)) > 0.01
