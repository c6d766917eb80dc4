"""Test whether answers depend on a direction, by interchange along it.

The component along the direction is exchanged with the corrupted prompt's,
    x' = x + ((x_corrupted - x) . u) u,    u = direction / |direction|,
and the effect is measured as a fraction of the difference in the metric between clean and corrupted
prompt (a ratio with Fieller's interval). Also reported: the component set to its mean over the
prompts, set to zero, and exchanged in reverse, from the clean prompt into the corrupted one.

A direction may move the answers although the model does not use it. One part of such a direction
follows the feature but is not read by later layers; the other part is read by later layers but is
dormant: it does not vary (Makelov, Lange and Nanda 2023, arXiv 2311.17030). Therefore the part of
the direction that later layers read (in the span of the metric's gradients on the way to the
corrupted prompt) is also exchanged alone. If that part does not vary with the feature, nothing
moves, and the claim is refuted. If later layers read a single direction, that direction is
exchanged for any claim, and a dormant part at the same site cannot be distinguished from the true
one.
"""

from __future__ import annotations

from functools import cached_property, partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.auditing.direction.common import random_directions
from interp_toolkit.auditing.direction.moving import MOVED, MovingAudit, Values
from interp_toolkit.auditing.parts import (
    Part,
    detectable_effect,
    measured,
    share_of_random,
    untestable,
)
from interp_toolkit.auditing.site import Rows
from interp_toolkit.auditing.threshold import stable_part
from interp_toolkit.evidence import answer_by, answer_of
from interp_toolkit.formatting import percent, percent_ci
from interp_toolkit.stats import Share, estimate, ratio_share

READ_BY = 1 - 1e-6  # fraction of the gradients' squared norm in the span that later layers read
LEAST_READ = 1e-3  # smallest squared length of a unit direction's part in that span to be tested
KEEPS = 0.5  # smallest effect of the read part, relative to that of the whole direction
GRADED, STEPS = 64, 8  # prompts, and steps towards the corrupted one, for gradients


