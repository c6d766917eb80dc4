"""In-context advantage: how much better a model predicts tokens of a repeated sequence.

The in-context advantage is measured on prompts that repeat, in nats (Olsson et al. 2022,
"In-context Learning and Induction Heads"). It is the loss in the first period minus the loss at
positions whose next token followed the same token before, for each prompt. Losses may also fall
along a prompt for reasons unrelated to the context, such as flatter logits. The control is the loss
of the prompt's other tokens at the same positions, from the same logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.circuits.metrics.prompts import Prompts
from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import probe_tokens, run
from interp_toolkit.models.running.memory import (
    bytes_per_row,
    itemsize_of,
    parse_memory,
    rows_that_fit,
)
from interp_toolkit.state import once
from interp_toolkit.stats import estimate

LEAST_ADVANTAGE = 0.01  # nats; less is no task that a head could be responsible for
#: how far logits may move, of their largest, when a later token changes: rounding only
LEAK = 1e-4


@dataclass(frozen=True, eq=False)
class RepetitionLosses:
    """Losses (nats) and accuracy on each prompt that repeats.

    Attributes:
        loss_repeated: loss on next tokens that the context determines.
        loss_unrepeated: loss on next tokens in the first period.
        loss_others: loss on the prompt's other tokens, where the context determines the next
            token.
        accuracy_repeated: fraction of determined tokens that get the largest logit.
        losses: losses of the next token at each position where the context determines it; else NaN.
        rounding: bound of the rounding error of a difference of two losses, from the precision of
            the logits; a loss is the logarithm of a sum minus a logit, and both are rounded.
    """

    loss_repeated: Float[np.ndarray, " row"]
    loss_unrepeated: Float[np.ndarray, " row"]
    loss_others: Float[np.ndarray, " row"]
    accuracy_repeated: Float[np.ndarray, " row"]
    losses: Float[np.ndarray, "row pos"] = field(repr=False)
    rounding: Float[np.ndarray, " row"] = field(repr=False)

    @property
    def advantage(self) -> Float[np.ndarray, " row"]:
        """Loss in the first period minus loss on repeated tokens, nats."""
        nats: np.ndarray = self.loss_unrepeated - self.loss_repeated
        return nats

    def uses_repetition(self) -> bool:
        """Whether the model significantly uses repetition.

        The mean advantage must be at least LEAST_ADVANTAGE, with a confidence interval above zero.
        The same must hold for the loss of the prompt's other tokens minus that of the right one.
        """
        estimates = (estimate(self.advantage), estimate(self.loss_others - self.loss_repeated))
        return all(e.low > 0 and e.mean >= LEAST_ADVANTAGE for e in estimates)


def repetition_losses(
    model: Model, prompts: Prompts, memory: int | str | None = None
) -> RepetitionLosses:
    """Losses of a model on prompts that repeat.

    Args:
        model: any TransformerLens model.
        prompts: the prompts; those without repetition are left out.
        memory: bound for the run (see `models.running.memory`); only the logits of one batch are
            stored.

    Raises:
        InputError: `why_not_measurable` gives a reason, or no row fits in memory.
    """
    reason = why_not_measurable(model, prompts)
    if reason is not None:
        raise InputError(reason)
    parts = []
    for rows in row_batches(model, prompts, repeating_rows(prompts), 0, memory):
        logits = run(model, prompts.tokens[rows])
        assert logits is not None
        parts.append(losses_of_batch(logits, prompts, rows))
    return RepetitionLosses(
        *(
            np.concatenate([getattr(part, f.name) for part in parts])
            for f in fields(RepetitionLosses)
        )
    )


def why_not_measurable(model: Model, prompts: Prompts) -> str | None:
    """Why the in-context advantage cannot be measured here; None where it can."""
    n_rows = len(repeating_rows(prompts))
    if n_rows < 2:
        return (
            f"{'only one' if n_rows else 'none'} of the prompts contains a repeated sequence; the "
            "in-context advantage (lower loss on repeated tokens) needs at least 2 prompts with one"
        )
    return _why_not_predicting(model)


@once
def _why_not_predicting(model: Model) -> str | None:
    """Why the model's outputs are not predictions of the next token; None if they are."""
    if getattr(model.cfg, "attention_dir", "causal") == "bidirectional":
        return _AHEAD
    d_vocab = int(model.cfg.d_vocab)
    d_out = int(getattr(model.cfg, "d_vocab_out", d_vocab))
    tokens = probe_tokens(model)
    logits = run(model, tokens)
    if logits is None or logits.shape != (*tokens.shape, d_out) or d_out != d_vocab:
        return "the outputs are not next-token logits over the input vocabulary"
    if not bool(logits.isfinite().all()):
        return "the model's logits are not finite"
    tokens[:, -1] = (tokens[:, -1] + 1) % d_vocab
    moved = run(model, tokens)
    assert moved is not None
    change = float((moved - logits)[:, :-1].abs().max()) if tokens.shape[1] > 1 else 0.0
    return _AHEAD if change > LEAK * float(logits.abs().max()) else None


