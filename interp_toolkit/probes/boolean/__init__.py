"""Linear readability of boolean functions: `--probe xor`, `and`, `or`, `boolean`.

- `inputs`: prompts, labels, hook points and positions
- `sites`: measurement of one site: activations, separability, logistic probe, controls
- `theorem`: the theorem on too few attention heads, and its certificate
- `attribution`: the heads that carry the function, by score and by ablation
- `result`: the finding: its tables and sentences
- `analysis`: the analysis `interp analyze --probe xor`, `and`, `or` and `boolean`, and its figures
"""
