"""Linear readability of boolean functions: `--probe xor`, `and`, `or`, `boolean`.

- `inputs`: prompts, labels, hook points and positions
- `sites`: one site: activations, separability, logistic probe, controls
- `theorem`: too few attention heads: the theorem and its certificate
- `attribution`: which heads carry the function, by score and by ablation
- `result`: what it returns, in tables and words
- `analysis`: `interp analyze --probe xor`, `and`, `or` and `boolean`: the analysis and its figures
"""
