"""The parts of a claim about a direction, by the claim's verb."""

from __future__ import annotations

import numpy as np

from interp_toolkit.auditing.claims.kinds import DirectionClaim
from interp_toolkit.auditing.context import AuditContext
from interp_toolkit.auditing.direction.carries import CarryingAudit
from interp_toolkit.auditing.direction.common import DirectionAudit
from interp_toolkit.auditing.direction.reads import ReadingAudit
from interp_toolkit.auditing.direction.steers import SteeringAudit
from interp_toolkit.auditing.parts import Part
from interp_toolkit.auditing.site import site_of
from interp_toolkit.errors import InputError

KINDS: dict[str, type[DirectionAudit]] = {
    "reads": ReadingAudit,
    "carries": CarryingAudit,
    "steers": SteeringAudit,
}


def audit_direction(claim: DirectionClaim, context: AuditContext) -> list[Part]:
    """The parts of a claim about a direction.

    Raises:
        InputError: an unknown hook, position, head or feature, another number of components, or no
            prompts.
    """
    if context.data is None:
        raise InputError("a claim about a direction needs prompts; give --data")
    unit = np.asarray(claim.direction)
    if not np.abs(unit).max() > 0:
        raise InputError("the direction is zero; give a vector with a nonzero entry")
    site = site_of(context, claim.hook, claim.position, claim.head, len(unit))
    return KINDS[claim.says](claim, context, site).parts()
