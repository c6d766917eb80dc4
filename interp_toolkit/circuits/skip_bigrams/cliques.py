"""The found bigrams as a bipartite graph, and the complete blocks it falls into.

A block K x Q, every key of K with every query of Q, costs a head one rank however many bigrams it
holds ("Computation in superposition", section 3.2), so a set of bigrams that falls into few blocks
is cheap. The least number of blocks is hard to find; this one is greedy, each time the largest
block grown from the busiest feature among the bigrams that are left, so it is an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import networkx as nx

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
        """How many bigrams it holds."""
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
