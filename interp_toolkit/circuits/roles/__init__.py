"""Roles of heads at answer positions, by attention and direct effect: `--probe roles`.

- `kinds`: the kinds of heads and their criteria, each with its source
- `asks`: the answers that prompts ask for, and the positions that matter to each
- `reading`: one pass over the prompts: attention, `hook_z`, residual stream at answer positions
- `writing`: what heads write there, in logits (direct logit attribution)
- `token_lists`: delimiters, and ordered lists such as weekdays, with their OV scores
- `measures`: the measures of every head under every kind, one number per prompt
- `judged`: means, intervals and adjusted p-values, and the kinds that they allow
- `causal`: ablation of named heads at the answer position, and what it costs
- `find`: all of these steps on given prompts
- `analysis`: checks task performance, then runs `find`
- `result`, `verdict` and `figures`: what it returns, in tables, words and pictures
"""
