"""The analysis of a boolean function on a model: `interp analyze MODEL --probe xor`.

Steps: make or take the data; read the activations of every site asked for, site by site; measure
each (`measure`); claim the one-head theorem exactly where it holds (`theorem`); correct the
held-out figures for the number of sites; at the site that says most, split the score by head and
take heads away (`attribution`); repeat the question on re-initialised copies of the model.
Source: "How many attention heads do you need to do XOR?".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float

from interp_toolkit.data import FeatureData, truth_table
from interp_toolkit.errors import InputError
from interp_toolkit.models.about.provenance import provenance
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.running.hooks import expand_hooks
from interp_toolkit.models.running.interventions import reinitialised
from interp_toolkit.probes.boolean import figures as pictures
from interp_toolkit.probes.boolean import theorem
from interp_toolkit.probes.boolean.attribution import head_effects
from interp_toolkit.probes.boolean.measure import (
    SiteMeasurement,
    Targets,
    function_name,
    held_out_accuracy,
    make_targets,
    measure,
)
from interp_toolkit.probes.boolean.reading import SiteReader, Where
from interp_toolkit.probes.boolean.result import (
    BooleanResult,
    HeadEffect,
    HeldOut,
    SiteVerdict,
    verdict,
)
from interp_toolkit.probes.estimators.boolean import TABLES, check_table, truth_values
from interp_toolkit.probes.estimators.separability import check_separability
from interp_toolkit.probes.estimators.splits import shuffled_labels
from interp_toolkit.probes.estimators.witness import Certificate
from interp_toolkit.registry import Analysis
from interp_toolkit.results import Figure
from interp_toolkit.stats import max_statistic_p_values

Position = int | Literal["all"] | None
DEFAULT_HOOKS = ("blocks.*.hook_resid_mid", "blocks.*.hook_resid_post")


def run(
    model: Any,
    *,
    table: str,
    data: FeatureData | None = None,
    tokens: Mapping[str, int] | None = None,
    layout: Sequence[str] | None = None,
    hooks: str | Sequence[str] | None = None,
    position: Position = None,
    seed: int = 0,
    C: float = 1.0,
    shuffles: int = 99,
    reinitialisations: int | None = None,
    memory: int | str | None = None,
    max_seconds: float | None = None,
    progress: Callable[[str], None] = lambda step: None,
    probe: str = "boolean",
) -> BooleanResult:
    """Where a boolean function of the data's features can be read off linearly, and where not.

    Args:
        model: any TransformerLens model.
        table: truth table, `2^k` bits, the first feature most significant ("0110" is XOR).
        data: prompts with feature columns; default: the truth table of the model's own task.
        tokens: ids that make the truth table's prompts, {"0": 5, "1": 7, "query": 9}.
        layout: names of `tokens`, and "a", "b", ... for the features' places; default: a, b, query.
        hooks: names or patterns; default: the residual stream after each attention and block.
        position: where to read; default: the data's own (the query), "all" for every position.
        seed: of splits, shuffles and re-initialisations.
        C: inverse regularisation of the logistic probe on sampled data, whose activations are
            divided by the root mean square deviation of a coordinate.
        shuffles: draws of shuffled labels on sampled data.
        reinitialisations: copies of the model with its weights permuted; default: 3, on sampled
            data 1 (each costs a pass over it).
        memory: bound on activations held at once, such as "4GiB".
        max_seconds: bound on each linear programme.
        progress: told what is being done.
        probe: the name the result goes by.

    Raises:
        InputError: no data to be had, a truth table that does not fit it, unknown hooks.
    """
    prompts = _resolve_data(model, table, data, tokens, layout)
    features = np.asarray(prompts.features)
    y = _labels(table, features, prompts)
    hooks = _readable(expand_hooks(model, _default_hooks(model) if hooks is None else hooks), hooks)
    sites = [(hook, place) for place in _places(prompts, position) for hook in hooks]
    read = SiteReader(model, prompts, sites, memory)
    groups, notes = _groups(prompts), list[str]()
    shuffled = partial(shuffled_labels, n_draws=shuffles, seed=seed, groups=groups)
    targets = make_targets(table, features, prompts.names, shuffled, groups)

    copies = (1 if targets.sampled else 3) if reinitialisations is None else reinitialisations
    measured = _measure(sites, read, targets, C, seed, max_seconds, progress)
    verdicts = _correct(
        [
            _site_verdict(model, prompts, table, *where, found, read)
            for where, found in zip(sites, measured, strict=True)
        ],
        measured,
    )
    again = _reinitialised(
        model, sites, read, targets, copies=copies, C=C, seed=seed, progress=progress
    )
    verdicts = [_with_reinitialised(*pair) for pair in zip(verdicts, again, strict=True)]
    focus = _focus(verdicts)
    site, (hook, place) = verdicts[focus], sites[focus]
    X, precision = read(hook, place)
    heads: list[HeadEffect] = []
    if site.status == "separable" or targets.sampled:
        heads, left_out = head_effects(
            model,
            prompts,
            hook,
            place,
            X,
            precision,
            measured[focus].direction,
            measured[focus].threshold,
            y,
            ask_separability=not targets.sampled,
            memory=memory,
            progress=progress,
        )
        notes += left_out
    record = record_of(model)
    settings = {
        "table": table,
        "hooks": hooks,
        "position": position,
        "C": C,
        "shuffles": shuffles,
        "reinitialisations": copies,
    }
    return BooleanResult(
        probe=probe,
        verdict=verdict(site.function, verdicts, heads, focus),
        evidence=_evidence(site, notes),
        provenance=provenance(model, _described(prompts), settings, seed),
        sites=verdicts,
        heads=heads,
        focus=focus,
        notes=notes,
        plots=_plots(verdicts, focus, heads, X, y, prompts, record, seed),
    )


def _measure(
    sites: Sequence[Where],
    read: SiteReader,
    targets: Targets,
    C: float,
    seed: int,
    max_seconds: float | None,
    progress: Callable[[str], None],
) -> list[SiteMeasurement]:
    measured = []
    for i, (hook, place) in enumerate(sites):
        at = "" if place is None else f", position {place}"
        progress(f"site {i + 1} of {len(sites)}: {hook}{at}")
        X, precision = read(hook, place)
        measured.append(measure(X, precision, targets, C=C, seed=seed, max_seconds=max_seconds))
    return measured


def _resolve_data(
    model: Any,
    table: str,
    data: FeatureData | None,
    tokens: Mapping[str, int] | None,
    layout: Sequence[str] | None,
) -> FeatureData:
    if data is not None:
        if tokens is not None or layout is not None:
            raise InputError("--tokens and --layout make prompts; with --data there is nothing to")
        return data
    task = record_of(model).task
    if tokens is None and task is None:
        raise InputError(
            "no data: this model records no task, so give the prompt's token ids "
            "(--tokens 0=5,1=7,query=9) or a file of labelled prompts (--data FILE)"
        )
    chosen: dict[str, Any] = {"tokens": tokens} if tokens is not None else dict(task or {})
    if layout is not None:
        chosen["layout"] = list(layout)
    elif "layout" not in chosen and len(table) != 4:
        n_features = len(table).bit_length() - 1
        chosen["layout"] = [*"abcdefghijklmnop"[:n_features], "query"]
    return truth_table(chosen, d_vocab=getattr(model.cfg, "d_vocab", None))


def _labels(
    table: str, features: Bool[np.ndarray, "n k"], data: FeatureData
) -> Bool[np.ndarray, " n"]:
    n_features = check_table(table)
    if features.shape[1] != n_features:
        raise InputError(
            f"{function_name(table)} takes {n_features} features and {data.source} has "
            f"{features.shape[1]} ({', '.join(data.names)}): choose them (--column NAME, each)"
        )
    y = truth_values(table, features)
    if y.all() or not y.any():
        raise InputError(
            f"{function_name(table)} is {'true' if y.all() else 'false'} on all {len(y)} rows of "
            f"{data.source}: a probe needs rows of both kinds"
        )
    return y


def _groups(data: FeatureData) -> Any:
    """The rows' groups; raises InputError when there is but one, so that none can be held out."""
    if data.groups is None:
        return None
    groups = np.asarray(data.groups)
    if len(np.unique(groups)) == 1:
        raise InputError(
            f"{data.source}: all rows are of one group, so none can be held out; "
            "leave the group column out to split by rows"
        )
    return groups


