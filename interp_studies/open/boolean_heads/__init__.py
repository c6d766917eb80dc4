"""How many heads does a boolean function need? `interp reproduce open/boolean-heads`.

- `classes`: boolean functions of three bits, up to symmetry (NPN)
- `training`: one layer trained for every function at once
- `study`: exact answers beside what training finds
"""
