"""QK and OV circuits of heads and their composition, from weights alone, with nulls.

- `token_scores`: token-by-token scores kept as factors; norms folded into weights
- `ov`: the OV circuit: what a head writes for the token it attends to
- `self_scores`: copying and matching scores of every head
- `composition`: Q-, K- and V-composition scores of all pairs of heads
- `permutations`: the null: residual coordinates in random order with random signs
- `qk`: QK circuits: scores from weights, their singular vectors
"""
