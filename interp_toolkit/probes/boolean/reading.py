"""Activations of many sites, a few passes over the model instead of one a site.

Sites at one position are read together, as many as the memory allows; the size of the first tells
how many that is. Only the last batch of sites is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.memory import together
from interp_toolkit.models.running.streaming import collect
from interp_toolkit.probes.estimators.separability import FLOORS

Where = tuple[str, int | None]  # hook, position (None: the data's own for each row)


class SiteReader:
    """`reader(hook, position)` -> activations [n d] in float64, and the precision behind them.

    Args:
        model: any TransformerLens model.
        data: the prompts.
        sites: all that will be asked for, in the order in which they will be.
        memory: bound on what is kept, and on each pass.
    """

    def __init__(
        self, model: Model, data: FeatureData, sites: Sequence[Where], memory: int | str | None
    ):
        self.model = model
        self.data = data
        self.sites = list(sites)
        self.memory = memory
        self._kept: dict[Where, Tensor] = {}
        self._site_bytes = 0

    def __call__(self, hook: str, place: int | None) -> tuple[Float[np.ndarray, "n d"], str]:
        """Read one site; raises InputError when its activations are not all finite."""
        if (hook, place) not in self._kept:
            self._fetch(hook, place)
        values = self._kept[hook, place]
        flat = values.reshape(len(values), -1).double().numpy()
        if not np.isfinite(flat).all():
            raise InputError(f"{hook} has NaN or infinite activations on this data; choose others")
        return flat, precision_of(self.model, values)

    def forget(self) -> None:
        """Drop what is kept: the model has changed."""
        self._kept = {}

    def _fetch(self, hook: str, place: int | None) -> None:
        self._kept = {}
        hooks = self._together(hook, place)
        read = collect(self.model, self.data, hooks, place, memory=self.memory)
        self._kept = {(name, place): value for name, value in read.items()}
        self._site_bytes = max(v.numel() * v.element_size() for v in read.values())

    def _together(self, hook: str, place: int | None) -> list[str]:
        """This hook and those that come after it at the same position, as many as fit."""
        sites = together(self.sites, (hook, place), self.memory, self._site_bytes)
        return list(dict.fromkeys(name for name, at in sites if at == place))


def precision_of(model: Model, values: Tensor) -> str:
    """The coarsest dtype that went into activations: norms of a bfloat16 model give float32."""
    dtypes = {values.dtype, *(p.dtype for p in model.parameters())}
    names = {str(dtype).removeprefix("torch.") for dtype in dtypes}
    return max(names & set(FLOORS), key=lambda name: FLOORS[name], default="float64")
