"""Where a boolean function of features can be read: `--probe xor`, `and`, `or`, `boolean`.

- `inputs`: prompts, labels, hook points and positions
- `reading`: activations of many sites in few passes
- `measure`: one site: separability, logistic probe, controls
- `theorem`: too few attention heads: the theorem and its certificate
- `sites`: the verdict at each site
- `attribution`: which heads carry the function, by score and by ablation
- `analysis`: runs all of this for one model
- `result`, `verdict` and `figures`: what it returns, in tables, words and pictures
"""
