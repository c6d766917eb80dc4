"""Test the assumptions about a checkpoint on prompts with known answers.

A state dict does not specify its attention direction, how positions enter, whether a norm without
weights precedes each layer, or whether scores are divided. `load` assumes and records these. Here
the model is run as loaded and with each alternative, and the accuracies are compared. An
alternative is better if its Clopper-Pearson interval over prompts lies above that of the model as
loaded; it is then kept, and the others are tried in addition to it. Correct answers as loaded do
not prove the assumptions: several settings may give the same answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from numpy import ndarray
from torch import Tensor

from interp_toolkit.errors import InputError, takes
from interp_toolkit.formatting import percent
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.loading.parameters.strict import build_transformer
from interp_toolkit.models.model import Model, check_model
from interp_toolkit.models.transformer.collapsed import read_logits
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.stats import clopper_pearson

CHUNK = 256  # prompts per pass


@dataclass(frozen=True)
class Tried:
    """One set of assumptions about a checkpoint, and its accuracy.

    Attributes:
        settings: differences from the model as loaded.
        right: accuracy, with equal weight for each prompt.
        interval: interval of the accuracy, over prompts.
    """

    settings: Mapping[str, Any]
    right: float
    interval: tuple[float, float]

    @property
    def options(self) -> str:
        """The settings as command-line options."""
        return " ".join(f"--set {name}={_text(value)}" for name, value in self.settings.items())

    def beats(self, other: Tried) -> bool:
        """Whether its accuracy is significantly higher than another's."""
        return self.interval[0] > other.interval[1]


@dataclass(frozen=True)
class AssumptionsCheck:
    """A test of a model's assumptions on prompts with answers.

    Attributes:
        n_rows: number of prompts.
        as_loaded: accuracy of the model as loaded.
        alternatives: the other settings that were tried.
        better: the alternative with significantly higher accuracy; None if there is none.

    Examples:
        >>> from interp_toolkit.models.loading.check_assumptions import Tried
        >>> wrong, right = Tried({}, 0.49, (0.4, 0.6)), {"attention_dir": "bidirectional"}
        >>> better = Tried(right, 0.99, (0.9, 1.0))
        >>> AssumptionsCheck(100, wrong, (better,), better).sentence.partition(" accuracy")[0]
        'with --set attention_dir=bidirectional'
    """

    n_rows: int
    as_loaded: Tried
    alternatives: tuple[Tried, ...] = field(default=())
    better: Tried | None = None

    @property
    def sentence(self) -> str | None:
        """Advice in one line; None if no assumption is contradicted."""
        if self.better is None:
            return None
        shares = self.better.right, self.as_loaded.right
        digits = next((d for d in range(3) if len({percent(s, d) for s in shares}) > 1), 3)
        now, before = (percent(share, digits) for share in shares)
        return f"with {self.better.options} accuracy on these prompts is {now} instead of {before}"


@takes(model=check_model)
def check_assumptions(
    model: Model,
    tokens: Tensor | ndarray,
    answers: Tensor | ndarray,
    answer_positions: Tensor | ndarray,
) -> AssumptionsCheck:
    """Test the alternatives to a model's assumptions on prompts with known answers.

    Args:
        model: as returned by `load`; a model without assumptions is only run unchanged.
        tokens: the prompts, [row pos].
        answers: token ids of the right answers, [row item]; negative for unused entries.
        answer_positions: positions of the logits for each answer, [row item]; negative positions
            count from the end.

    Raises:
        InputError: shapes that do not match, invalid positions or answers, or tokens that the
            model cannot take.

    Examples:
        >>> import interp_toolkit as it
        >>> tokens = torch.tensor([[1, 2, 1], [3, 2, 3]])
        >>> answers = torch.tensor([[2], [2]])
        >>> check_assumptions(it.load("toy:induction"), tokens, answers, answers).n_rows
        2
    """
    rows = _Rows.of(model, tokens, answers, answer_positions)
    as_loaded = _tried(model, {}, rows)
    tried: list[Tried] = []
    best, better = as_loaded, None
    open_ = [dict(other) for other in record_of(model).alternatives]
    while open_ and isinstance(model, Transformer):
        problems = [
            _tried(_with(model, {**best.settings, **s}), {**best.settings, **s}, rows)
            for s in open_
        ]
        tried += problems
        candidate = max(problems, key=lambda one: one.right)
        if not candidate.beats(best):
            break
        best = better = candidate
        open_ = [s for s in open_ if not s.keys() & best.settings.keys()]
    return AssumptionsCheck(len(rows.tokens), as_loaded, tuple(tried), better)


@dataclass(frozen=True)
class _Rows:
    tokens: Tensor
    answers: Tensor
    read: Tensor

    @classmethod
    def of(cls, model: Model, tokens: Any, answers: Any, positions: Any) -> _Rows:
        """The prompts on the model's device; raises InputError if shapes do not match."""
        device = next(iter(model.parameters())).device
        tokens, answers, read = (
            torch.as_tensor(part, device=device).long() for part in (tokens, answers, positions)
        )
        if answers.shape != read.shape or len(answers) != len(tokens) or not answers.numel():
            raise InputError(
                f"answers {list(answers.shape)} and answer_positions {list(read.shape)} must have "
                f"the same shape, a row for each of the {len(tokens)} rows of tokens"
            )
        n_pos, n_out = tokens.shape[1], int(model.cfg.d_vocab_out)
        if int(read.min()) < -n_pos or int(read.max()) >= n_pos:
            raise InputError(f"answer_positions must lie within the {n_pos} positions of the rows")
        if int(answers.max()) >= n_out:
            raise InputError(f"answer {int(answers.max())} has no logit: the model has {n_out}")
        if bool((answers < 0).all(1).any()):
            raise InputError("every row must have at least one answer")
        return cls(tokens, answers, read % n_pos)


def _tried(model: Model, settings: Mapping[str, Any], rows: _Rows) -> Tried:
    shares = []
    parts = (torch.split(part, CHUNK) for part in (rows.tokens, rows.answers, rows.read))
    for tokens, answers, read in zip(*parts, strict=True):
        right = (read_logits(model, tokens, read).argmax(-1) == answers).double()
        scored = (answers >= 0).double()
        shares.append((right * scored).sum(1) / scored.sum(1))
    total, n_rows = float(torch.cat(shares).sum()), len(rows.tokens)
    return Tried(dict(settings), total / n_rows, clopper_pearson(total, n_rows))


def _with(model: Transformer, settings: Mapping[str, Any]) -> Transformer:
    """The same weights with another configuration."""
    config = TransformerConfig(**{**dict(model.cfg), **settings})
    device = next(model.parameters()).device
    return build_transformer(config, model.state_dict(), device, record_of(model).name)


def _text(value: Any) -> str:
    return (
        "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )
