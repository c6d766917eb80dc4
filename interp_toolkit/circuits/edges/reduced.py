"""A circuit of a model as a model of its own, for `--keep-circuit FILE`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch

from interp_toolkit._version import __version__
from interp_toolkit.circuits.edges.passes.ablation_value import AblationValue
from interp_toolkit.circuits.edges.passes.edge_ablation import SubcircuitPass, prompts_at_once
from interp_toolkit.circuits.edges.passes.patched_pass import PatchedModel
from interp_toolkit.circuits.edges.run import edges_named
from interp_toolkit.circuits.edges.wiring import Edge
from interp_toolkit.circuits.metrics.prompts import Prompts, prompts_from_tokens
from interp_toolkit.errors import InputError, a_kind
from interp_toolkit.models.about.record import digest_of_tokens, record_of, set_record
from interp_toolkit.models.running.forward import device_of
from interp_toolkit.models.running.memory import parse_memory
from interp_toolkit.models.transformer.circuit import CircuitTransformer, described
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.models.weights.precision import agrees

CHECKED = 4  # prompts on which the model is compared with the circuit's pass


def circuit_model(
    model: Any, prompts: Any, edges: Iterable[str | Edge], *, memory: int | str | None = None
) -> CircuitTransformer:
    """The circuit of these edges as a model; `save` writes it, and `load` reads it.

    All other edges have the mean of their output over the prompts at each position, so the model
    takes prompts of at most as many positions. That of corrupted prompts depends on the prompt and
    cannot be part of a model.

    Args:
        model: a `Transformer` (a checkpoint file or a toy) with learned attention.
        prompts: token ids [row pos], or `Prompts`, over which means are taken.
        edges: names such as "L0H1->L1H0<k>"; see `run_edges`.
        memory: bound on memory used in addition to the weights.

    Raises:
        InputError: another class of model, edges that it does not have, or a model whose circuit
            cannot be written as a `CircuitTransformer`.

    Examples:
        >>> import interp_toolkit as it
        >>> from interp_toolkit.circuits import circuit_model, repeated_prompts
        >>> model = it.load("toy:induction")
        >>> prompts = repeated_prompts(model, rows=8, n_pos=24)
        >>> circuit_model(model, prompts, ["input->L1H0<v>", "L1H0->logits"]).cfg.n_ctx
        24
    """
    check_reducible(model)
    prompts = prompts if isinstance(prompts, Prompts) else prompts_from_tokens(prompts, model)
    engine = PatchedModel(model)
    chosen = edges_named(engine.wiring.edges, edges)
    at_once = prompts_at_once(engine, prompts.n_pos, parse_memory(memory))[0]
    every = torch.arange(len(prompts))
    reference = AblationValue("mean", engine, prompts, every, at_once)(every[:1])
    cfg = model.cfg
    weights = dict(model.state_dict())
    for name in list(weights):
        if name.rpartition(".")[2] in ("_W_K", "_W_V", "_b_K", "_b_V"):
            group = cfg.n_heads // cfg.n_key_value_heads
            copies = weights.pop(name).repeat_interleave(group, dim=0)
            weights[name.replace("._", ".")] = copies
    if "pos_embed.W_pos" in weights:
        weights["pos_embed.W_pos"] = weights["pos_embed.W_pos"][: prompts.n_pos]
    weights["reference"] = torch.stack(list(reference))
    own = {"n_ctx": prompts.n_pos, "use_attn_result": True, "n_key_value_heads": None}
    record = record_of(model)
    about = {
        "edges": [edge.name for edge in chosen],
        "edges_of_model": len(engine.wiring.edges),
        "ablation": "mean",
        "prompts": prompts.source,
        "rows": len(prompts),
        "prompts_sha256": digest_of_tokens(prompts.tokens),
        "model": record.name,
        "model_sha256": record.sha256,
        "version": __version__,
    }
    reduced = CircuitTransformer(cfg.model_copy(update=own), about)
    reduced.to(cfg.dtype)
    reduced.load_state_dict({name: t.detach().clone() for name, t in weights.items()})
    reduced.to(device_of(model)).eval()
    own_record = replace(
        record,
        name=f"circuit of {record.name}",
        kind="live",
        path=None,
        sha256=None,
        config=reduced.cfg.model_dump(mode="json"),
        notes=(described(about),),
    )
    set_record(reduced, own_record)
    tokens = prompts.tokens[:CHECKED]
    passes = SubcircuitPass(engine, engine.embedded(tokens), reference)
    with torch.no_grad():
        logits = reduced(tokens.to(device_of(model)))
    if not agrees(logits, passes.logits(chosen)):
        raise InputError("this model's circuit cannot be written as a model: its logits differ")
    return reduced


def check_reducible(model: Any) -> None:
    """Raise InputError for a model that `circuit_model` does not take."""
    if not isinstance(model, Transformer) or isinstance(model, CircuitTransformer):
        raise InputError(
            f"a circuit is kept as a model of a checkpoint file or a toy, not of {a_kind(model)}; "
            "--graph writes its edges"
        )
    if model.cfg.mixing is not None or model.cfg.positional_embedding_type == "shortformer":
        raise InputError("a circuit is kept as a model only of learned attention, not shortformer")
