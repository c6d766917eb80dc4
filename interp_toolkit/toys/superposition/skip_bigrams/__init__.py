"""Heads whose scores count which pairs of a planted set of feature pairs are present.

- `bigrams`: QK weights for a set of pairs
- `model`: such heads as a model, one token per feature
- `toys`: planted beside random heads, as `toy:skip-bigrams` and others
"""
