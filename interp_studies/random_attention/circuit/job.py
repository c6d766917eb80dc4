"""One frozen-qk model on retrieval, and its induction circuit before and after training.

The circuit of the paper's figure 3 has two parts: a head of the first layer in which each value
attends to its key, the previous token, and a head of a later layer in which the queried key attends
to the value after its earlier occurrence. On prompts with the largest number of pairs

- every head is scored by the detectors of both patterns, and by the previous-token and induction
  detectors, at initialization and after training
- each head, and each part as a group, is mean-ablated, and the accuracy at the query is measured
  for each prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_studies.jobs.attempt import Outcome
from interp_studies.recipe_settings import as_read
from interp_studies.train_seed import train_seed
from interp_toolkit.circuits.heads.detectors import Detector, induction, previous_token
from interp_toolkit.circuits.heads.scores import HeadScores, detect
from interp_toolkit.circuits.metrics.replacement import capture
from interp_toolkit.models.model import Head
from interp_toolkit.models.running.forward import run
from interp_toolkit.models.running.interventions import ablate
from interp_toolkit.models.transformer.collapsed import at_positions
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.registry import find
from interp_toolkit.results import head_name
from interp_toolkit.stats import estimate
from interp_toolkit.toys.random_attention.tasks import Retrieval, TaskRows
from interp_toolkit.training.engine.metrics import final_score_of
from interp_toolkit.training.engine.run_files import end_run
from interp_toolkit.training.tasks.problem import TaskProblem

RECIPE, VARIANT = "retrieval", "frozen-qk"
ROWS_SEED = 2**32  # of the rows that are looked at, apart from those of training and test
DIGITS = 3  # of attention, in a figure


def value_to_key(
    tokens: Int[np.ndarray, " pos"], sought: Int[np.ndarray, " pos"]
) -> Bool[np.ndarray, "pos pos"]:
    """For each value: its key, one position before; the prompt is `k v k v ... q`."""
    mask = previous_token(tokens, sought)
    mask[::2] = False
    return mask


def key_to_value(
    tokens: Int[np.ndarray, " pos"], sought: Int[np.ndarray, " pos"]
) -> Bool[np.ndarray, "pos pos"]:
    """For the last token: the token after its earlier occurrence."""
    mask = induction(tokens, sought)
    mask[:-1] = False
    return mask


PREVIOUS = Detector(
    "value-to-key",
    "a value attends to its key, one token before",
    value_to_key,
    by_token=False,
    shifts="back",
)
RETRIEVING = Detector(
    "query-to-value",
    "the asked key attends to the value after its earlier occurrence",
    key_to_value,
    others=(-1,),
)
GENERAL = ("previous-token", "induction")


def frozen_circuit(
    *,
    folder: Path,
    settings: Mapping[str, Any],
    scored_rows: int,
    ablated_rows: int,
    seed: int,
    device: str,
) -> Outcome:
    """Train one seed, score its heads before and after training, and ablate them.

    Args:
        folder: folder of the training run.
        settings: settings that differ from the retrieval recipe's defaults.
        scored_rows: number of prompts on which heads are scored.
        ablated_rows: number of prompts on which heads are ablated.
        seed: random seed of the model and its batches.
        device: device of the training.
    """
    config, trained = train_seed(RECIPE, settings, seed, device, folder)
    end_run(folder)
    before, after = TaskProblem(config, seed).model, trained.model
    scored, ablated = (full_rows(config.task, n).to(device) for n in (scored_rows, ablated_rows))
    was, now = scores(before, scored), scores(after, scored)
    parts = parts_of(now)
    shown = [best(now, PREVIOUS.name, first=True), best(now, RETRIEVING.name, first=False)]
    values: dict[str, Any] = {
        "seed": seed,
        "accuracy": final_score_of(trained.training).value,
        "before": was,
        "after": now,
        "parts": parts,
        "ablations": ablations(after, ablated, parts),
        "tokens": scored.tokens[0].tolist(),
        "patterns": [
            {"head": head_name(*head), "when": when, "pattern": pattern}
            for when, model in (("before", before), ("after", after))
            for head, pattern in _patterns(model, scored, shown)
        ],
        "curve": trained.training["curve"],
    }
    return Outcome(values, trained.model, trained.task, trained.training)


def settings_of(
    preset: str, differs: Mapping[str, Any], given: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The recipe's preset for frozen-qk, with the study's changes and those of the user.

    Raises InputError if the user's settings do not fit.
    """
    settings = dict(find("recipes", RECIPE).presets[preset])
    settings.pop("seeds", None)
    read = as_read(RECIPE, VARIANT, preset, differs, given or {})
    return {**settings, "variant": VARIANT, **differs, **read}


