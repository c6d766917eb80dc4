"""Roles of heads at answer positions, by attention and direct effect: `--probe roles`.

- `token_lists`: delimiters, and ordered lists such as weekdays, with their OV scores
- `measures`: the measures of every head under every kind, one number per prompt
- `causal`: ablation of named heads at the answer position, and what it costs
- `find`: all of these steps on given prompts
- `result`: what it returns, and its tables
- `reading`: what prompts ask, what heads attend to there, and what they write to the logits
- `kinds`: the kinds of heads, and the rule that names them from measures
- `analysis`: `interp analyze --probe roles`: the analysis, its verdict and figures
"""
