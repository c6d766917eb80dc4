"""How many trained query-key pairs does retrieval need? `open/partly-random-heads`.

Read `training` (a model some of whose heads keep their queries and keys), then `study`.
"""