def full_rows(task: Retrieval, n_rows: int) -> TaskRows:
    """Prompts with the largest number of pairs, so without padding."""
    generator = torch.Generator().manual_seed(ROWS_SEED)
    drawn: list[TaskRows] = []
    while sum(len(rows.tokens) for rows in drawn) < n_rows:
        rows = task.draw(n_rows * task.most_pairs, generator)
        drawn.append(rows.take(rows.read[:, 0] == 2 * task.most_pairs))
    return TaskRows(*(torch.cat(parts)[:n_rows] for parts in zip(*drawn, strict=True)))


def scores(model: Transformer, rows: TaskRows) -> list[dict[str, Any]]:
    """The score of every head under every detector, on prompts of the task."""
    scored: HeadScores = detect(model, rows.tokens, [PREVIOUS, RETRIEVING, *GENERAL])
    kept = ("detector", "layer", "head", "score", "uniform", "p_adjusted", "detected")
    return [{key: row[key] for key in kept} for row in scored.to_frame().to_dict("records")]


def parts_of(scored: Sequence[Mapping[str, Any]]) -> dict[str, list[Head]]:
    """The detected heads by part: value-to-key in the first layer, key-to-value in later ones."""
    detected = [s for s in scored if s["detected"]]
    return {
        PREVIOUS.name: [
            Head(s["layer"], s["head"])
            for s in detected
            if s["detector"] == PREVIOUS.name and s["layer"] == 0
        ],
        RETRIEVING.name: [
            Head(s["layer"], s["head"])
            for s in detected
            if s["detector"] == RETRIEVING.name and s["layer"] > 0
        ],
    }


def best(scored: Sequence[Mapping[str, Any]], detector: str, *, first: bool) -> Head:
    """The head with the largest score, in the first layer or in a later one."""
    candidates = [s for s in scored if s["detector"] == detector and (s["layer"] == 0) == first]
    top = max(candidates, key=lambda s: s["score"])
    return Head(top["layer"], top["head"])


def ablations(
    model: Transformer, rows: TaskRows, parts: Mapping[str, Sequence[Head]]
) -> list[dict[str, Any]]:
    """The loss of accuracy from ablating each head, and each part.

    Args:
        model: the trained model.
        rows: prompts of the task.
        parts: heads by part; a part without heads is skipped.
    """
    cfg = model.cfg
    single = [Head(layer, head) for layer in range(cfg.n_layers) for head in range(cfg.n_heads)]
    groups: list[tuple[str, Sequence[Head]]] = [(head_name(*head), [head]) for head in single]
    groups += [(f"all {name} heads", heads) for name, heads in parts.items() if heads]
    intact = _right(model, rows)
    lost = []
    for name, heads in groups:
        with ablate(model, heads, "mean", reference=rows.tokens):
            without = _right(model, rows)
        effect = estimate(intact - without)
        lost.append(
            {
                "without": name,
                "intact": float(intact.mean()),
                "accuracy": float(without.mean()),
                "lost": effect.mean,
                "low": effect.low,
                "high": effect.high,
            }
        )
    return lost


def _right(model: Transformer, rows: TaskRows) -> Float[np.ndarray, " row"]:
    logits = run(model, rows.tokens)
    assert logits is not None
    named = at_positions(logits, rows.read).argmax(-1)
    right: np.ndarray = (named == rows.answer)[:, 0].double().cpu().numpy()
    return right


def _patterns(
    model: Transformer, rows: TaskRows, heads: Sequence[Head]
) -> list[tuple[Head, list[list[float]]]]:
    """The attention of heads on the first prompt, [query][key]."""
    names = [f"blocks.{layer}.attn.hook_pattern" for layer, _ in heads]
    _, seen = capture(model, rows.tokens[:1], names)
    patterns: list[Tensor] = [
        seen[name][0, head].double() for name, (_, head) in zip(names, heads, strict=True)
    ]
    return [
        (head, [[round(x, DIGITS) for x in row] for row in pattern.tolist()])
        for head, pattern in zip(heads, patterns, strict=True)
    ]
