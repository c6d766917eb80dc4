"""Heads written into a model of zeros: induction heads, boolean functions, decoys.

- `heads`: building blocks of hand-set heads
- `induction`: previous-token, duplicate-token and induction heads
- `xor`: boolean functions of two bits
- `boolean_heads`: any boolean function with the fewest possible heads
- `untrained`: untrained models, in which a detector must find nothing
"""
