"""How many trained query-key pairs does retrieval need? `open/partly-random-heads`.

- `training`: a model in which some heads keep their initial queries and keys
- `study`: the claims, the grid of models, the result
"""
