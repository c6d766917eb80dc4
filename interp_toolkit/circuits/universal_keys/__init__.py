"""Universal keys: which boolean function of the key's features each query token attends to.

Read `rows` (what the model is shown), `scores` (what each head gives each set of features),
`function` (the least function that fits), `analysis`.
"""
