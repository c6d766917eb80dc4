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
from interp_toolkit.models.running.memory import rows_that_fit

SHIFTS = (4, 16)  # bounds of the shifted controls of a detector by position (a third of the row)
SHIFTS_BY_TOKEN = 6  # shifted controls in either direction, of a detector by token
RELABELLINGS = 24
FEWEST_SHUFFLED = 3  # positions; with fewer, positions with answers are shuffled too
SMALL_ALPHABET = 6  # alphabet size up to which all permutations without fixed points are listed
SHARED_ALPHABET = 0.5  # mean fraction of all tokens per row, from which rows share relabellings

OTHER_QUERIES = "other queries"
ENTRY_BYTES = 100  # of a triple, while sets are made, sorted and summed; measured
TABLE_BYTES = 16  # of a query and key of a row, in the tables that controls are made from

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
class Sets:
    """Target and control sets in some rows.

    Attributes:
        entries: triples of all sets, sorted by row, then by set.
        which_set: index of each triple's set.
        weights: weight of each triple in its set's sum.
    """

    entries: Entries
    which_set: Int[np.ndarray, " entry"]
    weights: Float[np.ndarray, " entry"]


class MatchedControls:
    """Target and control sets of every detector, as input of the streaming pass.

    There may be more triples than fit in memory, so the sets are made again for every batch of
    rows; those of the last batch are kept.

    Attributes:
        tokens: rows to run: the prompts, and rows with shuffled tokens for displaced controls.
        n_prompts: number of the prompts.
        families: targets with their controls.
        n_sets: number of sets.
        every: by detector, the index of the set of all targets, also of queries without controls.
        n_queries: [row set] number of queries of each set in each row; for weighted sets the sum of
            weights.
        causal: whether keys after the query are hidden.
        row_bytes: memory that the sets of a prompt and its control rows take while they are made.
    """

    def __init__(self, plan: _Plan, memory: int | None = None):
        self._plan = plan
        self.tokens = torch.from_numpy(plan.tokens)
        self.causal = plan.causal
        self._rows = np.zeros(0, dtype=np.int64)
        self._sets: Sets | None = None
        repeats = [(np.unique(row, return_counts=True)[1] ** 2).sum() for row in plan.own]
        largest = int(np.argmax(repeats))  # of the prompts, by the pairs of equal tokens
        first = plan.collected(np.arange(largest, largest + 1))
        self.n_sets, self.every = len(first.parts), first.every
        n_entries = sum(part.shape[1] for part in first.parts)
        prompt_bytes = ENTRY_BYTES * n_entries + TABLE_BYTES * plan.n_pos**2
        n_rows, self.n_prompts = len(plan.tokens), len(plan.own)
        if memory is not None:
            rows_that_fit(memory, prompt_bytes, plan.n_pos)  # refuses what does not fit
        self.row_bytes = prompt_bytes * self.n_prompts // n_rows
        self._whole = memory is None or 2 * prompt_bytes * self.n_prompts <= memory
        at_once = n_rows if self._whole or memory is None else memory // (2 * self.row_bytes)
        self.n_queries = np.zeros((n_rows, self.n_sets))
        self._uniform = np.zeros((n_rows, self.n_sets))  # without a window
        own = np.array([weights is not None for weights in first.weights])
        for rows in self.batches(at_once):
            sets = self.sets(rows)
            row, query, _ = sets.entries
            row = np.searchsorted(rows, row)
            queries = np.zeros((len(rows), self.n_sets, plan.n_pos), dtype=np.bool_)
            queries[row, sets.which_set, query] = True
            sums = np.zeros((len(rows), self.n_sets))
            np.add.at(sums, (row, sets.which_set), sets.weights)
            self.n_queries[rows] = np.where(own, sums, queries.sum(2))
            self._add_uniform(self._uniform, sets, None)
        has_control = self.n_queries.sum(axis=0) > 0
        self.families: Sequence[Family] = [
            family
            for family in first.families
            if family.kind != OTHER_QUERIES or has_control[family.controls[0]]
        ]

    def batches(self, most: int) -> list[Int[np.ndarray, " some"]]:
        """All rows in parts of at most so many, sorted; a prompt beside its shuffled row.

        Sets are then made once for both, if not all of them are kept.
        """
        n, n_rows = self.n_prompts, len(self.tokens)
        order = np.arange(n_rows)
        if not self._whole and n_rows > n:
            order = order.reshape(2, n).T.ravel()
            most = max(1, most // 2 * 2)
        return [np.sort(order[at : at + most]) for at in range(0, n_rows, max(1, most))]

    def sets(self, rows: Int[np.ndarray, " some"] | None = None) -> Sets:
        """The sets in these rows, in ascending order; None: in all."""
        rows = np.arange(len(self.tokens)) if rows is None else rows
        if self._sets is None or not np.isin(rows, self._rows).all():
            self._sets = None  # so that they are not held beside the new ones
            n, n_rows = self.n_prompts, len(self.tokens)
            self._rows = np.unique(np.concatenate([rows % n, rows % n + n]))
            self._rows = self._rows[self._rows < n_rows]
            self._sets = self._plan.sets(self._rows)
        sets = self._sets
        if len(rows) == len(self._rows):
            return sets
        part = np.isin(sets.entries[0], rows)
        return Sets(sets.entries[:, part], sets.which_set[part], sets.weights[part])

    def uniform(self, window: int | None = None) -> Float[np.ndarray, "row set"]:
        """Uniform attention over visible keys to each set, summed over queries."""
        if window is None:
            return self._uniform
        sums = np.zeros(self.n_queries.shape)
        for rows in self.batches(len(self.tokens) if self._whole else 2):
            self._add_uniform(sums, self.sets(rows), window)
        return sums

    def _add_uniform(
        self, sums: Float[np.ndarray, "row set"], sets: Sets, window: int | None
    ) -> None:
        row, query, key = sets.entries
        n_visible = np.minimum(query + 1, window or self._plan.n_pos) if self.causal else None
        share = np.full(len(row), 1 / self._plan.n_pos) if n_visible is None else 1 / n_visible
        if window:
            share = np.where(query - key < window, share, 0.0)
        np.add.at(sums, (row, sets.which_set), share * sets.weights)


def matched_controls(
    prompts: Prompts,
    detectors: Sequence[Detector],
    *,
    causal: bool,
    d_model: int,
    seed: int = 0,
    memory: int | None = None,
) -> MatchedControls:
    """Target sets of these detectors on these prompts, and their matched controls.

    Args:
        prompts: prompts to search for the patterns.
        detectors: detectors; one without targets in the prompts has no scores.
        causal: whether keys after the query are hidden.
        d_model: width of the model, which determines how similar embeddings are by chance.
        seed: seed of the controls.
        memory: bytes; the sets of as many rows as fit in half of it are made at once; None: of all.

    Raises:
        InputError: a detector's mask does not fit the prompts, or the memory is too small for the
            sets of one prompt.
    """
    return MatchedControls(
        _Plan(prompts, detectors, causal=causal, d_model=d_model, seed=seed), memory
    )


class _Plan:
    """What is drawn at random for all rows, and the sets of any prompts."""

    def __init__(
        self,
        prompts: Prompts,
        detectors: Sequence[Detector],
        *,
        causal: bool,
        d_model: int,
        seed: int,
    ):
        rng, self.own = np.random.default_rng(seed), prompts.tokens.numpy()
        self.detectors, self.causal, self.n_pos = detectors, causal, prompts.n_pos
        self.d_model = d_model
        self.relabelled = _relabelled(self.own, prompts, rng)
        by_token = any(detector.by_token for detector in detectors)
        self.shuffled = _shuffled_rows(self.own, prompts, rng) if by_token else self.own[:0]
        self.tokens = np.concatenate([self.own, self.shuffled])
        self.sought = [sought_tokens(detector, prompts) for detector in detectors]
        n = len(self.own)
        # shuffled rows have no answers, so the control of an answer is in another prompt
        self.partners = [
            None
            if not detector.by_token
            else _cycle(np.arange(n), rng)
            if detector.sought == "answer"
            else n + np.arange(n)
            for detector in detectors
        ]

    def sets(self, rows: Int[np.ndarray, " some"]) -> Sets:
        """The sets in these rows, which are those of the prompts in them and of their partners."""
        needed = np.isin(np.arange(len(self.own)), rows)
        for partner in self.partners:
            if partner is not None:
                needed |= np.isin(partner, rows)
        collected = self.collected(np.flatnonzero(needed))
        inside = [np.isin(part[0], rows) for part in collected.parts]
        parts = [part[:, own] for part, own in zip(collected.parts, inside, strict=True)]
        weights = np.concatenate(
            [
                np.ones(part.shape[1]) if weights is None else weights[own]
                for part, weights, own in zip(parts, collected.weights, inside, strict=True)
            ]
        )
        sizes = [part.shape[1] for part in parts]
        which_set = np.repeat(np.arange(len(parts), dtype=np.int32), sizes)
        entries = np.concatenate(parts, axis=1)
        del collected, inside, parts
        order = np.lexsort((which_set, entries[0]))
        return Sets(entries[:, order], which_set[order], weights[order])

    def collected(self, prompts: Int[np.ndarray, " prompt"]) -> _Collector:
        """All sets of these prompts, with the rows of their controls."""
        collector, causal, n_pos = _Collector(prompts), self.causal, self.n_pos
        tokens = self.own[prompts]
        for detector, every_sought, every_partner in zip(
            self.detectors, self.sought, self.partners, strict=True
        ):
            sought = every_sought[prompts]
            target = _target_entries(detector, tokens, sought, causal)
            held = _held(target, len(tokens), n_pos)
            shifted = [_shifted(target, step, held, causal) for step in _steps(detector, n_pos)]
            number = collector.every[detector.name] = collector.add(target)
            if detector.shifts != "both":
                target, shifted = _same_queries(target, shifted)
                number = collector.add(target)
            collector.family(detector, "shifted", number, shifted)
            if detector.by_token and detector.seeks:
                other = self.relabelled[detector.sought]
                entries_by_label = [
                    _without(_target_entries(detector, tokens, r[prompts], causal), held)
                    for r in other.rows
                ]
                spread = other.spread * (1 + other.n_tokens / self.d_model)
                collector.family(detector, "relabelled", number, entries_by_label, spread=spread)
            if every_partner is not None:
                partner = every_partner[prompts]
                of_answers = detector.sought == "answer"
                seeking = every_sought[partner] if of_answers else self.tokens[partner]
                there = _target_entries(detector, self.tokens[partner], seeking, causal)
                free = ~_held(there, len(tokens), n_pos)[tuple(target)]
                moved = target[:, free]
                collector.pairs(
                    detector, "displaced", number, moved, moved, every_partner, rows=partner
                )
            if detector.sought == "own":
                _add_other_queries(collector, detector, number, target, held, causal)
        return collector


def _add_other_queries(
    collector: _Collector,
    detector: Detector,
    number: int,
    target: Entries,
    held: Held,
    causal: bool,
) -> None:
    """Add the control "other queries": for each target, the mean over other queries of its key.

    Where every query has the pattern, there is none, and the sets are empty.
    """
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
    compared = target[:, n_others[target[0], target[2]] > 0]
    row, query, key = np.nonzero(others)
    weights = key_counts[row, key] / n_others[row, key]
    others_of = np.stack([row, query, key])
    collector.pairs(detector, OTHER_QUERIES, number, compared, others_of, weights=weights)


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
    """Sets of triples, numbered in the order in which they are added.

    Triples are added with the place of their row among these prompts.
    """

    def __init__(self, prompts: Int[np.ndarray, " prompt"]):
        self._prompts = prompts
        self.parts: list[Entries] = []
        self.weights: list[Float[np.ndarray, " entry"] | None] = []
        self.families: list[Family] = []
        self.every: dict[str, int] = {}

    def add(
        self,
        entries: Entries,
        weights: Float[np.ndarray, " _"] | None = None,
        rows: Int[np.ndarray, " prompt"] | None = None,
    ) -> int:
        """Add a set and return its index; a set with weights is scored by the weighted mean.

        Args:
            entries: the triples.
            weights: weight of each.
            rows: the row of each prompt's triples; None: the prompt itself.
        """
        row = (self._prompts if rows is None else rows)[entries[0]]
        self.parts.append(np.stack([row, *entries[1:]]).astype(np.int32))
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
        rows: Int[np.ndarray, " prompt"] | None = None,
    ) -> None:
        """Add a family with paired comparisons of some targets with one control each.

        Args:
            detector: the detector.
            kind: see `Family`.
            target: index of the target set.
            compared: targets that have a control.
            control: the controls.
            partner: see `Family`.
            weights: weights of the controls; None: 1.
            rows: the row of each prompt's controls; None: the prompt itself.
        """
        own = self.add(compared, np.ones(compared.shape[1]))
        weights = np.ones(control.shape[1]) if weights is None else weights
        number = self.add(control, weights, rows)
        self.families.append(
            Family(detector.name, kind, target, [number], compared=own, partner=partner)
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