_AHEAD = "attention is bidirectional, so the model sees the next token; predicting it shows nothing"


def repeating_rows(prompts: Prompts) -> Int[Tensor, " row"]:
    """Indices of the prompts with both repeated and unpredictable next tokens."""
    both = prompts.repeated().any(1) & prompts.unrepeated().any(1)
    return both.nonzero()[:, 0]


def row_batches(
    model: Model,
    prompts: Prompts,
    rows: Int[Tensor, " row"],
    n_stored: int,
    memory: int | str | None,
) -> Sequence[Int[Tensor, " _"]]:
    """These prompts, in batches whose full forward pass fits in memory.

    Args:
        model: any TransformerLens model.
        prompts: all prompts.
        rows: indices of those to run.
        n_stored: numbers that are stored of each prompt during the pass.
        memory: bytes, or a size such as "4GiB".

    Raises:
        InputError: not even one prompt fits.
    """
    itemsize = itemsize_of(model)
    row_bytes = bytes_per_row(model.cfg, prompts.n_pos, itemsize, logits=True, n_stored=n_stored)
    size = rows_that_fit(parse_memory(memory), row_bytes, prompts.n_pos)
    return torch.split(rows, size)


def losses_of_batch(
    logits: Float[Tensor, "batch pos d_vocab"], prompts: Prompts, rows: Int[Tensor, " batch"]
) -> RepetitionLosses:
    """Losses of a batch, from its logits; one prompt at a time, so that copies are small."""
    repeated, unrepeated = (
        mask[rows, :-1].to(logits.device) for mask in (prompts.repeated(), prompts.unrepeated())
    )
    means, losses = [], torch.full(prompts.tokens[rows].shape, torch.nan, dtype=torch.float64)
    eps = torch.finfo(logits.dtype).eps
    for i, row in enumerate(rows.tolist()):
        tokens = prompts.tokens[row].to(logits.device)
        segment = torch.unique(tokens[prompts.first : prompts.first + int(prompts.periods[row])])
        targets, scored = tokens[1:], repeated[i]
        own = logits[i, :-1].to(torch.promote_types(logits.dtype, torch.float32))
        total = own.logsumexp(-1)
        loss = total - own.gather(-1, targets[:, None])[:, 0]
        of_segment = total[scored][:, None] - own[scored][:, segment]
        of_others = of_segment[segment != targets[scored][:, None]]
        right = (own[scored].argmax(-1) == targets[scored]).to(loss)
        # each of the two losses is rounded in both of its terms
        rounding = 2 * eps * (total.abs() + (total - loss).abs())
        each = (loss[scored], loss[unrepeated[i]], of_others, right, rounding.max())
        means.append(torch.stack([values.mean() for values in each]).double())
        losses[i, :-1][scored.cpu()] = loss[scored].double().cpu()
    of_repeated, of_unrepeated, of_other, accuracy, roundings = (
        torch.stack(means, dim=1).cpu().numpy()
    )
    return RepetitionLosses(
        of_repeated, of_unrepeated, of_other, accuracy, losses.numpy(), roundings
    )
