"""One view of the weights of every kind of model.

Read `parts` (what the view is made of), `view`, `read` (from each kind of model), `check` (the view
computes what the model does), `positions`, `alibi` and `rotation`, `mlp`, `contributions`.
"""
