"""QK and OV circuits of heads and their composition, from weights alone, with nulls.

- `token_scores`: token-by-token scores kept as factors; norms folded into weights
- `qk`: the QK circuit: what a head's query looks for in a key
- `qk_svd`: its singular directions, with the tokens along them
- `ov`: the OV circuit: what a head writes for the token it attends to
- `self_scores`: copying and matching scores of all heads; moments of the embeddings
- `composition`: Q-, K- and V-composition scores of all pairs of heads
- `permutations`: the null: residual coordinates in random order with random signs
"""
