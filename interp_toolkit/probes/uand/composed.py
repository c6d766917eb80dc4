"""ANDs of ANDs: what later layers compute of what earlier ones did.

A circuit's second layer takes the first layer's gates as its features, which no readoff of two of
the model's own features finds. So, layer by layer, the ANDs that earlier layers compute (see
`claims`) are taken as features in their turn, and the layer is measured for their pairs, with the
same controls; what is computed there may be a feature of the layers after it, and so on.
Source: "Computation in superposition", section 1.3 (sparse boolean circuits).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool

from interp_toolkit.probes.uand.layers import Layer
from interp_toolkit.probes.uand.site import SiteErrors, Split, measure_site


@dataclass(frozen=True, eq=False)
class Depth:
    """A layer, measured for pairs of ANDs of one depth.

    Attributes:
        depth: of the pairs' ANDs: 2 for ANDs of ANDs of features.
        names: of the ANDs taken as features.
        left_out: ANDs that could have been taken too.
        site: what was measured.
    """

    depth: int
    names: tuple[str, ...]
    left_out: int
    site: SiteErrors

    def computed(self) -> list[str]:
        """The ANDs that are computed here, by name."""
        return _named(self.site, self.names, "computed")


class Composer:
    """Follows ANDs through the layers of a model, in order.

    Args:
        names: of the features.
        rows: which rows are fitted on and held out, with the features' labels.
        most: ANDs that are taken as features at once; more are left out, the rarest first.
    """

    def __init__(self, names: Sequence[str], rows: Split, most: int):
        self._names, self._rows, self._most = tuple(names), rows, most
        self._computed: list[set[str]] = []  # by depth less 1: what earlier layers compute

    def follow(
        self,
        layer: Layer,
        site: SiteErrors,
        *,
        level: float,
        reinitialisations: int,
        progress: Callable[[str], None],
    ) -> list[Depth]:
        """Measure the next layer for ANDs of the earlier layers' ANDs, as deep as there are any.

        Args:
            layer: its activations.
            site: what was measured of its features' own pairs.
            level: as in `measure_site`, like what follows.
            reinitialisations: random layers to draw.
            progress: told what is being done.
        """
        found: list[Depth] = []
        names, rows, here = self._names, self._rows, site
        computed = [set(_named(site, names, "computed"))]
        for depth, earlier in enumerate(self._computed, start=2):
            names, rows, left_out = self._as_features(here, names, rows, earlier)
            if len(names) < 2:
                break
            progress(f"{layer.hook}: ANDs of {len(names)} ANDs of earlier layers")
            here = measure_site(
                layer,
                rows,
                level=level,
                reinitialisations=reinitialisations,
                progress=progress,
            )
            found.append(Depth(depth, names, left_out, here))
            computed.append(set(found[-1].computed()))
        for place, new in enumerate(computed):
            if place == len(self._computed):
                self._computed.append(set())
            self._computed[place] |= new
        return found

    def _as_features(
        self, site: SiteErrors, names: tuple[str, ...], rows: Split, earlier: set[str]
    ) -> tuple[tuple[str, ...], Split, int]:
        """ANDs computed earlier, the commonest of them."""
        held = [
            (name, rows.labels[:, i] & rows.labels[:, j])
            for (i, j) in site.here.pairs.tolist()
            if (name := and_name(names[i], names[j])) in earlier
        ]
        often = sorted(range(len(held)), key=lambda k: -int(held[k][1].sum()))
        kept = sorted(often[: self._most])
        labels: Bool[np.ndarray, "n feature"] = np.empty((len(rows.labels), len(kept)), dtype=bool)
        for column, k in enumerate(kept):
            labels[:, column] = held[k][1]
        return tuple(held[k][0] for k in kept), replace(rows, labels=labels), len(held) - len(kept)


def and_name(first: str, second: str) -> str:
    """`a & b`, with brackets about what is an AND itself."""
    parts = (f"({name})" if " & " in name else name for name in (first, second))
    return " & ".join(parts)


def _named(site: SiteErrors, names: Sequence[str], claim: str) -> list[str]:
    return [
        and_name(names[i], names[j])
        for (i, j), found in zip(site.here.pairs.tolist(), site.claims, strict=True)
        if found == claim
    ]
