"""Does a task need in-context reasoning? Standard against MixiT: `interp litmus TASK`.

- `study`: trains both variants from equal seeds
- `rules`: the decision that the gap between them allows
- `result` and `figures`: the result with its tables, text and figures
"""