def _readable(found: list[str], asked: str | Sequence[str] | None) -> list[str]:
    """Without attention scores that only a pattern matched: where masked they are -inf."""
    named = [asked] if isinstance(asked, str) else list(asked or ())
    kept = [h for h in found if not h.endswith("hook_attn_scores") or h in named]
    return kept or found


def _default_hooks(model: Any) -> list[str]:
    known = list(model.hook_dict)
    mids = [h for h in known if h.startswith("blocks.") and h.endswith(".hook_resid_mid")]
    return list(DEFAULT_HOOKS) if mids else [DEFAULT_HOOKS[1]]


def _places(data: FeatureData, position: Position) -> list[int | None]:
    """Positions as columns of tokens; None: each row's own, where they differ."""
    lengths = set(data.lengths.tolist())
    if position == "all":
        if len(lengths) != 1:
            raise InputError("--position all needs prompts of one length; give one position")
        return list(range(lengths.pop()))
    if position is not None:
        shortest = min(lengths)
        if not -shortest <= position < shortest:
            raise InputError(f"position {position} is outside the shortest prompt ({shortest})")
        return [position % shortest if len(lengths) == 1 else position]
    if data.positions is not None:
        chosen = {int(p) for p in data.positions}
        return [chosen.pop()] if len(chosen) == 1 else [None]
    return [lengths.pop() - 1] if len(lengths) == 1 else [None]


