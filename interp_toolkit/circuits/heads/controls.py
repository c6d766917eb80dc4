"""Attention patterns to detect, and their matched controls, as lists of (row, query, key).

The score of a set of (row, query, key) triples is the mean over its queries of the attention to its
keys. Every detector has one target set and up to four families of controls. Each family changes one
property of the targets:

- shifted: the same queries, with keys a few steps away. If all shifts go one way (detectors by
  position), all sets have exactly the same queries. A head that attends to a window of keys has a
  high score on this control.
- relabelled (detectors by token that accept another token): keys as if the query had another token,
  by permutations of the alphabet without fixed points. A head that relates tokens, but not each to
  itself, has a high score.
- displaced (detectors by token): the same query and key positions with other tokens: in the same
  row with its tokens shuffled or, for answers, in another row. A head that attends to a position or
  a distance has a high score.
- other queries (except for answers, and for patterns that every query has): the same keys from the
  other queries of the row; for every target the mean over them. A head that attends to a position,
  a separator or a class of tokens from every query has a high score.

Triples that are also targets are left out of controls. The score of uniform attention over the
visible keys is computed for every set and subtracted later.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from interp_toolkit.circuits.heads.detectors import Detector
from interp_toolkit.circuits.metrics.prompts import Prompts
from interp_toolkit.errors import InputError

SHIFTS = (4, 16)  # bounds of the shifted controls of a detector by position (a third of the row)
SHIFTS_BY_TOKEN = 6  # shifted controls in either direction, of a detector by token
RELABELLINGS = 24
FEWEST_SHUFFLED = 3  # positions; with fewer, positions with answers are shuffled too
SMALL_ALPHABET = 6  # alphabet size up to which all permutations without fixed points are listed
SHARED_ALPHABET = 0.5  # mean fraction of all tokens per row, from which rows share relabellings

Held = Bool[np.ndarray, "row query key"]  # whether each triple is a target
Entries = Int[np.ndarray, "3 _"]  # triples: row, query, key


@dataclass(frozen=True, eq=False)
class Family:
    """Target and controls of one detector and one kind of control.

    Attributes:
        detector: name of the detector.
        kind: "shifted", "relabelled", "displaced" or "other queries".
        target: index of the target set.
        controls: indices of the control sets.
        compared: index of the set of targets that have a control, for paired comparisons by row.
        partner: for displaced controls, the row of each row's control.
        spread: factor on the variance of the controls (see `_relabelled`).
    """

    detector: str
    kind: str
    target: int
    controls: Sequence[int]
    compared: int | None = None
    partner: Int[np.ndarray, " row"] | None = None
    spread: float = 1.0


@dataclass(frozen=True, eq=False)
class MatchedControls:
    """Target and control sets of every detector, as input of the streaming pass.

    Attributes:
        tokens: rows to run: the prompts, and rows with shuffled tokens for displaced controls.
        entries: triples of all sets, sorted by row, then by set.
        which_set: index of each triple's set.
        weights: weight of each triple in its set's sum.
        families: targets with their controls.
        n_sets: number of sets.
        n_queries: number of queries of each set in each row; for weighted sets the sum of weights.
        causal: whether keys after the query are hidden.
    """

    tokens: Int[torch.Tensor, "row pos"]
    entries: Entries
    which_set: Int[np.ndarray, " entry"]
    weights: Float[np.ndarray, " entry"]
    families: Sequence[Family]
    n_sets: int
    n_queries: Float[np.ndarray, "row set"]
    causal: bool

    def uniform(self, window: int | None = None) -> Float[np.ndarray, "row set"]:
        """Uniform attention over visible keys to each set, summed over queries."""
        row, query, key = self.entries
        n_pos = self.tokens.shape[1]
        n_visible = np.minimum(query + 1, window or n_pos) if self.causal else n_pos
        share = np.where((query - key < window) if window else True, 1 / n_visible, 0.0)
        sums = np.zeros(self.n_queries.shape)
        np.add.at(sums, (row, self.which_set), share * self.weights)
        return sums


def matched_controls(
    prompts: Prompts,
    detectors: Sequence[Detector],
    *,
    causal: bool,
    d_model: int,
    seed: int = 0,
) -> MatchedControls:
    """Target sets of these detectors on these prompts, and their matched controls.

    Args:
        prompts: prompts to search for the patterns.
        detectors: detectors; one without targets in the prompts has no scores.
        causal: whether keys after the query are hidden.
        d_model: width of the model, which determines how similar embeddings are by chance.
        seed: seed of the controls.

    Raises:
        InputError: a detector's mask does not fit the prompts.
    """
    tokens, n_pos = prompts.tokens.numpy(), prompts.n_pos
    rng = np.random.default_rng(seed)
    relabelled = _relabelled(tokens, prompts, rng)
    by_token = any(detector.by_token for detector in detectors)
    shuffled = _shuffled_rows(tokens, prompts, rng) if by_token else tokens[:0]
    collector = _Collector(np.concatenate([tokens, shuffled]))
    for detector in detectors:
        sought = sought_tokens(detector, prompts)
        target = _target_entries(detector, tokens, sought, causal)
        held = _held(target, len(collector.tokens), n_pos)
        if detector.by_token:
            own = shuffled if detector.sought == "own" else sought
            entries = _target_entries(detector, shuffled, own, causal)
            held[len(tokens) :] = _held(entries, len(shuffled), n_pos)
        shifted = [_shifted(target, step, held, causal) for step in _steps(detector, n_pos)]
        if detector.shifts != "both":
            target, shifted = _same_queries(target, shifted)
        number = collector.add(target)
        collector.family(detector, "shifted", number, shifted)
        if detector.by_token and detector.seeks:
            other = relabelled[detector.sought]
            entries_by_label = [
                _without(_target_entries(detector, tokens, r, causal), held) for r in other.rows
            ]
            spread = other.spread * (1 + other.n_tokens / d_model)
            collector.family(detector, "relabelled", number, entries_by_label, spread=spread)
        if detector.by_token:
            partner = len(tokens) + np.arange(len(tokens))
            if detector.sought == "answer":  # shuffled rows have no answers
                partner = _cycle(np.arange(len(tokens)), rng)
            moved = np.stack([partner[target[0]], target[1], target[2]])
            free = ~held[tuple(moved)]
            collector.pairs(detector, "displaced", number, target[:, free], moved[:, free], partner)
        if detector.sought == "own":
            _add_other_queries(collector, detector, number, target, held, causal)
    return collector.collected(causal)


def _add_other_queries(
    collector: _Collector,
    detector: Detector,
    number: int,
    target: Entries,
    held: Held,
    causal: bool,
) -> None:
    """Add the control "other queries": for each target, the mean over other queries of its key."""
    n_pos = held.shape[1]
    key_counts = np.zeros((len(held), n_pos))
    np.add.at(key_counts, (target[0], target[2]), 1)
    others = (key_counts > 0)[:, None, :] & ~held
    if causal:
        others &= np.tri(n_pos, dtype=np.bool_)
        others[:, 0] = False  # the first query has nothing else to attend to
    itself = np.eye(n_pos, dtype=np.bool_)
    beside = others & ~itself  # a key's own query counts only if no other sees the key
    others = np.where(beside.any(1, keepdims=True), beside, others)
    n_others = others.sum(1)  # row key
    if not n_others.any():
        return  # every query has the pattern, so there is no such control
    compared = target[:, n_others[target[0], target[2]] > 0]
    row, query, key = np.nonzero(others)
    weights = key_counts[row, key] / n_others[row, key]
    others_of = np.stack([row, query, key])
    collector.pairs(detector, "other queries", number, compared, others_of, weights=weights)


def sought_tokens(detector: Detector, prompts: Prompts) -> Int[np.ndarray, "row pos"]:
    """Token that a detector seeks at every position; -1 for none."""
    tokens: np.ndarray = prompts.tokens.numpy()
    return prompts.sought_answers() if detector.sought == "answer" else tokens


def targets_of(
    detector: Detector, prompts: Prompts, rows: Int[torch.Tensor, " batch"], causal: bool
) -> Held:
    """Visible keys of a detector's pattern in these prompts, [row query key]."""
    at = rows.numpy()  # an index array: a tensor of one row would count as a number
    tokens = prompts.tokens.numpy()[at]
    entries = _target_entries(detector, tokens, sought_tokens(detector, prompts)[at], causal)
    return _held(entries, len(tokens), prompts.n_pos)


