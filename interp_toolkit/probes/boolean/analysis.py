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
from typing import Annotated, Any

import numpy as np
from jaxtyping import Bool, Float
from pydantic import AfterValidator, BeforeValidator, Field

from interp_toolkit.data import FeatureData, parse_tokens, truth_table
from interp_toolkit.errors import InputError
from interp_toolkit.models.about.provenance import provenance
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.running.hooks import expand_hooks
from interp_toolkit.models.running.interventions import reinitialised
from interp_toolkit.options import Flag, Names, Options, Position, Words
from interp_toolkit.probes.boolean import figures, theorem
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
    CopyNull,
    HeadEffect,
    HeldOutFigures,
    SiteVerdict,
)
from interp_toolkit.probes.boolean.verdict import evidence_of, focus_of, verdict
from interp_toolkit.probes.estimators.boolean import TABLES, check_table, truth_values
from interp_toolkit.probes.estimators.separability import check_separability
from interp_toolkit.probes.estimators.splits import shuffled_labels
from interp_toolkit.probes.estimators.witness import Certificate
from interp_toolkit.registry import Analysis
from interp_toolkit.results import Figure
from interp_toolkit.stats import max_statistic_p_values

DEFAULT_HOOKS = ("blocks.*.hook_resid_mid", "blocks.*.hook_resid_post")
SOURCE = "How many attention heads do you need to do XOR?"


def _as_tokens(value: Any) -> Any:
    return parse_tokens(value) if isinstance(value, str) else value


def _checked_table(table: str) -> str:
    check_table(table)
    return table


class FunctionOptions(Options):
    """Options of `--probe xor`, `and` and `or`."""

    tokens: Annotated[
        Mapping[str, int] | None, BeforeValidator(_as_tokens), Flag(metavar="0=0,1=1,query=2")
    ] = Field(None, description="Token ids that make the truth table's prompts.")
    layout: Annotated[Words | None, Flag(metavar='"a b query"')] = Field(
        None, description="Where tokens and features go in a prompt; default: a b query."
    )
    hooks: Annotated[Names | None, Flag("--hook", metavar="PATTERN")] = Field(
        None,
        description="Hook points to read, such as 'blocks.*.hook_resid_post'; default: the "
        "residual stream after each attention and block.",
    )
    position: Position | None = Field(
        None, description="Token position to read; default: the data's own (the query)."
    )
    C: Annotated[float, Flag(name="--C")] = Field(
        1.0, gt=0, description="Inverse regularisation of the probe on sampled data."
    )
    shuffles: int = Field(99, ge=0, description="Draws of shuffled labels on sampled data.")
    reinitialisations: int | None = Field(
        None,
        ge=0,
        description="Copies of the model with its weights permuted; default: 3, on sampled data 1.",
    )
    max_seconds: float | None = Field(
        None, gt=0, description="Bound on each linear programme; default: none."
    )


class BooleanOptions(FunctionOptions):
    """Options of `--probe boolean`."""

    table: Annotated[str, AfterValidator(_checked_table), Flag(metavar="0110")] = Field(
        description="Truth table of 2^k bits, the first feature most significant (0110 is XOR)."
    )


