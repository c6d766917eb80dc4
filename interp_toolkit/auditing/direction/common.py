"""Shared by claims about directions: unit vector, activations at its site, random directions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.auditing.claims.kinds import DirectionClaim
from interp_toolkit.auditing.context import AuditContext
from interp_toolkit.auditing.parts import Part, Question
from interp_toolkit.auditing.site import VectorSite


@dataclass(frozen=True, eq=False)
class DirectionAudit(ABC):
    """Audit of one direction.

    Attributes:
        claim: about the direction.
        context: context of the audit.
        site: hook and position of the activations.
    """

    #: claimed lower bound if the claim has none
    least: ClassVar[float]
    #: the questions on which the claim depends
    asserted: ClassVar[tuple[Question, ...]]

    claim: DirectionClaim
    context: AuditContext
    site: VectorSite

    @abstractmethod
    def parts(self) -> list[Part]:
        """The parts of the claim."""

    @property
    def bound(self) -> float:
        """The smallest effect that is claimed."""
        return self.least if self.claim.at_least is None else self.claim.at_least

    @cached_property
    def unit(self) -> Float[Tensor, " d"]:
        """The direction at length 1."""
        vector = torch.tensor(self.claim.direction, dtype=torch.float64)
        vector = vector / vector.abs().max()  # avoids overflow of squares
        length: Tensor = vector.norm()
        return vector / length

    @cached_property
    def clean(self) -> Float[Tensor, "row d"]:
        """Activations at the site on the clean prompts."""
        self.context.progress(f"activations at {self.site.hook}")
        return self.site.read(self.context.prompts.tokens)


def random_directions(
    x: Float[Tensor, "row d"], n: int, rng: np.random.Generator
) -> Float[Tensor, "n d"]:
    """Unit vectors drawn with the covariance of these activations."""
    centred = x - x.mean(0)
    weights = torch.from_numpy(rng.standard_normal((n, len(x))))
    directions = weights @ centred
    norms = directions.norm(dim=1, keepdim=True)
    return directions / torch.where(norms > 0, norms, torch.ones_like(norms))
