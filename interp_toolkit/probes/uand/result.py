"""What the universal-AND analysis returns: each layer's errors beside their controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from interp_toolkit.boolean_functions import Epsilon
from interp_toolkit.results import Evidence, Result, Table

if TYPE_CHECKING:
    import pandas as pd

Record = Mapping[str, Any]


@dataclass(frozen=True)
class SiteSummary:
    """One layer.

    Attributes:
        hook: the hook point.
        input: what its input is called, or None.
        counts: pairs by claim (see `probes.uand.claims`).
        epsilon: the errors of the readoffs over all pairs that were seen together, on held-out
            rows: of the "layer", its "input", a "reinitialised" layer and "shuffled" labels.
        by_class: of the layer: "worst", "q99" and "rms" by what is on ("both", "one", "none").
        mean_worst: the layer's mean over pairs of the worst error after offset.
        random_mean_worst: the same of each random layer.
        p_better, p_worse: the chance that a random layer reads the pairs as well, as badly; of
            this layer alone, whatever other layers were looked at.
        behind_attention: whether the input, which is of one position, leaves out what attention
            may have brought.
        shuffled_read: pairs called read although their labels were shuffled.
        intersections: the 0/1 construction, if the weights are it.
        higher_fan_in: the same for ANDs of three features or more.
    """

    hook: str
    input: str | None
    counts: Mapping[str, int]
    epsilon: Mapping[str, Epsilon | None]
    by_class: Mapping[str, Mapping[str, float]]
    mean_worst: float
    random_mean_worst: Sequence[float]
    p_better: float
    p_worse: float
    behind_attention: bool
    shuffled_read: int
    intersections: Record | None
    higher_fan_in: Record | None = None


@dataclass(frozen=True)
class ComposedSummary:
    """A layer asked for ANDs of ANDs: of those that earlier layers compute.

    Attributes:
        depth: 2 for ANDs of ANDs of features, 3 for ANDs of those, and so on.
        features: the ANDs that were taken as features, by name.
        left_out: ANDs that were there too, more than are taken.
        computed: pairs of them whose AND is computed at the layer, by name.
        site: the layer's numbers for these features.
    """

    depth: int
    features: Sequence[str]
    left_out: int
    computed: Sequence[str]
    site: SiteSummary


@dataclass(frozen=True)
class UANDEvidence(Evidence):
    """What the verdict on ANDs rests on, at the layer that it is about.

    Attributes:
        site: the layer.
        input: what its input is called, or None.
        counts: pairs by claim.
        shuffled_read: pairs called read although their labels were shuffled.
        random_layers: how many it was held against.
        p_better: the chance that one of them reads the pairs as well; None without any.
        behind_attention: whether attention may have brought ANDs from other positions.
        places: looked at.
        held_out: one in so many of them, whole rows together.
    """

    site: str
    input: str | None
    counts: Mapping[str, int]
    shuffled_read: int
    random_layers: int
    p_better: float | None
    behind_attention: bool
    places: int
    held_out: int


@dataclass(frozen=True)
class UANDResult(Result):
    """Which ANDs of two features can be read where, and what that means.

    Attributes:
        features: how many, their names, where they come from, and what was left out.
        rows: fitted and held out.
        pairs: of the layer that the verdict is about: "counts" by claim, the "best" and "worst"
            pairs, and the construction's "named" ones, if it is there.
        epsilon: of that layer, as in `SiteSummary`.
        layers: every layer.
        gates: readoffs asked for by name: ANDs of several features, or a truth table.
        composed: later layers, asked for ANDs of what earlier ones compute.
        focus: the number of the layer that the verdict is about.
        every_pair: all pairs of that layer, for `to_frame`.
    """

    features: Record
    rows: Record
    pairs: Record
    epsilon: Mapping[str, Epsilon | None]
    layers: Sequence[SiteSummary]
    gates: Sequence[Record]
    focus: int
    every_pair: Mapping[str, Sequence[Any]]
    composed: Sequence[ComposedSummary] = ()

    omit_from_json: ClassVar[frozenset[str]] = frozenset({"every_pair"})

    def to_frame(self) -> pd.DataFrame:
        """One row a pair: features, claim, q-value, and errors at the layer and at its input."""
        import pandas as pd

        return pd.DataFrame(dict(self.every_pair))

    def tables(self) -> list[Table]:
        """The layers; the errors by control; the best pairs; the gates asked for."""
        site = self.layers[self.focus]
        found = [self._layer_table(), _controls(site), _classes(site), self._pairs()]
        if self.composed:
            found.insert(1, self._composed())
        return [*found, self._gates()] if self.gates else found

    def _layer_table(self) -> Table:
        columns = ["layer", "computed", "before", "absent", "undecided", "unseen"]
        rows = [
            [
                s.hook,
                *(s.counts[c] for c in columns[1:]),
                *(_short(value) for value in (s.mean_worst, _mean(s), s.p_better)),
            ]
            for s in self.layers
        ]
        caption = (
            "Pairs by claim; computed: read here and not before, whatever random layers do. "
            "ε: mean over pairs of the worst error on held-out inputs after the best gain and "
            "bias; 1/4 is what an affine function of two bits has. Random: the same of random "
            "layers, their mean; p: the chance that one reads the pairs as well, of each layer "
            "alone."
        )
        columns = [*columns, "ε", "random", "p"]
        return Table("Pairs of features", columns, rows, caption, highlight=[self.focus])

    def _composed(self) -> Table:
        claims = ["computed", "before", "absent", "undecided", "unseen"]
        rows = [
            [c.site.hook, c.depth, len(c.features), *(c.site.counts[claim] for claim in claims)]
            for c in self.composed
        ]
        caption = (
            "ANDs that earlier layers compute, taken as features: pairs of these by claim. Depth "
            "2: ANDs of ANDs of features."
        )
        return Table("ANDs of ANDs", ["layer", "depth", "features", *claims], rows, caption)

    def _pairs(self) -> Table:
        columns = ["first", "second", "claim", "worst", "after offset", "at the input", "together"]
        keys = ["first", "second", "claim", "worst", "worst_after_offset", "input", "together"]
        rows = [[pair[key] for key in keys] for pair in (*self.pairs["best"], *self.pairs["worst"])]
        caption = "The best and the worst pairs on held-out inputs; together: inputs with both on."
        return Table("Best and worst pairs", columns, rows, caption)

    def _gates(self) -> Table:
        columns = ["gate", "function", "worst", "after offset", "rms", "true", "at the input"]
        keys = ["gate", "function", "worst", "worst_after_offset", "rms", "true", "input"]
        rows = [[gate[key] for key in keys] for gate in self.gates]
        caption = "Readoffs made of ANDs; true: held-out inputs on which the function is true."
        if any(gate["fitted"] for gate in self.gates):
            columns += ["fitted to itself", "after offset"]
            for row, gate in zip(rows, self.gates, strict=True):
                row += [gate["fitted"][key] for key in ("worst", "worst_after_offset")]
            caption += " Fitted to itself: one readoff for the whole function."
        return Table("Gates asked for", columns, rows, caption)


def _mean(site: SiteSummary) -> float | None:
    values = site.random_mean_worst
    return sum(values) / len(values) if values else None


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.3g}")


def _controls(site: SiteSummary) -> Table:
    keys = ["worst", "worst_after_offset", "q99", "rms"]
    rows = [
        [name, *(getattr(e, key) for key in keys)]
        for name, e in site.epsilon.items()
        if e is not None
    ]
    caption = (
        "Errors |readoff - AND| over all pairs seen together and all held-out inputs: the worst, "
        "the worst after each pair's best gain and bias, the 99 % quantile, the root mean square."
    )
    columns = ["readoff at", "worst", "after offset", "99 %", "rms"]
    return Table(f"Errors at {site.hook}", columns, rows, caption)


def _classes(site: SiteSummary) -> Table:
    measures = ["worst", "q99", "rms"]
    rows = [[f"{c} on", *(site.by_class[m][c] for m in measures)] for c in ("both", "one", "none")]
    return Table("The layer's errors by input", ["input", "worst", "99 %", "rms"], rows)
