"""Features of a model: an SAE's latents, token sets, directions; and the places where they are on.

Read `feature_sets`, then `sae` and `sae_files`, `direction_files`; `row_positions` and `samples`
label the places of rows of tokens.
"""