def _reinitialised(
    model: Any,
    sites: Sequence[Where],
    read: SiteReader,
    targets: Targets,
    *,
    copies: int,
    C: float,
    seed: int,
    progress: Callable[[str], None],
) -> Float[np.ndarray, "site copy"]:
    """The same question of re-initialised models: separable (1 or 0), or accuracy if sampled."""
    values = np.full((len(sites), copies), np.nan)
    y = targets.function
    for copy in range(copies):
        progress(f"re-initialised model {copy + 1} of {copies}")
        read.forget()
        with reinitialised(model, seed=seed + copy):
            for i, site in enumerate(sites):
                X, precision = read(*site)
                if targets.sampled:
                    values[i, copy] = held_out_accuracy(X, targets, C=C, seed=seed)
                else:
                    found = check_separability(X[y], X[~y], precision=precision)
                    values[i, copy] = found.status == "separable"
    read.forget()
    return values


def _with_reinitialised(site: SiteVerdict, values: Float[np.ndarray, " copy"]) -> SiteVerdict:
    if not len(values):
        return site
    if site.held_out is None:
        return dataclasses.replace(site, reinitialised=(int(values.sum()), len(values)))
    held_out = dataclasses.replace(
        site.held_out, reinitialised_balanced_accuracy=float(values.mean())
    )
    return dataclasses.replace(site, held_out=held_out)


def _site_verdict(
    model: Any,
    data: FeatureData,
    table: str,
    hook: str,
    place: int | None,
    found: SiteMeasurement,
    read: SiteReader,
) -> SiteVerdict:
    sep = found.separability
    status, basis, certificate = sep.status, "points", sep.certificate
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
            residual = by_head.residual / sep.scale
            if not theorem.verifies(by_head, X, precision):
                fails = f"its certificate does not verify here (relative error {residual:.1g})"
                by_head = None
            elif status == "undecided":
                status, basis, certificate = "not_separable", "theorem", by_head
    return SiteVerdict(
        hook=hook,
        position=place,
        function=function_name(table),
        status=status,
        basis=basis,
        margin=sep.margin,
        relative_margin=sep.margin / sep.scale if sep.scale else 0.0,
        accuracy=next(iter(found.accuracy.values())),
        hyperplane=sep.hyperplane,
        certificate=certificate,
        denominators=by_head,
        denominator_residual=residual,
        theorem=fails or "applies",
        reason=sep.reason,
        precision=sep.precision,
        floor=sep.floor,
        n_rows=len(data),
        n_points=sep.n_points,
        affine_dim=sep.affine_dim,
        chance=sep.chance,
        contradictions=sep.contradictions,
        same_input=sep.contradictions > 0 and _same_prompt_both_ways(data, table, place),
        labelings=found.labelings,
        reinitialised=None,
        held_out=found.held_out,
        controls=dict(list(found.accuracy.items())[1:]),
    )


def _same_prompt_both_ways(data: FeatureData, table: str, place: int | None) -> bool:
    """Whether one prompt, read at one position, has the function both true and false."""
    y = truth_values(table, np.asarray(data.features))
    places = [place] * len(data) if data.positions is None or place is not None else data.positions
    labels: dict[tuple[bytes, int | None], set[bool]] = {}
    for row, at, label in zip(data.tokens, places, y, strict=True):
        key = np.asarray(row).tobytes(), None if at is None else int(at)
        labels.setdefault(key, set()).add(bool(label))
    return any(len(found) == 2 for found in labels.values())


