"""The verdict at each site: its measurement, the theorem on heads, nulls over sites and copies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from interp_toolkit.boolean_functions import threshold_degree
from interp_toolkit.data import FeatureData
from interp_toolkit.models.running.interventions import reinitialised
from interp_toolkit.probes.boolean import theorem
from interp_toolkit.probes.boolean.measure import (
    SiteMeasurement,
    Targets,
    function_name,
    held_out_accuracy,
)
from interp_toolkit.probes.boolean.reading import SiteReader, Where
from interp_toolkit.probes.boolean.result import CopyNull, SiteVerdict
from interp_toolkit.probes.estimators.boolean import truth_values
from interp_toolkit.probes.estimators.separability import check_separability
from interp_toolkit.probes.estimators.witness import Certificate
from interp_toolkit.stats import max_statistic_p_values


def in_reinitialised(
    model: Any,
    sites: Sequence[Where],
    read: SiteReader,
    targets: Sequence[Targets],
    copies: int,
    C: float | None,
    seed: int,
    progress: Callable[[str], None],
) -> Float[np.ndarray, "site copy"]:
    """The same question of re-initialised models: separable (1 or 0), or accuracy if sampled."""
    values = np.full((len(sites), copies), np.nan)
    for copy in range(copies):
        progress(f"re-initialised model {copy + 1} of {copies}")
        read.forget()
        with reinitialised(model, seed=seed + copy):
            for i, site in enumerate(sites):
                X, precision = read(*site)
                of = targets[i]
                if of.sampled:
                    values[i, copy] = held_out_accuracy(X, of, C=C, seed=seed)
                else:
                    y = of.function
                    found = check_separability(X[y], X[~y], precision=precision)
                    values[i, copy] = found.status == "separable"
    read.forget()
    return values


def with_reinitialised(site: SiteVerdict, values: Float[np.ndarray, " copy"]) -> SiteVerdict:
    """The verdict with what re-initialised models show: separable or not, or their accuracy."""
    if not len(values):
        return site
    if site.held_out is None:
        return dataclasses.replace(site, reinitialised=CopyNull(int(values.sum()), len(values)))
    held_out = dataclasses.replace(
        site.held_out, reinitialised_balanced_accuracy=float(values.mean())
    )
    return dataclasses.replace(site, held_out=held_out)


def site_verdict(
    model: Any,
    data: FeatureData,
    table: str,
    hook: str,
    place: int | None,
    found: SiteMeasurement,
    read: SiteReader,
) -> SiteVerdict:
    """One site: its measurement, and the theorem on heads where its hypotheses hold there.

    Where the points alone leave it undecided, a certificate by the theorem decides.
    """
    separability, basis = found.separability, "points"
    residual: float | None = None
    by_head: Certificate | None = None
    fails = (
        "positions differ" if place is None else theorem.why_not(model, data, table, hook, place)
    )
    if fails is None and place is not None:
        Z = theorem.denominators(model, data, table, place)
        if isinstance(Z, str):
            fails = Z
        else:
            X, precision = read(hook, place)
            y = truth_values(table, np.asarray(data.features))
            by_head = Z.certificate(X[y], X[~y])
            residual = by_head.residual / separability.scale
            if not theorem.verifies(by_head, X, precision):
                fails = f"its certificate does not verify here (relative error {residual:.1g})"
                by_head = None
            elif separability.status == "undecided":
                basis = "theorem"
                separability = dataclasses.replace(
                    separability, status="not_separable", certificate=by_head
                )
    contradictory = separability.contradictions > 0
    return SiteVerdict(
        hook=hook,
        position=place,
        function=function_name(table),
        separability=separability,
        basis=basis,
        accuracy=next(iter(found.accuracy.values())),
        denominators=by_head,
        denominator_residual=residual,
        theorem=fails or "applies",
        heads_needed=None if fails else threshold_degree(table).degree,
        evenly_weighted=fails is not None or _even(table),
        n_rows=len(data),
        same_input=contradictory and _same_prompt_both_ways(data, table, place),
        labelings=found.labelings,
        reinitialised=None,
        held_out=found.held_out,
        controls=dict(list(found.accuracy.items())[1:]),
    )


def _even(table: str) -> bool:
    """Whether all inputs count alike in the certificate of the function's threshold degree."""
    weights = threshold_degree(table).weights
    return weights is not None and len(set(weights.tolist())) == 1


def _same_prompt_both_ways(data: FeatureData, table: str, place: int | None) -> bool:
    """Whether one prompt, read at one position, has the function both true and false."""
    y = truth_values(table, np.asarray(data.features))
    places = [place] * len(data) if data.positions is None or place is not None else data.positions
    labels: dict[tuple[bytes, int | None], set[bool]] = {}
    for row, at, label in zip(data.tokens, places, y, strict=True):
        key = np.asarray(row).tobytes(), None if at is None else int(at)
        labels.setdefault(key, set()).add(bool(label))
    return any(len(found) == 2 for found in labels.values())


def corrected(
    verdicts: list[SiteVerdict], measured: Sequence[SiteMeasurement]
) -> list[SiteVerdict]:
    """P-values of the held-out figures, corrected over the sites (same shuffles at each)."""
    held = {i: v.held_out for i, v in enumerate(verdicts) if v.held_out is not None}
    if not held or not all(len(measured[i].null) for i in held):
        return verdicts
    observed = np.array([figures.balanced_accuracy for figures in held.values()])
    p_values = max_statistic_p_values(observed, np.stack([measured[i].null for i in held], axis=1))
    corrected = list(verdicts)
    for (i, figures), p in zip(held.items(), p_values.tolist(), strict=True):
        held_out = dataclasses.replace(figures, p_value=p)
        corrected[i] = dataclasses.replace(verdicts[i], held_out=held_out)
    return corrected
