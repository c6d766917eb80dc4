"""Why do causal models sort worse? `interp reproduce open/causal-sorting`.

- `plan`: what is trained: attention, optimiser, learning rates
- `claims`: the claims, fixed on seeds 0 and 1
- `study`: trains and judges
- `figures`: tables and figures
"""
