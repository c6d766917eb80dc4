"""Attention patterns of heads, and the effect of knocking them out.

Commands: `--probe heads`, `induction`, `previous-token`, `duplicate-token`, `k-hop`. To add a
pattern to detect, write a `Detector` in `detectors` and one line in `CATALOGUE`
(`interp_toolkit/registry.py`).

- `detectors`: attention patterns: which keys a kind of head attends to, given the tokens
- `controls`: key positions that match a pattern's in all but one respect
- `patterns`: attention summed over patterns and controls, in one streaming pass
- `scores`: the score of every head under every detector
- `significance`: p-values against the controls, and the rule for attention alone
- `attention_knockout`: attention to a pattern's keys removed, the metric measured again
- `rule`: the head rule: when a head is named by a pattern
- `ablation`: single-head effects, effects with the others ablated, joint effects
- `partner`: the previous-token head that an induction head composes with
- `described`: the attention of any head, split into described patterns and a remainder
- `analysis`: runs all of this for one model
- `result`, `verdict` and `figures`: what it returns, in tables, words and pictures
"""
