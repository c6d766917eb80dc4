"""Frozen queries and keys form an induction circuit: `interp reproduce random-attention/figure-3`.

- `job`: one model, and its circuit before and after training
- `study`: all seeds, and the verdict
"""