@dataclass(frozen=True)
class _Sought:
    """Relabelled tokens for each relabelling, the variance factor, and the size of the alphabet."""

    rows: Sequence[Int[np.ndarray, "row pos"]]
    spread: float
    n_tokens: int


class _Collector:
    """Sets of triples, numbered in the order in which they are added."""

    def __init__(self, tokens: Int[np.ndarray, "row pos"]):
        self.tokens = tokens
        self.parts: list[Entries] = []
        self.weights: list[Float[np.ndarray, " entry"] | None] = []
        self.families: list[Family] = []

    def add(self, entries: Entries, weights: Float[np.ndarray, " entry"] | None = None) -> int:
        """Add a set and return its index; a set with weights is scored by the weighted mean."""
        self.parts.append(entries)
        self.weights.append(weights)
        return len(self.parts) - 1

    def family(
        self, detector: Detector, kind: str, target: int, controls: Sequence[Entries], **more: Any
    ) -> None:
        numbers = [self.add(entries) for entries in controls]
        self.families.append(Family(detector.name, kind, target, numbers, **more))

    def pairs(
        self,
        detector: Detector,
        kind: str,
        target: int,
        compared: Entries,
        control: Entries,
        partner: Int[np.ndarray, " row"] | None = None,
        weights: Float[np.ndarray, " entry"] | None = None,
    ) -> None:
        """Add a family with paired comparisons of some targets with one control each."""
        own = self.add(compared, np.ones(compared.shape[1]))
        number = self.add(control, np.ones(control.shape[1]) if weights is None else weights)
        self.families.append(
            Family(detector.name, kind, target, [number], compared=own, partner=partner)
        )

    def collected(self, causal: bool) -> MatchedControls:
        n_sets, n_rows, n_pos = len(self.parts), *self.tokens.shape
        entries = np.concatenate(self.parts, axis=1)
        which_set = np.repeat(np.arange(n_sets), [part.shape[1] for part in self.parts])
        weights = np.concatenate(
            [
                np.ones(part.shape[1]) if own is None else own
                for part, own in zip(self.parts, self.weights, strict=True)
            ]
        )
        order = np.lexsort((which_set, entries[0]))
        entries, which_set, weights = entries[:, order], which_set[order], weights[order]
        queries = np.zeros((n_rows, n_sets, n_pos), dtype=np.bool_)
        queries[entries[0], which_set, entries[1]] = True
        sizes = queries.sum(2).astype(float)
        weighted = np.array([own is not None for own in self.weights])[which_set]
        sums = np.zeros_like(sizes)
        np.add.at(sums, (entries[0][weighted], which_set[weighted]), weights[weighted])
        own = np.array([own is not None for own in self.weights])
        return MatchedControls(
            tokens=torch.from_numpy(self.tokens),
            entries=entries,
            which_set=which_set,
            weights=weights,
            families=self.families,
            n_sets=n_sets,
            n_queries=np.where(own, sums, sizes),
            causal=causal,
        )


