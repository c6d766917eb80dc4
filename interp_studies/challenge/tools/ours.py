"""The toolkit's own analyses and audits, run as users run them, with verdicts as probabilities.

Questions with many items use an analysis. Whether one direction carries the answers, or a head has
one skip-bigram, is a claim and uses an audit.

Verdicts are words, not probabilities. A result of a test at the level 0.05 is converted to 0.95 or
0.05, an exact certificate to CERTAIN, and a result short of its own standard to LIKELY. *Undecided*
is an abstention. These values were set before any score card was made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from interp_studies.challenge.question import (
    Direction,
    Pair,
    Question,
    Readout,
)
from interp_studies.challenge.tools.tool import Answer
from interp_toolkit.analysis import analyze
from interp_toolkit.auditing.analysis import audit
from interp_toolkit.auditing.claims.circuit_files import circuit_names
from interp_toolkit.data import FeatureData
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.streaming import activations
from interp_toolkit.probes.estimators.separability import check_separability
from interp_toolkit.probes.estimators.truth_tables import truth_values
from interp_toolkit.results import head_name

YES, NO = 0.95, 0.05
CERTAIN = 0.99
LIKELY = 0.75
#: causal word of a head's attention -> probability; None: no answer
BY_WORD: Mapping[str, float | None] = {
    "major": YES,
    "contributes": YES,
    "negligible": NO,
    "suppresses": NO,
    "undecided": None,
    "not_tested": NO,  # it does not attend so, or too little to be cut
}
#: answer of an audit -> probability
BY_ANSWER: Mapping[str, float | None] = {
    "confirmed": YES,
    "refuted": NO,
    "undecided": None,
    "not_testable": None,
}
SORTERS = ("min_greater_than_previous", "argmax_piecewise_linear")


class Ours:
    """Analyses and audits as a tool; see the module.

    The tool abstains from questions about backdoors and about algorithms other than sorting.
    """

    name = "interp-toolkit"

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def score(self, model: Model, question: Question) -> Answer:
        """See `Tool`."""
        answers: dict[str, Callable[[Model, Question], Answer]] = {
            "head-relation": self._relations,
            "head-in-circuit": self._circuit_heads,
            "edge": self._edges,
            "readable": self._readable,
            "direction-reads": self._directions,
            "direction-carries": self._carriers,
            "pair": self._pairs,
            "algorithm": self._algorithm,
        }
        answer = answers.get(question.kind)
        return None if answer is None else answer(model, question)

    def _result(self, model: Model, name: str, data: FeatureData | None, **options: Any) -> Any:
        """The result of an analysis, which is run once per model."""
        key = f"{name} {sorted(options.items())}"
        if key not in self._known:
            self._known[key] = analyze(model, name, data=data, **options)
        return self._known[key]

    def _relations(self, model: Model, question: Question) -> Answer:
        result = self._result(model, "heads", question.data)
        words = {(h.layer, h.head): h.causal for h in result.heads if h.detector == question.about}
        if not result.evidence.performs_task:
            return None
        return [BY_WORD[words.get(tuple(head), "not_tested")] for head in question.items]

    def _circuit_heads(self, model: Model, question: Question) -> Answer:
        result = self._result(model, "circuit", question.data)
        sure = _sure_of_circuit(result)
        if sure is None:
            return None
        names = [head_name(head.layer, head.head) for head in question.items]
        return [_node(result, name, sure) for name in names]

    def _edges(self, model: Model, question: Question) -> Answer:
        result = self._result(model, "circuit", question.data)
        sure = _sure_of_circuit(result)
        if sure is None:
            return None
        kept = {edge.edge for edge in result.edges}
        names = [circuit_names([item])[0] for item in question.items]
        return [sure if name in kept else 1 - sure for name in names]

    def _readable(self, model: Model, question: Question) -> Answer:
        return [self._readout(model, question, item) for item in question.items]

    def _readout(self, model: Model, question: Question, item: Readout) -> float | None:
        result = self._result(
            model,
            "boolean",
            question.data,
            table=item.table,
            hooks=[item.hook],
            position=item.position,
            reinitialisations=0,
        )
        status = result.sites[0].status
        return {"separable": CERTAIN, "not_separable": 1 - CERTAIN}.get(status)

    def _directions(self, model: Model, question: Question) -> Answer:
        assert question.data is not None
        return [_threshold(model, question.data, item) for item in question.items]

    def _carriers(self, model: Model, question: Question) -> Answer:
        items: tuple[Direction, ...] = question.items
        claims = [
            {
                "direction": item.vector.tolist(),
                "hook": item.hook,
                "position": item.position,
                "says": "carries",
            }
            for item in items
        ]
        return [BY_ANSWER[one.answer] for one in audit(model, claims, data=question.data).claims]

    def _pairs(self, model: Model, question: Question) -> Answer:
        items: tuple[Pair, ...] = question.items
        claims = [{"pair": {"head": p.head, "key": p.key, "query": p.query}} for p in items]
        return [BY_ANSWER[one.answer] for one in audit(model, claims).claims]

    def _algorithm(self, model: Model, question: Question) -> Answer:
        if set(question.items) != set(SORTERS) or "layout" not in question.context:
            return None
        result = self._result(model, "sorting", None, layout=question.context["layout"])
        if result.status != "detected" or result.algorithm not in SORTERS:
            return None
        return [YES if name == result.algorithm else NO for name in question.items]


def _sure_of_circuit(result: Any) -> float | None:
    """The probability for a node of the circuit; None if the result supports no claim."""
    if result.status == "detected":
        return YES
    return LIKELY if result.status == "partial" else None


def _node(result: Any, name: str, sure: float) -> float | None:
    """The probability for one node; None if its ablation has no certain effect in either direction.

    Nodes outside the circuit, and nodes that work against the answers, get a low probability.
    """
    if name not in result.nodes:
        return 1 - sure
    low, high = result.node_intervals[name]
    if low > 0:
        return sure
    return 1 - sure if high < 0 else None


def _threshold(model: Model, data: FeatureData, item: Direction) -> float:
    """Whether a threshold on the component classifies the function on all prompts."""
    found = np.zeros((len(data), len(item.vector)))
    for batch in activations(model, data, item.hook, item.position):
        found[batch.index.numpy()] = batch[item.hook].double().numpy()
    along = found @ item.vector
    columns = np.stack([data.column(name) for name in item.features], axis=1)
    told = truth_values(item.table, columns)
    if told.all() or not told.any():
        return 0.5
    status = check_separability(along[told][:, None], along[~told][:, None]).status
    return CERTAIN if status == "separable" else 1 - CERTAIN
