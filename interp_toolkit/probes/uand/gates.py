"""Boolean functions of features read out through ANDs: k-way ANDs, XOR, truth tables; ANDs of ANDs.

`measure_gates` reads selected functions of the model's features at one layer.

`Composer` follows ANDs through the layers. The second layer of a circuit takes the first layer's
gates as its features, which no readout of two of the model's own features can find. Layer by layer,
the ANDs that earlier layers compute (see `errors.claims`) therefore become features, and their
pairs are measured at the next layer with the same controls. Source: "Computation in
superposition", section 1.3 (sparse boolean circuits).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from interp_toolkit.boolean_functions import AFFINE, epsilon, mobius
from interp_toolkit.errors import InputError, suggestion
from interp_toolkit.finding import Run
from interp_toolkit.probes.estimators.truth_tables import truth_values
from interp_toolkit.probes.uand.readout import UANDReadout
from interp_toolkit.probes.uand.site import Layer, SiteErrors, Split, measure_site

Readout = tuple[Float[np.ndarray, " d"], float]

MOST_FEATURES = 6  # of a gate: a table of k features needs 2^k readouts


def check_gates(gates: Sequence[str], names: Sequence[str], table: str | None) -> list[list[int]]:
    """The gates' features as indices.

    Args:
        gates: names, separated by commas.
        names: names of all features.
        table: the truth table of every gate; None: their AND.

    Raises:
        InputError: unknown features, too many or too few.
    """
    checked = []
    for gate in gates:
        chosen = [part.strip() for part in gate.split(",")]
        if not all(chosen):
            raise InputError(f"gate {gate!r}: name its features, separated by commas")
        for name in chosen:
            if name not in names:
                raise InputError(f"gate {gate}: no feature {name!r}{suggestion(name, names)}")
        if not 2 <= len(set(chosen)) == len(chosen) <= MOST_FEATURES:
            raise InputError(f"gate {gate}: give two to {MOST_FEATURES} different features")
        if table is not None and len(table) != 2 ** len(chosen):
            raise InputError(f"gate {gate}: the table {table} does not fit its number of features")
        checked.append([list(names).index(name) for name in chosen])
    return checked


def measure_gates(
    gates: Sequence[Sequence[int]],
    names: Sequence[str],
    table: str | None,
    layer: Float[np.ndarray, "n d"],
    layer_input: Float[np.ndarray, "n _"] | None,
    rows: Split,
) -> list[dict[str, Any]]:
    """Each gate's errors on held-out rows, at the layer alone and together with its input.

    An AND is read from the layer alone. Other functions also need their single features, which a
    layer may not preserve, so they are read from the layer and its input side by side: through
    their ANDs, and ("fitted") by one readout fitted to the function. "summary" is the verdict.
    """
    if not gates:
        return []
    wide = (
        layer
        if table is None or layer_input is None
        else np.concatenate([layer, layer_input], axis=1)
    )
    here = _errors(wide, gates, table, rows)
    before = (
        [None] * len(gates) if layer_input is None else _errors(layer_input, gates, table, rows)
    )
    return [
        {
            "gate": ", ".join(names[k] for k in gate),
            "function": table or "AND",
            **errors,
            "input": None if at_input is None else at_input["worst_after_offset"],
            "summary": None if table is None else _gate_word(gate, names, table, errors, rows),
        }
        for gate, errors, at_input in zip(gates, here, before, strict=True)
    ]


def _errors(
    X: Float[np.ndarray, "n d"],
    gates: Sequence[Sequence[int]],
    table: str | None,
    rows: Split,
) -> list[dict[str, Any]]:
    readout = UANDReadout().fit(X[rows.fitted], rows.labels[rows.fitted])
    return [_gate_errors(readout, X[rows.held_out], gate, table, rows) for gate in gates]


def _gate_errors(
    readout: UANDReadout,
    held_out: Float[np.ndarray, "held_out d"],
    gate: Sequence[int],
    table: str | None,
    rows: Split,
) -> dict[str, Any]:
    on = rows.labels[rows.held_out][:, list(gate)]
    truth: Bool[np.ndarray, " held_out"] = (
        on.all(axis=1) if table is None else truth_values(table, on)
    )

    def measured(read: Callable[[str, Sequence[int]], Readout]) -> dict[str, float | None]:
        try:
            direction, intercept = read(table or _and(len(gate)), gate)
        except InputError:  # never on together in the fitted rows
            return dict.fromkeys(("worst", "worst_after_offset", "rms"))
        errors = epsilon((held_out @ direction + intercept)[:, None], truth[:, None])
        as_fitted = errors.worst, errors.worst_after_offset, errors.rms
        return dict(zip(("worst", "worst_after_offset", "rms"), as_fitted, strict=True))

    fitted = None if table is None else measured(readout.fitted_readout)
    through = measured(readout.truth_table_readout)
    return {**through, "true": int(truth.sum()), "fitted": fitted}


def _gate_word(
    gate: Sequence[int],
    names: Sequence[str],
    table: str,
    errors: Mapping[str, Any],
    rows: Split,
) -> str:
    """A sentence: whether the function can be read out, and if not, the obstacle."""
    through, fitted = errors["worst_after_offset"], errors["fitted"]["worst_after_offset"]
    name = f"{table} of {', '.join(names[k] for k in gate)}"
    ways = {"through its ANDs": through, "fitted to itself": fitted}
    measured = {way: error for way, error in ways.items() if error is not None}
    if measured and min(measured.values()) < AFFINE:
        way = min(measured, key=lambda w: measured[w])
        return f"{name} is read out {way}, with a worst error of {measured[way]:.3g} after offset."
    on = rows.labels[rows.fitted]
    terms = {features: c for features, c in mobius(table).items() if len(features) > 1}
    count = {
        features: int(on[:, [gate[k] for k in features]].all(axis=1).sum()) for features in terms
    }
    parts = [f"{name} cannot be read out to better than 1/4 here"]
    if terms:
        rarest = min(terms, key=lambda features: count[features])
        total = sum(map(abs, terms.values()))
        parts.append(
            f"through its ANDs their errors add up with weights of {total} in all, and the AND of "
            f"{', '.join(names[gate[k]] for k in rarest)}, weight {terms[rarest]}, is true on "
            f"{count[rarest]:,} of the {len(on):,} rows fitted on"
        )
    shown = [f"{way} {error:.3g}" for way, error in measured.items()]
    if shown:
        parts.append(f"worst errors after offset: {', '.join(shown)}")
    return f"{'; '.join(parts)}."


def _and(n_features: int) -> str:
    return f"{1:0{2**n_features}d}"


@dataclass(frozen=True, eq=False)
class Depth:
    """The measurement of a layer for pairs of ANDs of one depth.

    Attributes:
        depth: depth of the pairs' ANDs: 2 for ANDs of ANDs of features.
        names: names of the ANDs taken as features.
        left_out: number of other ANDs, beyond the limit.
        site: the measurement.
    """

    depth: int
    names: tuple[str, ...]
    left_out: int
    site: SiteErrors

    def computed(self) -> list[str]:
        """Names of the ANDs that are computed here."""
        return [and_name(*names) for names in _computed(self.site, self.names)]


class Composer:
    """Follows ANDs through the layers of a model, in order.

    Args:
        names: names of the features.
        rows: the fitted and held-out rows, with the features' labels.
        most: maximum number of ANDs taken as features at once; the rarest are left out first.
    """

    def __init__(self, names: Sequence[str], rows: Split, most: int):
        self._names, self._rows, self._most = tuple(names), rows, most
        # pairs of names whose ANDs earlier layers compute, by depth - 1
        self._computed: list[set[tuple[str, str]]] = []

    def follow(self, run: Run[Any], layer: Layer, site: SiteErrors, n_random: int) -> list[Depth]:
        """Measure the next layer for ANDs of the earlier layers' ANDs, at every depth reached.

        Args:
            run: the run, with the level of the pairs' classes (see `errors.claims`).
            layer: the layer's activations.
            site: the layer's measurement for pairs of features (depth 1).
            n_random: number of random layers to draw.
        """
        depths: list[Depth] = []
        names, rows, here = self._names, self._rows, site
        computed = [set(_computed(site, names))]
        for depth, earlier in enumerate(self._computed, start=2):
            names, rows, left_out = self._as_features(names, rows, earlier)
            if len(names) < 2:
                break
            run.progress(f"{layer.hook}: ANDs of {len(names)} ANDs of earlier layers")
            here = measure_site(run, layer, rows, n_random)
            depths.append(Depth(depth, names, left_out, here))
            computed.append(set(_computed(here, names)))
        for i, new in enumerate(computed):
            if i == len(self._computed):
                self._computed.append(set())
            self._computed[i] |= new
        return depths

    def _as_features(
        self, names: tuple[str, ...], rows: Split, earlier: set[tuple[str, str]]
    ) -> tuple[tuple[str, ...], Split, int]:
        """The most frequent of the ANDs computed earlier, as features."""
        number = {name: k for k, name in enumerate(names)}
        pairs = [(number[a], number[b]) for a, b in earlier if a in number and b in number]
        held = [
            (and_name(names[i], names[j]), rows.labels[:, i] & rows.labels[:, j])
            for i, j in sorted(pairs)
        ]
        often = sorted(range(len(held)), key=lambda k: -int(held[k][1].sum()))
        most_frequent = sorted(often[: self._most])
        labels: Bool[np.ndarray, "n feature"] = np.empty(
            (len(rows.labels), len(most_frequent)), dtype=bool
        )
        for column, k in enumerate(most_frequent):
            labels[:, column] = held[k][1]
        return (
            tuple(held[k][0] for k in most_frequent),
            replace(rows, labels=labels),
            len(held) - len(most_frequent),
        )


def and_name(first: str, second: str) -> str:
    """`a & b`, with brackets around names that are ANDs."""
    parts = (f"({name})" if " & " in name else name for name in (first, second))
    return " & ".join(parts)


def _computed(site: SiteErrors, names: Sequence[str]) -> list[tuple[str, str]]:
    """Names of the pairs that are computed at the layer."""
    return [
        (names[i], names[j])
        for (i, j), claim in zip(site.listed.errors.pairs.tolist(), site.listed.claims, strict=True)
        if claim == "computed"
    ]
