"""How many bigrams a head checks for: an interval, where it can be trusted, or why not.

Where pursuit finds what there is, the number follows from what it found: at most about the level's
share of it is false, and what lies just below significance can be counted, as the pairs beyond a
threshold of the one sign less those of the other: chance has no sign. On planted heads pursuit
finds either nearly all bigrams or few (up to about a tenth of d_resid * d_head equally strong
bigrams of features that are not shared, at 4 d_resid features), and then many more lie just below.
So an interval is given only if

- at least `FEWEST` bigrams were found, most of one sign;
- no more than chance remains: the two signs differ by less than `BEYOND` standard errors, or by
  less than a twentieth of what was found;
- three of four found lie well above the threshold of significance;
- they are about equally strong: the interquartile range of |strength| is at most `SPREAD` of its
  median, and nine of ten reach half of it. Where weaker ones are found, more of them are
  missed;
- what remains is less than a bigram, or spread over many directions: bigrams that share features
  and hide each other (a query of many keys) leave few.

It counts bigrams about as strong as those found: half their median strength or more. Weaker ones
cannot be told from none, and where none of them is found nothing says that they are there.

Also here:
- the found bigrams as a bipartite graph, and the complete blocks it falls into.

A block K x Q, every key of K with every query of Q, costs a head one rank however many bigrams it
holds ("Computation in superposition", section 3.2), so a set of bigrams that falls into few blocks
is cheap. The least number of blocks is hard to find; this one is greedy, each time the largest
block grown from the busiest feature among the bigrams that are left, so it is an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np
from scipy import stats

from interp_toolkit.circuits.skip_bigrams.pursuit import Pursuit
from interp_toolkit.circuits.skip_bigrams.scores import t_at
from interp_toolkit.stats import COVERAGE

Node = tuple[str, int]


@dataclass(frozen=True)
class CompleteBlock:
    """A complete bipartite block: every key with every query.

    Attributes:
        keys, queries: names of features.
    """

    keys: Sequence[str]
    queries: Sequence[str]

    @property
    def size(self) -> int:
        """The number of bigrams."""
        return len(self.keys) * len(self.queries)


def complete_blocks(edges: Iterable[tuple[int, int]]) -> list[tuple[list[int], list[int]]]:
    """Splits (query, key) pairs into complete blocks (queries, keys), greedily; largest first."""
    graph = nx.Graph()
    graph.add_edges_from((("q", q), ("k", k)) for q, k in edges)
    blocks = []
    for nodes in list(nx.connected_components(graph)):
        left = graph.subgraph(nodes).copy()
        while left.number_of_edges():
            ends = [max(_side(left, side), key=left.degree) for side in ("q", "k")]
            near, far = max(
                (_grown(left, start) for start in ends), key=lambda b: len(b[0]) * len(b[1])
            )
            left.remove_edges_from([(a, b) for a in near for b in far])
            queries, keys = (near, far) if near[0][0] == "q" else (far, near)
            blocks.append((sorted(i for _, i in queries), sorted(i for _, i in keys)))
    return sorted(blocks, key=lambda b: (-len(b[0]) * len(b[1]), b))


def _side(graph: nx.Graph, side: str) -> list[Node]:
    return sorted(node for node in graph if node[0] == side)


def _grown(graph: nx.Graph, start: Node) -> tuple[list[Node], list[Node]]:
    """A block from one node's star, joined by like nodes while that makes it larger."""
    near, far = [start], set(graph[start])
    others = {other for node in far for other in graph[node]} - {start}
    best = (list(near), sorted(far))
    while others:
        joined = max(sorted(others), key=lambda other: len(far & set(graph[other])))
        shared = far & set(graph[joined])
        if not shared:
            break
        others.discard(joined)
        near, far = [*near, joined], shared
        if len(near) * len(far) > len(best[0]) * len(best[1]):
            best = (list(near), sorted(far))
    return best


FEWEST = 10
ONE_SIGN = 0.8  # of those found, for the signs to tell what remains
BEYOND = 3.0
REMAINING = 0.05  # of those found
CLEAR = 1.0  # of t, above the threshold of significance
SPREAD = 0.4  # of |strength|, interquartile range over median
WEAK = 0.5  # of the median |strength|, what nine of ten found reach
FEW = 0.25  # of the head's rank
MOST_FEW = 8.0  # directions, however large the rank
QUARTER = 0.25  # chance pairs that are counted beside what was found, on either side


@dataclass(frozen=True)
class Count:
    """An estimated number of bigrams.

    Attributes:
        estimate: None where it cannot be trusted.
        low, high: its interval, at `COVERAGE`; None likewise.
        note: why there is none, or "".
    """

    estimate: int | None
    low: int | None
    high: int | None
    note: str


def count(pursuit: Pursuit, n_pairs: int, rank: int, level: float) -> Count:
    """The number of bigrams, from those found and what remains."""
    t, after, n = pursuit.t, pursuit.after, len(pursuit.t)
    if pursuit.stopped:
        return _none("there were more to find")
    if n < FEWEST:
        return _none(f"fewer than {FEWEST} were found")
    sign = 1.0 if (t > 0).mean() >= 0.5 else -1.0
    if (sign * t > 0).mean() < ONE_SIGN:
        return _none("those found have both signs, so what remains cannot be counted by sign")
    threshold = t_at(min(1.0, 2 * QUARTER * n / n_pairs), after.d)
    rest = after.sweep(threshold, pursuit.pairs).t
    along, against = int((sign * rest > 0).sum()), int((sign * rest < 0).sum())
    net, error = along - against, float(np.sqrt(along + against + 1))
    if net > max(BEYOND * error, REMAINING * n):
        return _none("many more lie just below significance than chance would put there")
    clear = t_at(level * n / n_pairs, after.d) + CLEAR
    if np.quantile(np.abs(t), 0.25) < clear:
        return _none("those found are barely significant, so as many may be missed")
    strength = np.abs(pursuit.strength)
    weakest, lower, middle, upper = np.quantile(strength, [0.1, 0.25, 0.5, 0.75])
    if upper - lower > SPREAD * middle or weakest < WEAK * middle:
        return _none("those found are unequally strong, so weaker ones may be missed")
    if pursuit.rest.norm() > middle and (pursuit.rest.effective_rank() < min(FEW * rank, MOST_FEW)):
        return _none("what remains lies in few directions, as bigrams do that hide each other")
    tail = (1 - COVERAGE) / 2
    false = level * n
    low = n - int(stats.poisson.isf(tail, false))
    high = n + round(max(net, 0) + stats.norm.isf(tail) * error)
    likely = min(false / 2, float((np.abs(t) < clear).sum()))
    return Count(n - round(likely) + max(net, 0), max(low, 0), high, "")


def _none(note: str) -> Count:
    return Count(None, None, None, note)