class CarryingAudit(MovingAudit):
    """Audit of a claim that a direction carries the effect of corrupting the prompts."""

    least = 0.5
    asserted = ("matters", "special")

    @cached_property
    def corrupted(self) -> Float[Tensor, "row d"]:
        """Activations at the site on the corrupted prompts."""
        assert self.context.prompts.corrupted is not None
        return self.site.read(self.context.prompts.corrupted)

    @cached_property
    def corrupted_values(self) -> Values:
        """The metric of each corrupted prompt."""
        assert self.context.prompts.corrupted is not None
        return self.site.values(self.metric, self.context.prompts.corrupted)

    def exchanged(self, unit: Float[Tensor, " d"]) -> Values:
        """The metric of each prompt with the component along a direction exchanged."""
        return self.changed(partial(_put, unit, self.corrupted @ unit))

    @cached_property
    def whole(self) -> Values:
        """The effect of corruption on the metric of each prompt."""
        difference: np.ndarray = self.clean_values - self.corrupted_values
        return difference

    def moved(self, values: Values, coverage: float, less: Values | float = 0.0) -> Share:
        """The effect as a fraction of the difference between clean and corrupted metric."""
        part = self.clean_values - values - less
        return ratio_share(part, self.whole, coverage)

    def moving(self) -> list[Part]:
        """The parts on interchange along the direction."""
        moved = estimate(self.whole, unseen=1.0)  # as in `ratio_share`
        if moved.low <= 0 <= moved.high:
            text = (
                "corrupting the prompts has no significant effect on the answers, so whether a "
                "direction carries them cannot be tested"
            )
            return [
                untestable("matters", text, "intervened"),
                untestable("special", text, "intervened"),
            ]
        self.context.progress("exchanging the direction")
        values = self.exchanged(self.unit)
        coverage = self.context.coverage(2)
        share = self.moved(values, coverage)
        answer = answer_of(share.low, share.high, self.bound)
        text = (
            f"exchanged with the corrupted prompts', it moves the {self.metric.name} "
            f"{percent_ci(share)} of the way; claimed: at least {percent(self.bound)}. "
            f"{self._other_ways()}"
        )
        matters = measured("matters", answer, text, "intervened", share, self.bound, coverage, True)
        effect = (self.clean_values - values) / self.whole.mean()
        stable = stable_part(effect, self.bound, self.context.groups, self.context.rng(9))
        return [matters, self._read_part(values), self._rest(), self._random_movers(), stable]

    def _other_ways(self) -> str:
        """Effects of the component at its mean, at zero, and exchanged in reverse, as text."""
        along = self.clean @ self.unit
        mean = self.changed(partial(_put, self.unit, along.mean().expand(len(along))))
        zero = self.changed(partial(_put, self.unit, torch.zeros(len(along), dtype=along.dtype)))
        assert self.context.prompts.corrupted is not None
        put = partial(_put, self.unit, along)
        back = self.site.values(self.metric, self.context.prompts.corrupted, put)
        whole = self.changed(lambda x, rows: self.corrupted[rows].to(x))
        total = float(self.whole.mean())
        restored = float((back - self.corrupted_values).mean()) / total
        shares = [
            float((self.clean_values - values).mean()) / total for values in (mean, zero, whole)
        ]
        return (
            f"At the mean of all prompts it moves {percent(shares[0])}, at zero "
            f"{percent(shares[1])}; put into the corrupted prompts it restores "
            f"{percent(restored)}. The whole activation at the site, exchanged, moves "
            f"{percent(shares[2])}"
        )

    def _read_part(self, values: Values) -> Part:
        """Whether the part that later layers read has the effect by itself; see the module."""
        prompts, coverage = self.context.prompts, self.context.coverage(2)
        sample = self.context.rng(16).permutation(len(prompts))[:GRADED]
        rows = torch.from_numpy(np.sort(sample))
        clean, corrupted = self.clean[rows], self.corrupted[rows]
        gradients = torch.cat(
            [
                self.site.gradients(
                    self.metric, prompts.tokens, rows, clean + (corrupted - clean) * share
                )
                for share in (torch.arange(STEPS) + 0.5) / STEPS
            ]
        )
        inside = read_part(self.unit, gradients)
        if inside is None:
            text = f"the answers' gradient is zero along it on {len(rows)} prompts"
            return Part("special", answer_by(False), text, "intervened", True, 0.0, bound=KEEPS)
        share, unit = inside
        alone = self.exchanged(unit)
        moved = self.moved(alone, coverage)
        less = KEEPS * (self.clean_values - values)
        more = self.moved(alone, coverage, less)
        answer = answer_of(more.low, more.high, 0.0)
        text = (
            f"{percent(share)} of it (squared length) lies in the subspace that later layers "
            f"read; exchanged alone, that part moves {percent_ci(moved)} of the way"
            + {
                "confirmed": "",
                "refuted": ": it does not vary with the prompts there, so it is dormant",
            }.get(answer, ", so it cannot be distinguished from a dormant direction")
        )
        bound = moved.mean - more.mean
        return Part(
            "special", answer, text, "intervened", True, moved.mean, moved.low, moved.high,
            bound, detectable_effect(more, coverage),
        )  # fmt: skip

    def _rest(self) -> Part:
        """The effect of exchanging everything except the direction."""

        def change(x: Float[Tensor, "row d"], rows: Rows) -> Float[Tensor, "row d"]:
            other, u = self.corrupted[rows].to(x), self.unit.to(x)
            return other + ((x - other) @ u)[:, None] * u

        coverage = self.context.coverage(1)
        share = self.moved(self.changed(change), coverage)
        answer = answer_of(-share.high, -share.low, self.bound - 1)
        text = (
            "the rest of the activation at the site, exchanged, moves "
            f"{percent_ci(share)} of the way"
        )
        return measured("all", answer, text, "intervened", share, 1 - self.bound, coverage, False)

    def _random_movers(self) -> Part:
        """Random directions with the activations' covariance, exchanged for comparison."""
        directions = random_directions(self.clean, MOVED, self.context.rng(10))
        total = float(self.whole.mean())
        good = sum(
            float((self.clean_values - self.exchanged(unit)).mean()) / total >= self.bound
            for unit in directions
        )
        text = f"{good} of {MOVED} random directions of these activations move as much"
        return share_of_random(good, MOVED, text, "intervened", self.context.coverage(1))


def read_part(
    unit: Float[Tensor, " d"], gradients: Float[Tensor, "row d"]
) -> tuple[float, Float[Tensor, " d"]] | None:
    """Squared length of a direction's part in the span of the gradients, and that part normalized.

    The span has as many principal directions as contain READ_BY of the gradients' squared norm.
    None if the squared length is below LEAST_READ, or if all gradients are 0.
    """
    _, sizes, directions = torch.linalg.svd(gradients, full_matrices=False)
    energy = sizes.square().cumsum(0)
    if not float(energy[-1]) > 0:
        return None
    count = int((energy < READ_BY * energy[-1]).sum()) + 1
    basis = directions[:count]
    inside = basis.T @ (basis @ unit)
    share = float(inside.square().sum())
    return None if share < LEAST_READ else (share, inside / inside.norm())


def _put(
    unit: Float[Tensor, " d"], target: Float[Tensor, " all"], x: Float[Tensor, "row d"], rows: Rows
) -> Float[Tensor, "row d"]:
    """Replace the component along a direction."""
    u = unit.to(x)
    return x + (target[rows].to(x) - x @ u)[:, None] * u
