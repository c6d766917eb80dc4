"""Test whether a direction steers: a multiple of it is added to the activations.

The measure is the fraction of prompts on which the model then prefers the wrong answer, among those
on which it preferred the answer before. Random directions of the same length are added as controls.
"""

from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.auditing.direction.common import random_directions
from interp_toolkit.auditing.direction.moving import MOVED, MovingAudit
from interp_toolkit.auditing.parts import Part, measured, share_of_random, untestable
from interp_toolkit.auditing.site import Rows
from interp_toolkit.auditing.threshold import stable_part
from interp_toolkit.circuits.metrics.metrics import LogitDifference
from interp_toolkit.errors import InputError
from interp_toolkit.evidence import answer_of
from interp_toolkit.formatting import percent, percent_ci
from interp_toolkit.stats import Share, clopper_pearson

LONGEST_STEP = 1e6  # largest component that is added; larger ones only cause overflow


class SteeringAudit(MovingAudit):
    """Audit of a claim that adding a direction changes answers to the wrong ones."""

    least = 0.5
    asserted = ("matters",)

    def moving(self) -> list[Part]:
        """The parts on adding the direction."""
        assert isinstance(self.metric, LogitDifference)
        step = torch.tensor(self.claim.direction, dtype=torch.float64) * self.claim.by
        if not bool(step.isfinite().all()) or float(step.abs().max()) > LONGEST_STEP:
            raise InputError(
                f"by={self.claim.by:g} makes the direction too large to be added to activations; "
                "give a smaller by"
            )
        before = self.clean_values > 0
        if before.sum() < 4:
            text = "the model prefers the answer on fewer than 4 prompts: too few to steer"
            return [untestable("matters", text, "intervened")]
        self.context.progress("steering along the direction")
        turned = (self.changed(partial(_add, step)) < 0)[before]
        coverage = self.context.coverage(1)
        hit, n = int(turned.sum()), len(turned)
        share = Share(hit / n, *clopper_pearson(hit, n, coverage))
        answer = answer_of(share.low, share.high, self.bound)
        size = float(step.norm())
        spread = float((self.clean @ self.unit).std()) or float("nan")
        text = (
            f"added with length {size:.3g} ({size / spread:.2g} standard deviations along it) it "
            f"changes {percent_ci(share)} of {n} answers to the wrong one; claimed: at least "
            f"{percent(self.bound)}"
        )
        matters = measured("matters", answer, text, "intervened", share, self.bound, coverage, True)
        directions = random_directions(self.clean, MOVED, self.context.rng(11)) * size
        good = sum(
            float((self.changed(partial(_add, one)) < 0)[before].mean()) >= self.bound
            for one in directions
        )
        text = f"{good} of {MOVED} random directions of that length change as many"
        special = share_of_random(good, MOVED, text, "intervened", self.context.coverage(1))
        groups = None if self.context.groups is None else self.context.groups[before]
        effect = turned.astype(float)
        return [matters, special, stable_part(effect, self.bound, groups, self.context.rng(12))]


def _add(
    step: Float[Tensor, " d"], x: Float[Tensor, "row d"], rows: Rows
) -> Float[Tensor, "row d"]:
    return x + step.to(x)
