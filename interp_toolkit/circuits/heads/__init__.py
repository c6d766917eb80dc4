"""Which heads are of which kind, with what certainty and to what effect.

Read `detectors` (attention patterns), `controls` (what else the attention could be), `patterns` and
`scores` (attention summed over both), `significance` (p-values, and the rule for attention alone),
`cuts` (attention knockouts), `rule` (the head rule), `ablation` (what a head's absence costs),
`partner` (what feeds an induction head); `analysis` is their sum. To add a pattern to detect, write
a `Detector` (see `detectors`) and register it.
"""
