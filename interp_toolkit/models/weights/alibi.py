"""ALiBi: positions as a bias of the attention scores, linear in the distance.

Each head has a slope (Press et al. 2022, arXiv 2108.12409); a key one further back scores one
slope less. Softmax sees only the differences between the keys of one query, so models differ in
where they put the zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Alibi:
    """What one layer adds to its scores.

    Attributes:
        slopes: one per query head.
        from_query: the bias is `slope * (key - query)` and 0 for later keys (HookedTransformer);
            otherwise `slope * key`, counted from the first position (Bloom). The scores that a
            model hooks may differ from these by one constant per query, which no pattern shows:
            MPT counts from the last position, and HookedTransformer adds the last rows of a table
            that grows to the longest input so far.
    """

    slopes: Float[Tensor, "head"]
    from_query: bool

    def bias(
        self, query: Int[Tensor, " query"], key: Int[Tensor, " key"]
    ) -> Float[Tensor, "head query key"]:
        """What is added to the scores of these positions, after any soft cap."""
        steps = key.expand(len(query), -1)
        if self.from_query:
            steps = torch.clamp(steps - query[:, None], max=0)
        return self.slopes[:, None, None] * steps.to(self.slopes)
