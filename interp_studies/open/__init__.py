"""Experiments on questions that the papers leave open: `interp reproduce open/NAME`.

Each study states its claims beforehand, with what would overturn them, and judges each by an
interval. All intervals of a study hold simultaneously at 95 %.

- `boolean_heads`: how many heads does a boolean function need? `open/boolean-heads`
- `causal_sorting`: why do causal models sort worse? `open/causal-sorting`
- `stacked_errors`: how do errors grow with depth? `open/stacked-errors`
- `random_layers`: which random layers compute universal AND? `open/random-layers`
- `quadratic_or_relu`: quadratic or ReLU neurons for universal AND? `open/quadratic-or-relu`
- `bigram_capacity`: do trained heads reach the skip-bigram capacity? `open/bigram-capacity`
- `partly_random_heads`: how many trained query-key pairs are needed? `open/partly-random-heads`
"""
