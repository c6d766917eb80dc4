"""Linear readability of boolean functions: `--probe xor`, `and`, `or`, `boolean`.

- `inputs`: prompts, labels, hook points and positions
- `sites`: one site: activations, separability, logistic probe, controls
- `theorem`: too few attention heads: the theorem and its certificate
- `attribution`: which heads carry the function, by score and by ablation
- `analysis`: runs all of this for one model
- `result` and `figures`: what it returns, in tables, words and pictures
"""
