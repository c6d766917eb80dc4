"""Tables and figures of "Is random attention sufficient for sequence modeling?", reproduced.

- `cells`: a cell of a table: model, task, the paper's value and ours
- `ordering`: whether the paper's ordering of models holds
- `table`: trains every cell, compares it, and judges the ordering
- `tables`: tables 1 to 4, 9 and 10
- `scaling`: tables 5 and 11 and figure 2: accuracy by depth, heads and pairs
- `figures`: figures of these tables
- `circuit`: figure 3: frozen-qk forms an induction circuit
- `depth`: table 6: similarity of hidden states by depth
- `covariance`: theorem 2.1: the covariance SDE
- `theorem`: theorem 5.1: what frozen heads can approximate
- `shaping`: the effect of shaping the mixing matrices
- `throughput`: training speed of the variants
"""
