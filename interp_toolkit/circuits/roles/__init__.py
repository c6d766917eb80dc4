"""Roles of heads at answer positions, by attention and direct effect: `--probe roles`.

- `token_lists`: delimiters, and ordered lists such as weekdays, with their OV scores
- `measures`: the measures of every head under every kind, one number per prompt
- `causal`: ablation of named heads at the answer position, and its effects
- `find`: all of these steps on a user's prompts
- `result`: the result and its tables
- `permuted`: what in an effect is specific to the answer, against permuted answers
- `reading`: answer positions, attention of heads from there, and direct effects on the logits
- `kinds`: the kinds of heads, and the rule that names them from measures
- `analysis`: `interp analyze --probe roles`: the analysis, its verdict and figures
"""