def run(
    model: Any,
    data: FeatureData | None,
    options: FunctionOptions,
    progress: Callable[[str], None],
    *,
    probe: str = "boolean",
    table: str | None = None,
) -> BooleanResult:
    """Where a boolean function of the data's features can be read off linearly, and where not.

    Args:
        model: any TransformerLens model.
        data: prompts with feature columns; None: the truth table of the model's own task.
        options: see `BooleanOptions`.
        progress: told what is being done.
        probe: the name the result goes by.
        table: of the function; None: the options'.

    Raises:
        InputError: no data to be had, a truth table that does not fit it, unknown hooks.
    """
    if isinstance(options, BooleanOptions):
        table = options.table
    assert table is not None
    prompts = _resolve_data(model, table, data, options.tokens, options.layout)
    features = np.asarray(prompts.features)
    y = _labels(table, features, prompts)
    asked = options.hooks
    hooks = _readable(expand_hooks(model, asked or _default_hooks(model)), asked)
    sites = [(hook, place) for place in _places(prompts, options.position) for hook in hooks]
    read = SiteReader(model, prompts, sites, options.memory)
    groups = _groups(prompts)
    shuffled = partial(shuffled_labels, n_draws=options.shuffles, seed=options.seed, groups=groups)
    targets = make_targets(table, features, prompts.names, shuffled, groups)
    copies = options.reinitialisations
    copies = (1 if targets.sampled else 3) if copies is None else copies

    measured = _measure(sites, read, targets, options, progress)
    verdicts = _correct(
        [
            _site_verdict(model, prompts, table, *where, found, read)
            for where, found in zip(sites, measured, strict=True)
        ],
        measured,
    )
    again = _reinitialised(model, sites, read, targets, copies, options, progress)
    verdicts = [_with_reinitialised(*pair) for pair in zip(verdicts, again, strict=True)]
    focus = focus_of(verdicts)
    site = verdicts[focus]
    X, precision = read(*sites[focus])
    heads, notes = list[HeadEffect](), list[str]()
    if site.status == "separable" or targets.sampled:
        heads, notes = head_effects(
            model,
            prompts,
            *sites[focus],
            X,
            precision,
            measured[focus].direction,
            measured[focus].threshold,
            y,
            ask_separability=not targets.sampled,
            memory=options.memory,
            progress=progress,
        )
    settings = options.settings(table=table, hooks=hooks, reinitialisations=copies)
    return BooleanResult(
        probe=probe,
        verdict=verdict(site.function, verdicts, heads, focus),
        evidence=evidence_of(site),
        provenance=provenance(model, _described(prompts), settings, options.seed),
        sites=verdicts,
        heads=heads,
        focus=focus,
        notes=notes,
        plots=_plots(verdicts, focus, heads, X, y, prompts, record_of(model), options.seed),
    )


def _measure(
    sites: Sequence[Where],
    read: SiteReader,
    targets: Targets,
    options: FunctionOptions,
    progress: Callable[[str], None],
) -> list[SiteMeasurement]:
    measured = []
    for i, (hook, place) in enumerate(sites):
        at = "" if place is None else f", position {place}"
        progress(f"site {i + 1} of {len(sites)}: {hook}{at}")
        X, precision = read(hook, place)
        measured.append(
            measure(
                X,
                precision,
                targets,
                C=options.C,
                seed=options.seed,
                max_seconds=options.max_seconds,
            )
        )
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


def _places(data: FeatureData, position: Position | None) -> list[int | None]:
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
    copies: int,
    options: FunctionOptions,
    progress: Callable[[str], None],
) -> Float[np.ndarray, "site copy"]:
    """The same question of re-initialised models: separable (1 or 0), or accuracy if sampled."""
    values = np.full((len(sites), copies), np.nan)
    y = targets.function
    for copy in range(copies):
        progress(f"re-initialised model {copy + 1} of {copies}")
        read.forget()
        with reinitialised(model, seed=options.seed + copy):
            for i, site in enumerate(sites):
                X, precision = read(*site)
                if targets.sampled:
                    values[i, copy] = held_out_accuracy(X, targets, C=options.C, seed=options.seed)
                else:
                    found = check_separability(X[y], X[~y], precision=precision)
                    values[i, copy] = found.status == "separable"
    read.forget()
    return values


def _with_reinitialised(site: SiteVerdict, values: Float[np.ndarray, " copy"]) -> SiteVerdict:
    if not len(values):
        return site
    if site.held_out is None:
        return dataclasses.replace(site, reinitialised=CopyNull(int(values.sum()), len(values)))
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
        n_rows=len(data),
        same_input=contradictory and _same_prompt_both_ways(data, table, place),
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
        assert isinstance(v.held_out, HeldOutFigures)
        held_out = dataclasses.replace(v.held_out, p_value=float(p))
        corrected.append(dataclasses.replace(v, held_out=held_out))
    return corrected


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
    plots = [figures.plane(sites[focus], X, y, labels, seed)]
    if len(sites) > 1:
        plots.append(figures.across_sites(sites))
    if heads:
        plots.append(figures.head_split(heads, sites[focus]))
    curve = figures.training_curve(record.training or {})
    return [*plots, curve] if curve else plots


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
    table = TABLES[name]
    return Analysis(
        name, summary, FunctionOptions, partial(run, probe=name, table=table), _unfit, SOURCE
    )


XOR = _named("xor", "is XOR of two features linearly readable, where, and which heads carry it")
AND = _named("and", "the same for AND")
OR = _named("or", "the same for OR")
BOOLEAN = Analysis(
    "boolean",
    "any truth table: --table 0110 (first feature most significant)",
    BooleanOptions,
    run,
    lambda model, data: "needs --table",
    SOURCE,
)
