"""Does a task need in-context reasoning? Standard against MixiT: `interp litmus TASK`.

- `study`: trains both variants from the same seeds
- `rules`: the sentence that their gap allows
- `result` and `figures`: what it returns, in tables, words and pictures
"""
