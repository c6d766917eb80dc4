"""Shared by claims that answers depend on a direction: the metric before and after an edit."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property

import numpy as np
from jaxtyping import Float

from interp_toolkit.auditing.direction.common import DirectionAudit
from interp_toolkit.auditing.parts import Part, untestable
from interp_toolkit.auditing.site import Change
from interp_toolkit.circuits.metrics.metrics import Metric
from interp_toolkit.circuits.metrics.task import metric_for
from interp_toolkit.errors import InterventionError

Values = Float[np.ndarray, " row"]
MOVED = 24  # random directions that are exchanged or added, each in a pass


class MovingAudit(DirectionAudit):
    """Audit of a claim that answers depend on a direction."""

    def parts(self) -> list[Part]:
        """The parts of the claim."""
        reason = self._unmovable()
        if reason is not None:
            return [untestable(q, reason, "intervened") for q in self.asserted]
        return self.moving()

    @abstractmethod
    def moving(self) -> list[Part]:
        """The parts, if the effect can be tested."""

    def _unmovable(self) -> str | None:
        """Why the effect cannot be tested here; None if it can."""
        if (reason := self.context.untestable) is not None:
            return reason
        prompts = self.context.prompts
        if prompts.answers is None:
            return "these prompts have no answers whose logits could move; give answers"
        if self.claim.says == "carries" and prompts.corrupted is None:
            return "these prompts have no corrupted counterparts to exchange with; give corrupted"
        if self.claim.says == "steers" and prompts.wrong is None:
            return "these prompts have no wrong answers to steer to; give wrong"
        try:
            self.site.require_effect()
        except InterventionError as error:
            return str(error)
        return None

    @cached_property
    def metric(self) -> Metric:
        """The metric of the prompts."""
        return metric_for(self.context.model, self.context.prompts, self.context.memory)[0]

    @cached_property
    def clean_values(self) -> Values:
        """The metric of each clean prompt."""
        return self.site.values(self.metric, self.context.prompts.tokens)

    def changed(self, change: Change) -> Values:
        """The metric of each prompt after the change."""
        return self.site.values(self.metric, self.context.prompts.tokens, change)