def _correct(verdicts: list[SiteVerdict], measured: Sequence[SiteMeasurement]) -> list[SiteVerdict]:
    """P-values of the held-out figures, corrected over the sites (same shuffles at each)."""
    held = [v.held_out for v in verdicts]
    if any(h is None for h in held) or not len(measured[0].null):
        return verdicts
    observed = np.array([h.balanced_accuracy for h in held if h is not None])
    p_values = max_statistic_p_values(observed, np.stack([m.null for m in measured], axis=1))
    corrected = []
    for v, p in zip(verdicts, p_values, strict=True):
        assert isinstance(v.held_out, HeldOut)
        held_out = dataclasses.replace(v.held_out, p_value=float(p))
        corrected.append(dataclasses.replace(v, held_out=held_out))
    return corrected


def _focus(sites: Sequence[SiteVerdict]) -> int:
    """The index of the site that says most.

    The best one held out, else the widest gap among the separable, else the last with a witness,
    else the last.
    """

    def says(i: int) -> tuple[float, float]:
        site = sites[i]
        if site.held_out is not None:
            return site.held_out.balanced_accuracy, site.relative_margin
        order = {"separable": 2.0, "not_separable": 1.0, "undecided": 0.0}[site.status]
        return order, site.relative_margin if site.status == "separable" else float(i)

    return max(range(len(sites)), key=says)


def _evidence(site: SiteVerdict, notes: Sequence[str]) -> dict[str, Any]:
    evidence: dict[str, Any] = {"status": site.status, "site": site.name}
    if site.hyperplane is not None:
        evidence["witness"] = "a hyperplane, its gap verified in float64 on the points"
    elif site.certificate is not None:
        evidence["witness"] = "convex weights on the two classes, verified in float64"
        evidence["certificate_residual"] = site.certificate.residual
    evidence["smallest gap that counts"] = site.floor
    evidence["one-head theorem"] = site.theorem
    if site.denominator_residual is not None:
        evidence["denominators' relative error"] = site.denominator_residual
    evidence["chance that random labels separate"] = site.chance
    if site.labelings is not None:
        evidence["other labelings separable"] = f"{site.labelings[0]} of {site.labelings[1]}"
    if site.reinitialised is not None:
        n, of = site.reinitialised
        evidence["re-initialised models separable"] = f"{n} of {of}"
    kind = "balanced accuracy" if site.held_out else "accuracy"
    evidence |= {f"{kind} of {name} here": value for name, value in site.controls.items()}
    if notes:
        evidence["left out"] = "; ".join(notes)
    return evidence


def _plots(
    sites: Sequence[SiteVerdict],
    focus: int,
    heads: Sequence[Any],
    X: Float[np.ndarray, "n d"],
    y: Bool[np.ndarray, " n"],
    data: FeatureData,
    record: Any,
    seed: int,
) -> list[Figure]:
    labels = ["".join(str(int(bit)) for bit in row) for row in np.asarray(data.features)]
    figures = [pictures.plane(sites[focus], X, y, labels, seed)]
    if len(sites) > 1:
        figures.append(pictures.across_sites(sites))
    if heads:
        figures.append(pictures.head_split(heads, sites[focus]))
    curve = pictures.training_curve(record.training or {})
    return [*figures, curve] if curve else figures


def _described(data: FeatureData) -> dict[str, Any]:
    return {"source": data.source, "rows": len(data), "sha256": data.digest()}


def _unfit(model: Any, data: FeatureData | None) -> str | None:
    task = record_of(model).task
    if data is None and (task is None or not {"function", "tokens"} <= task.keys()):
        return "needs --tokens or --data"
    if data is not None and np.asarray(data.features).shape[1] != 2:
        return "needs two features"
    return None


def _named(name: str, summary: str) -> Analysis:
    return Analysis(name, summary, partial(run, table=TABLES[name], probe=name), _unfit)


XOR = _named("xor", "is XOR of two features linearly readable, where, and which heads carry it")
AND = _named("and", "the same for AND")
OR = _named("or", "the same for OR")
BOOLEAN = Analysis(
    "boolean",
    "any truth table: --table 0110 (first feature most significant)",
    run,
    lambda model, data: "needs --table",
)
