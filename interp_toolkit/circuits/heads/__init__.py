"""Attention patterns of heads, and the effect of knocking them out.

Commands: `--probe heads`, `induction`, `previous-token`, `duplicate-token`, `k-hop`. To add a
pattern to detect, write a `Detector` in `detectors` and one line in `CATALOGUE`
(`interp_toolkit/registry.py`).

- `detectors`: attention patterns: the keys that a kind of head attends to, given the tokens
- `controls`: matched controls: key positions that differ from a pattern's in one respect
- `patterns`: attention summed over patterns and controls, in one streaming pass
- `scores`: the score of every head under every detector
- `significance`: p-values against the controls, and the rule for attention alone
- `attention_knockout`: knockouts of attention to a pattern's keys
- `first_order`: estimates of all knockouts from one backward pass, which rank heads
- `rule`: the head rule, which decides whether a head is of a kind
- `partner`: the previous-token head that an induction head composes with
- `described`: the attention of any head, split into named patterns and a remainder
- `analysis`: the whole analysis of one model
- `result`, `verdict` and `figures`: its result, with tables, text and figures
"""
