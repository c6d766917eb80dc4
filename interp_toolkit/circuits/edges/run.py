"""A model with only some of its edges intact, for other people's code."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.circuits.edges.passes.ablation_value import AblationValue, Kind, kinds_for
from interp_toolkit.circuits.edges.passes.edge_ablation import SubcircuitPass, prompts_at_once
from interp_toolkit.circuits.edges.passes.patched_pass import PatchedModel
from interp_toolkit.circuits.edges.wiring import Edge
from interp_toolkit.circuits.metrics.prompts import Prompts, prompts_from_tokens
from interp_toolkit.errors import InputError, takes
from interp_toolkit.models.model import check_model
from interp_toolkit.models.running.memory import parse_memory


@takes(model=check_model)
def run_edges(
    model: Any,
    prompts: Any,
    edges: Iterable[str | Edge],
    *,
    ablation: Kind | None = None,
    ablate: bool = False,
    memory: int | str | None = None,
) -> Float[Tensor, "row pos d_vocab"]:
    """The logits with only these edges intact, or with only these ablated.

    What an edge is, and what replaces it, is defined in `circuits.edges.passes.patched_pass`.

    Args:
        model: any TransformerLens model whose residual stream is a sum.
        prompts: token ids [row pos], or `Prompts`, which may have corrupted counterparts.
        edges: names, such as "L0H1->L1H0<k>" or EAP-IG's "a0.h1->a1.h0<k>" (see
            `circuits.edges.wiring`).
        ablation: what replaces an ablated edge: "corrupted", the value on the corrupted prompt;
            "mean", the mean over all rows at each position; "zero". None: "corrupted" if there are
            corrupted prompts, else "mean".
        ablate: whether these edges are ablated, and all others intact.
        memory: bound on memory used in addition to the weights, such as "4GiB".

    Raises:
        InputError: tokens that are not the model's, edges that it does not have, another ablation,
            or a model whose parts cannot be computed one by one.

    Examples:
        >>> import interp_toolkit as it
        >>> from interp_toolkit.circuits import repeated_prompts, run_edges
        >>> model = it.load("toy:induction")
        >>> rows = repeated_prompts(model, rows=8, n_pos=24)
        >>> run_edges(model, rows, ["L0H1->L1H0<k>"], ablate=True).shape
        torch.Size([8, 24, 64])
    """
    prompts = prompts if isinstance(prompts, Prompts) else prompts_from_tokens(prompts, model)
    engine = PatchedModel(model)
    engine.check_on(prompts.tokens[:1])
    chosen = edges_named(engine.wiring.edges, edges)
    kind = kinds_for(prompts)[0] if ablation is None else ablation
    if kind not in kinds_for(prompts):
        raise InputError(f"ablation is {kind!r}; give one of {', '.join(kinds_for(prompts))}")
    at_once = prompts_at_once(engine, prompts.n_pos, parse_memory(memory))[0]
    every = torch.arange(len(prompts))
    values = AblationValue(kind, engine, prompts, every, at_once)
    parts = []
    for rows in torch.split(every, at_once):
        whole = engine.whole(prompts.tokens[rows])
        if ablate:
            parts.append(engine.logits(whole, values(rows), chosen))
        else:
            start, of_a_pass = whole.trace.writes[0], kind == "corrupted"
            alone = SubcircuitPass(engine, start, values(rows), of_a_pass=of_a_pass)
            parts.append(alone.logits(chosen))
    return torch.cat(parts)


def edges_named(all_edges: Collection[Edge], named: Iterable[str | Edge]) -> list[Edge]:
    """The edges of these names; raises InputError for one that the model does not have."""
    by_name = {name: edge for edge in all_edges for name in (edge.name, edge.eap_name)}
    chosen: dict[Edge, None] = {}
    for one in [named] if isinstance(named, str) else named:
        name = one.name if isinstance(one, Edge) else str(one)
        if name not in by_name:
            near = difflib.get_close_matches(name, by_name, n=3, cutoff=0.5)
            raise InputError(
                f"the model has no edge {name}; "
                + (
                    f"did you mean {', '.join(near)}?"
                    if near
                    else f"an edge is {next(iter(by_name))}"
                )
            )
        chosen[by_name[name]] = None
    return list(chosen)
