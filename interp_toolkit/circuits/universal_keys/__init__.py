"""Universal keys: the boolean function of key features that each query token attends to.

- `analysis`: the steps, with held-out sets and a null; the finding, its sentences and figures
- `scores`: prompts, scores of key features, and functions of them
"""
