"""The arithmetic of weights: QK and OV circuits of single heads, with their nulls.

Read `folding` (norms into weights), `ov` and `qk` (the circuits, kept factored), `qk_svd`,
`token_scores` (their entries, tiled), `token_moments` and `permutations` (the null of both sides),
`own_token` and `self_scores` (copying and matching), `residual` (what a token is at a layer).
"""