def _target_entries(
    detector: Detector, tokens: np.ndarray, sought: np.ndarray, causal: bool
) -> Entries:
    """Triples of a detector's pattern, without hidden keys."""
    n_pos = tokens.shape[1]
    masks = [detector.relation(t, s) for t, s in zip(tokens, sought, strict=True)]
    for mask in masks:
        if mask.shape != (n_pos, n_pos):
            raise InputError(
                f"the detector {detector.name} gives a mask of shape {list(mask.shape)} for rows "
                f"of {n_pos} positions; it must be [{n_pos}, {n_pos}]"
            )
    held = np.stack(masks)
    if causal:
        held &= np.tri(n_pos, dtype=np.bool_)
    row, entry = np.divmod(np.flatnonzero(held), n_pos**2)  # as nonzero, but much faster
    return np.stack([row, *np.divmod(entry, n_pos)])


def _steps(detector: Detector, n_pos: int) -> list[int]:
    """Offsets of the shifted controls' keys from those of the targets."""
    if detector.shifts == "both":
        both = range(-SHIFTS_BY_TOKEN, SHIFTS_BY_TOKEN + 1)
        return [step for step in both if step != 0 and step not in detector.others]
    fewest, most = SHIFTS
    count = min(max(n_pos // 3, fewest), most)
    sign = -1 if detector.shifts == "back" else 1
    return [sign * step for step in range(1, count + 1)]


def _shifted(target: Entries, step: int, held: Held, causal: bool) -> Entries:
    """Targets with shifted keys, without the query itself, hidden keys and other targets."""
    row, query, key = target[0], target[1], target[2] + step
    valid = (key >= 0) & (key != query) & (key <= (query if causal else held.shape[2] - 1))
    return _without(np.stack([row, query, key])[:, valid], held)


def _same_queries(target: Entries, shifted: list[Entries]) -> tuple[Entries, list[Entries]]:
    """Restrict all sets to the queries that every set has."""
    n_pos = 1 + max(int(part[1].max(initial=0)) for part in (target, *shifted))
    codes = [part[0] * n_pos + part[1] for part in (target, *shifted)]
    common = codes[0]
    for code in codes[1:]:
        common = np.intersect1d(common, code)
    common_entries = [
        part[:, np.isin(code, common)] for part, code in zip((target, *shifted), codes, strict=True)
    ]
    return common_entries[0], common_entries[1:]


def _held(target: Entries, n_rows: int, n_pos: int) -> Held:
    held = np.zeros((n_rows, n_pos, n_pos), dtype=np.bool_)
    held[tuple(target)] = True
    return held


def _without(entries: Entries, held: Held) -> Entries:
    remaining: Entries = entries[:, ~held[tuple(entries)]]
    return remaining


def _shuffled_rows(
    tokens: Int[np.ndarray, "row pos"], prompts: Prompts, rng: np.random.Generator
) -> Int[np.ndarray, "row pos"]:
    """Rows with their tokens in random order.

    Positions with the same token in all rows (BOS, separators) keep it. So do positions with
    answers, if enough other positions are left to shuffle.
    """
    free = (tokens != tokens[0]).any(0)
    free[: prompts.first] = False
    has_answer = np.zeros(tokens.shape, dtype=np.bool_)
    if prompts.answer_positions is not None:
        has_answer[np.arange(len(tokens))[:, None], prompts.answer_positions.numpy()] = True
    shuffled = tokens.copy()
    for row, own in zip(shuffled, has_answer, strict=True):
        where = np.flatnonzero(free & ~own)
        if len(where) < FEWEST_SHUFFLED:
            where = np.flatnonzero(free)
        row[where] = rng.permutation(row[where])
    return shuffled


def _relabelled(
    tokens: np.ndarray, prompts: Prompts, rng: np.random.Generator
) -> dict[str, _Sought]:
    """Sought tokens under permutations of the alphabet without fixed points; BOS stays.

    Answers that do not occur in their row are not relabelled.

    Rows that share their alphabet have the same relabellings. The mean over rows then averages out
    no more of a head's chance preferences than the mean of the targets does. Rows with different
    tokens are relabelled separately, which averages over more pairs of tokens than the targets
    have tokens. `spread` is this ratio, the factor by which the variance must be raised.
    """
    first = prompts.first
    alphabets = [np.unique(row[first:]) for row in tokens]
    union = np.unique(np.concatenate(alphabets))
    shared = np.mean([len(a) for a in alphabets]) >= SHARED_ALPHABET * len(union)
    if shared:
        maps = [[(union, to)] * len(tokens) for to in _derangements(union, rng)]
    else:
        maps = [[(a, _cycle(a, rng)) for a in alphabets] for _ in range(RELABELLINGS)]
    spread = 1.0 if shared else float(sum(len(a) for a in alphabets) / len(union))
    answers = prompts.sought_answers()
    held = (answers[:, :, None] == tokens[:, None, first:]).any(-1)
    answers = np.where(held, answers, -1)
    return {
        "own": _Sought([_mapped(tokens, first, by_row) for by_row in maps], spread, len(union)),
        "answer": _Sought([_mapped(answers, first, by_row) for by_row in maps], spread, len(union)),
    }


def _mapped(
    tokens: np.ndarray, first: int, maps: Sequence[tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """Tokens of each row under its map; tokens outside the map become -1."""
    mapped = tokens.copy()
    for row, (source, to) in zip(mapped, maps, strict=True):
        at = np.searchsorted(source, row[first:]).clip(max=len(source) - 1)
        row[first:] = np.where(source[at] == row[first:], to[at], -1)
    return mapped


def _derangements(alphabet: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Permutations without fixed points: all for a small alphabet, else random cycles."""
    if len(alphabet) > SMALL_ALPHABET:
        return [_cycle(alphabet, rng) for _ in range(RELABELLINGS)]
    every = [np.array(p) for p in itertools.permutations(alphabet.tolist())]
    moved = [p for p in every if (p != alphabet).all()]
    chosen = rng.permutation(len(moved))[:RELABELLINGS]
    return [moved[i] for i in chosen]


def _cycle(alphabet: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    order = rng.permutation(len(alphabet))
    to = np.empty_like(alphabet)
    to[order] = alphabet[np.roll(order, 1)]
    return to
