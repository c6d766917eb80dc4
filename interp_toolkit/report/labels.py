"""Names of evidence as people read them; a field without a label reads as its own words."""

from __future__ import annotations

from collections.abc import Mapping

LABELS: Mapping[str, str] = {
    "smallest_gap": "smallest gap that counts",
    "heads_theorem": "theorem on heads",
    "denominator_residual": "denominators' relative error",
    "cover_chance": "Cover's chance, points in general position",
    "labelings": "other labelings of these points",
    "reinitialised": "re-initialised models",
    "controls": "accuracy of other functions here",
    "looks": "heads and detectors looked at",
    "replaced_by": "ablated heads are replaced by",
    "other_heads": "other heads ablated",
    "others_largest_effect": "largest effect of those (nats)",
    "every_edge_cut": "with every edge cut",
    "cut_edges_get": "what stands in for a cut edge",
    "faithfulness": "faithfulness, held-out rows",
    "faithfulness_low": "its interval, from",
    "faithfulness_high": "to",
    "faithfulness_where_chosen": "faithfulness, rows edges were chosen on",
    "rule": "an edge is kept by",
    "least_rise": "counts as a rise",
    "rise_low": "its interval, from",
    "rise_high": "to",
    "nulls": "re-initialised models",
    "nulls_alike": "of these, with marks that name the same",
    "weights_residual": "variance of logits that tables of weights do not rebuild",
    "pairs": "pairs looked at",
    "expected_by_chance": "expected by chance alone, at most",
    "shared_cosine": "mean cosine of the features",
    "alike": "bigrams with features alike",
    "counts": "pairs",
    "shuffled_read": "pairs read with shuffled labels",
    "p_better": "chance that a random layer reads as well",
    "behind_attention": "attention may have brought ANDs from other positions",
    "held_out": "held out, one in",
    "basis": "from",
    "found": "beyond the null",
}


def label_of(name: str) -> str:
    """A field's name for people, such as "theorem on heads" of `heads_theorem`."""
    return LABELS.get(name, name.replace("_", " "))
