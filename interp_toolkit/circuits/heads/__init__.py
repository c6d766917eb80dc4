"""Which heads are of which kind, with what certainty and to what effect.

Read `detectors` (where a kind of head should look), `controls` (where it should not), `patterns`
and `scores` (attention summed over both), `significance` (the null and the rule), `ablation` (what
a head's absence costs), `partner` (what feeds an induction head); `analysis` is their sum.
"""
