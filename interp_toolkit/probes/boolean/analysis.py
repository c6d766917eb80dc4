"""The analysis of a boolean function on a model: `interp analyze MODEL --probe xor`.

Steps: make or take the data; read the activations of every site asked for, site by site; measure
each (`measure`); claim the theorem on heads exactly where it holds (`theorem`); correct the
held-out figures for the number of sites; at the site that says most, split the score by head and
take heads away (`attribution`); repeat the question on re-initialised copies of the model.
Source: "How many attention heads do you need to do XOR?".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from jaxtyping import Bool, Float
from pydantic import AfterValidator, BeforeValidator, Field

from interp_toolkit.data import FeatureData, parse_tokens
from interp_toolkit.finding import MOST_FINDINGS, Run, analysis
from interp_toolkit.models.about.record import provenance, record_of
from interp_toolkit.models.running.hooks import expand_hooks
from interp_toolkit.options import Flag, Names, Options, Position, Words
from interp_toolkit.probes.boolean import figures
from interp_toolkit.probes.boolean.attribution import head_effects
from interp_toolkit.probes.boolean.inputs import (
    default_hooks,
    equal_inputs_at,
    groups_of,
    groups_with,
    labels_of,
    positions_of,
    prompts_for,
    readable_hooks,
)
from interp_toolkit.probes.boolean.result import (
    BooleanFinding,
    HeadEffect,
    SiteVerdict,
    evidence_of,
    findings,
    focus_of,
    headline,
)
from interp_toolkit.probes.boolean.sites import (
    SiteMeasurement,
    SiteReader,
    Targets,
    Where,
    corrected,
    in_reinitialised,
    make_targets,
    measure,
    site_verdict,
    with_reinitialised,
)
from interp_toolkit.probes.estimators.boolean import TABLES, check_table
from interp_toolkit.registry import Analysis
from interp_toolkit.results import Figure

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
    C: Annotated[float | None, Flag(name="--C")] = Field(
        None,
        gt=0,
        description="Inverse regularisation of the probe on sampled data; default: of 0.01 to 1e6 "
        "what serves best on rows held out, chosen without the rows that it is judged on.",
    )
    shuffles: int = Field(99, ge=0, description="Draws of shuffled labels on sampled data.")
    reinitialisations: int | None = Field(
        None,
        ge=0,
        description="Copies of the model with its weights permuted; default: 3, on sampled data 1.",
    )


class BooleanOptions(FunctionOptions):
    """Options of `--probe boolean`."""

    table: Annotated[str, AfterValidator(_checked_table), Flag(metavar="0110")] = Field(
        description="Truth table of 2^k bits, the first feature most significant (0110 is XOR)."
    )


def analyze(run: Run[BooleanOptions]) -> BooleanFinding:
    """Find the sites where the boolean function can be read linearly."""
    return find_function(run, run.options.table)


def find_function(run: Run[Any], table: str) -> BooleanFinding:
    """Find the sites at which a boolean function of the data's features is linearly readable.

    Without data the prompts are the truth table of the model's own task.

    Raises:
        InputError: no data to be had, a truth table that does not fit it, unknown hooks.
    """
    model, options, progress = run.model, run.options, run.progress
    prompts = prompts_for(model, table, run.data, options.tokens, options.layout)
    features = np.asarray(prompts.features)
    y = labels_of(table, features, prompts)
    asked = options.hooks
    hooks = readable_hooks(expand_hooks(model, asked or default_hooks(model)), asked)
    sites = [
        (hook, position) for position in positions_of(prompts, options.position) for hook in hooks
    ]
    read = SiteReader(model, prompts, sites, run.memory)
    measured, targets = _measure(run, prompts, table, sites, read)
    copies = options.reinitialisations
    if copies is None:
        copies = 1 if any(of.sampled for of in targets) else 3
    verdicts = corrected(
        [
            site_verdict(model, prompts, table, *where, measurement, read)
            for where, measurement in zip(sites, measured, strict=True)
        ],
        measured,
    )
    again = in_reinitialised(model, sites, read, targets, copies, options.C, run.seed, progress)
    verdicts = [with_reinitialised(*pair) for pair in zip(verdicts, again, strict=True)]
    focus = focus_of(verdicts)
    site = verdicts[focus]
    X, precision = read(*sites[focus])
    heads, notes = list[HeadEffect](), list[str]()
    sampled = targets[focus].sampled
    if site.status == "separable" or sampled:
        heads, notes = head_effects(
            model,
            prompts,
            *sites[focus],
            X,
            precision,
            measured[focus].direction,
            measured[focus].threshold,
            y,
            ask_separability=not sampled,
            memory=run.memory,
            progress=progress,
        )
    sentences = findings(verdicts, heads, focus)
    settings = {"table": table, "hooks": hooks, "reinitialisations": copies}
    resolved = options.settings(**settings)
    data = {"source": prompts.source, "rows": len(prompts), "sha256": prompts.digest()}
    return BooleanFinding(
        headline=headline(site, heads),
        findings=sentences[:MOST_FINDINGS],
        evidence=evidence_of(site),
        provenance=provenance(model, data, resolved, run.seed),
        sites=verdicts,
        heads=heads,
        focus=focus,
        notes=[*notes, *sentences[MOST_FINDINGS:]],
        plots=_plots(verdicts, focus, heads, X, y, prompts, record_of(model), run.seed),
    )


def _measure(
    run: Run[Any],
    prompts: FeatureData,
    table: str,
    sites: Sequence[Where],
    read: SiteReader,
) -> tuple[list[SiteMeasurement], list[Targets]]:
    """Every site measured, and what was asked there; sites that see alike share their targets."""
    groups, shared = groups_of(prompts), dict[bytes, Targets]()
    measured, targets = list[SiteMeasurement](), list[Targets]()
    for i, (hook, position) in enumerate(sites):
        at = "" if position is None else f", position {position}"
        run.progress(f"site {i + 1} of {len(sites)}: {hook}{at}")
        X, precision = read(hook, position)
        equal = equal_inputs_at(run.model, prompts, position, X)
        if (key := equal.tobytes()) not in shared:
            shared[key] = make_targets(
                *(table, np.asarray(prompts.features), prompts.names),
                *(equal, groups_with(equal, groups)),
                shuffles=run.options.shuffles,
                seed=run.seed,
            )
        targets.append(shared[key])
        measured.append(measure(X, precision, targets[-1], C=run.options.C, seed=run.seed))
    return measured, targets


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


def unfit(model: Any, data: FeatureData | None) -> str | None:
    """Why the analysis cannot run without further options; None where it can."""
    task = record_of(model).task
    if data is None and (task is None or not {"function", "tokens"} <= task.keys()):
        return "needs --tokens or --data"
    if data is not None and np.asarray(data.features).shape[1] != 2:
        return "needs two features"
    return None


def _named(name: str, summary: str) -> Analysis:
    def analyze_named(run: Run[FunctionOptions]) -> BooleanFinding:
        return find_function(run, TABLES[name])

    return analysis(name, summary, FunctionOptions, analyze_named, unfit, source=SOURCE)


XOR = _named("xor", "is XOR of two features linearly readable, where, and which heads carry it")
AND = _named("and", "the same for AND")
OR = _named("or", "the same for OR")
BOOLEAN = analysis(
    "boolean",
    "any truth table: --table 0110 (first feature most significant)",
    BooleanOptions,
    analyze,
    lambda model, data: "needs --table",
    source=SOURCE,
)
