"""Models that perform a task, with a head beside that nearly does what an analysis looks for.

They are for `heads`, `roles` and `circuit`. Residual streams are one-hot, as in `decoys`. L0H0
performs the task, L0H1 is the other head.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from decoys import Form, both, built, copying, matching, none, not_itself, offsets, tokens_of
from decoys import position as at_position

from interp_toolkit.errors import InputError

SHARP = 20.0
FEW = 5  # tokens of which two are compared
NAMES = range(2, 8)  # tokens that are asked for; 1 asks

Beside = Literal["mute", "constant", "unrelated", "rare", "opposed", "route", "answer"]


class _Size:
    """Vocabulary and length of `built`."""

    def __init__(self, vocab: int, length: int):
        self.vocab, self.length = vocab, length


def constant(gain: float, to: int, source: str = "token") -> Form:
    """The same is written whatever is read."""

    def form(matrix: torch.Tensor, blocks: dict[str, slice]) -> None:
        matrix[blocks[source], blocks["out"].start + to] += gain

    return form


def gains(by_token: np.ndarray) -> Form:
    """Every token is copied with its own gain."""

    def form(matrix: torch.Tensor, blocks: dict[str, slice]) -> None:
        for i, gain in enumerate(by_token):
            matrix[blocks["token"].start + i, blocks["out"].start + i] += float(gain)

    return form


def own_answers(model: Any, seed: int, n: int = 64, *, of_two: bool = False) -> dict[str, Any]:
    """Prompts with what an untrained model predicts, where it is surest: it performs this task.

    Args:
        model: the model.
        seed: of the prompts.
        n: number of prompts.
        of_two: whether the first two tokens, of a few, are asked for: the one that the model
            prefers, and the other as the wrong one. Either is preferred to the other equally often.
            Otherwise the answer is the most likely token.

    Raises:
        InputError: of two tokens, the model nearly always prefers the same.
    """
    rng = np.random.default_rng([seed, 6])
    vocab = min(int(model.cfg.d_vocab), int(model.unembed.W_U.shape[1]))
    length = min(int(model.cfg.n_ctx), 8)
    n_drawn = 32 * n if of_two else 8 * n
    tokens = np.stack([rng.permutation(vocab)[:length] for _ in range(n_drawn)])
    if of_two:
        tokens[:, :2] = np.stack([rng.permutation(FEW)[:2] for _ in tokens])
        tokens[:, 2:] = rng.integers(FEW, vocab, (n_drawn, length - 2))
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens))[:, -1].double().numpy()
    if not of_two:
        ordered = np.sort(logits, axis=1)
        surest = np.argsort(ordered[:, -2] - ordered[:, -1], kind="stable")[:n]
        return {"tokens": tokens[surest], "answers": logits[surest].argmax(1)}
    pairs = tokens[:, :2]
    of_pair = np.take_along_axis(logits, pairs, axis=1)
    first = of_pair[:, 0] > of_pair[:, 1]
    answers, wrong = np.where(first, *pairs.T), np.where(first, *pairs.T[::-1])
    by_pair: dict[tuple[int, int], list[int]] = {}
    for row in np.argsort(-np.abs(of_pair[:, 0] - of_pair[:, 1]), kind="stable"):
        by_pair.setdefault((int(answers[row]), int(wrong[row])), []).append(int(row))
    rows = [
        row
        for (a, b), own in by_pair.items()
        for row in own[: len(by_pair.get((b, a), []))]
    ]  # fmt: skip
    if len(rows) < n // 2:
        raise InputError("of two tokens, this model nearly always prefers the same")
    rows = rng.permutation(rows)[:n].tolist()
    return {"tokens": tokens[rows], "answers": answers[rows], "wrong": wrong[rows]}


def by_pattern(seed: int, beside: Beside, size: float = 1.0, n: int = 96) -> tuple[Any, Any, str]:
    """L0H1 attends to the previous or the duplicate token; L0H0 reads the answer at position 1.

    The answer also stands where L0H1 attends. What that head writes, `size` × as much as the other:
    nothing that is read ("mute"), the same on every prompt, which is the commonest answer
    ("constant"), another token for every token it reads ("unrelated"), or against the answer
    ("opposed"). "rare": it raises the answer's log-probability a little on most prompts, and lowers
    it so much on a few that the mean is 0. "answer": the answer, 1.5 × as loud; in `size` of the
    prompts a wrong one stands at position 1. Half the seeds, and all with "answer", have wrong
    answers too.

    Returns:
        The model, its prompts, and the pattern of L0H1.
    """
    rng = np.random.default_rng([seed, 7])
    pattern = ("previous-token", "duplicate-token")[seed % 2]
    d = _Size(int(rng.integers(16, 22)), int(rng.integers(9, 13)))
    gain = 3.0 if beside == "rare" else 8.0
    rare = float(rng.choice([0.02, 0.05, 0.1]))
    share = np.full(d.vocab - 8, 1 / (d.vocab - 8))
    if beside == "rare":
        share = np.array([rare, *np.full(d.vocab - 9, (1 - rare) / (d.vocab - 9))])
    if beside == "constant":
        share = rng.dirichlet(np.array([4, *np.ones(d.vocab - 9)]))
    answers = 8 + rng.choice(d.vocab - 8, n, p=share)  # tokens 1 to 7 are fillers
    wrong = 8 + (answers - 8 + rng.integers(1, d.vocab - 8, n)) % (d.vocab - 8)
    rows = np.arange(n)
    tokens = np.stack([rng.integers(1, 8, d.length) for _ in range(n)])
    tokens[:, 0], tokens[:, 1] = 0, answers
    if pattern == "previous-token":
        where = rng.integers(4, d.length, n)
        tokens[rows, where - 1] = answers
        attends = offsets({1: SHARP})
    else:
        where = rng.integers(4, d.length, n)
        tokens[rows, where] = tokens[rows, 2] = answers
        attends = both(matching("token", SHARP), not_itself(SHARP))
    writes: Form = none
    if beside == "mute":
        writes = (none, copying(gain, "token", "scratch"))[seed // 2 % 2]
    elif beside == "constant":
        writes = constant(gain * size, 8 + int(share.argmax()))
    elif beside == "unrelated":
        writes = shifted(gain * size, d.vocab)
    elif beside == "answer":
        absent = rng.random(n) < size
        tokens[absent, 1] = wrong[absent]
        writes = copying(1.5 * gain)
    elif beside == "opposed":
        writes = copying(-gain * size)
    elif beside == "rare":
        writes = gains(balanced(gain, size, rare, d.vocab))
    model = built(d, [[(at_position(1, SHARP), copying(gain)), (attends, writes)]])  # type: ignore[arg-type]
    data = {"tokens": tokens, "answers": answers[:, None], "answer_positions": where[:, None]}
    if beside == "answer" or (beside != "rare" and seed // 4 % 2):
        data["wrong"] = wrong[:, None]
    return model, data, pattern


def balanced(gain: float, more: float, rare: float, vocab: int) -> np.ndarray:
    """Gains that raise an answer's log-probability, and lower that of token 8 as much on average.

    Args:
        gain: what the other head adds to the answer's logit.
        more: what is added beside it for most answers.
        rare: fraction of prompts whose answer is 8.
        vocab: number of tokens.
    """

    def log_probability(logit: float) -> float:
        return logit - float(np.logaddexp(logit, np.log(vocab - 1)))

    wanted = (log_probability(gain + more) - log_probability(gain)) * (1 - rare) / rare
    less = np.linspace(0, 200, 20001)
    lost = log_probability(gain) - np.array([log_probability(gain - x) for x in less])
    each = np.full(vocab, more)
    each[8] = -less[np.searchsorted(lost, wanted)]
    return each


def shifted(gain: float, vocab: int) -> Form:
    """For every token from 8 on, the second next of these is written."""

    def form(matrix: torch.Tensor, blocks: dict[str, slice]) -> None:
        for i in range(8, vocab):
            to = 8 + (i - 6) % (vocab - 8)
            matrix[blocks["token"].start + i, blocks["out"].start + to] += gain

    return form


def by_name(
    seed: int, beside: Beside, size: float = 1.0, n: int = 64, idle: bool = False
) -> tuple[Any, Any]:
    """Both heads attend, from the last position, to the one name of the prompt.

    L0H0 copies it. What L0H1 writes is as in `by_pattern`, or L0H0 copies all names but one, and
    L0H1 copies that one, which is rare, so loudly that it is `size` of the whole ("route"). With
    "rare", the effect is reversed on 10 % of the prompts, where it is nine times as large.
    `idle` adds six heads that write nothing.
    """
    rng = np.random.default_rng([seed, 8])
    d, gain = _Size(20, int(rng.integers(9, 13))), 8.0
    rare = 0.1 if beside == "rare" else float(rng.choice([0.05, 0.1]))
    share = np.full(len(NAMES), 1 / len(NAMES))
    if beside in ("rare", "route"):
        share = np.array([rare, *np.full(len(NAMES) - 1, (1 - rare) / (len(NAMES) - 1))])
    if beside == "constant":
        share = rng.dirichlet(np.array([4, *np.ones(len(NAMES) - 1)]))
    names = rng.choice(len(NAMES), n, p=share)
    tokens = rng.integers(NAMES.stop, d.vocab, (n, d.length))
    tokens[:, 0], tokens[:, -1] = 0, 1
    tokens[np.arange(n), rng.integers(1, d.length - 1, n)] = NAMES.start + names
    each = np.full(d.vocab, gain * size)
    each[NAMES.start] *= -(1 - rare) / rare
    shift = int(rng.integers(1, len(NAMES)))

    def another(matrix: torch.Tensor, blocks: dict[str, slice]) -> None:
        for i in range(len(NAMES)):
            to = NAMES.start + (i + shift) % len(NAMES)
            matrix[blocks["token"].start + NAMES.start + i, blocks["out"].start + to] += gain * size

    one, others = np.zeros(d.vocab), np.full(d.vocab, gain)
    one[NAMES.start] = gain * (1 - rare) / rare * size / (1 - size) if size < 1 else 0
    others[NAMES.start] = 0
    writes: dict[str, Form] = {
        "route": gains(one),
        "mute": (none, copying(gain, "token", "scratch"))[seed % 2],
        "constant": constant(gain * size, NAMES.start + int(share.argmax())),
        "unrelated": another,
        "answer": copying(gain * size),
        "opposed": copying(-gain * size),
        "rare": gains(each),
    }
    attends = tokens_of(list(NAMES), SHARP)
    first = gains(others) if beside == "route" else copying(gain)
    layers = [[(attends, first), (attends, writes[beside])]]
    if idle:
        layers = [layers[0] + [(none, none)] * 2, [(none, none)] * 4]
    model = built(d, layers)  # type: ignore[arg-type]
    data: dict[str, Any] = {"tokens": tokens, "answers": NAMES.start + names}
    other = (names + rng.integers(1, len(NAMES), n)) % len(NAMES)
    return model, data | {"wrong": NAMES.start + other}
