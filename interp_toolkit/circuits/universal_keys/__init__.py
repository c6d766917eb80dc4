"""Universal keys: the boolean function of key features that each query token attends to.

- `analysis`: the analysis, with held-out feature sets and a null, and its result
- `scores`: prompts, attention scores of sets of key features, and functions that fit them
"""
