"""QK and OV circuits of heads and their composition, computed from weights, with null models.

- `token_scores`: token-by-token scores stored as low-rank factors; norms folded into weights
- `ov`: OV circuit of a head: its effect on the logits for each token it attends to
- `self_scores`: copying and matching scores of every head
- `composition`: Q-, K- and V-composition scores of all pairs of heads
- `permutations`: null model of random permutations and sign flips of residual coordinates
- `qk`: QK circuit of a head: attention scores from weights, and their singular vectors
"""
