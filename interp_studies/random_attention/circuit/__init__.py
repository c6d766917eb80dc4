"""Frozen queries and keys form an induction circuit: `random-attention/figure-3`."""
