"""Universal keys: the boolean function of key features that each query token attends to.

- `rows`: the prompts, and the features that each token stands for
- `scores`: the score of each set of key features by head and query token, and the attention
- `function`: the smallest boolean function that fits the scores
- `analysis`: the steps, with held-out sets and a null; the finding, its sentences and figures
"""
