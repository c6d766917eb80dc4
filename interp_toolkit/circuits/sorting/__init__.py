"""Which algorithm a sorting transformer uses: `--probe sorting`, for any model, given its layout.

- `kinds`: which lists the model sorts: all, or those without repeats only
- `evaluation`: how often it sorts, and on which lists it fails
- `measures`: every number that the verdict rests on
- `criteria`: the evidence for each algorithm, with thresholds, and the rule
- `fingerprint`: `sorting_fingerprint`, the steps for one model
- `evolution`: the same numbers at checkpoints along training
- `analysis`: runs all of this for one model
- `result` and `verdict`: what it returns, in tables and words
- `figures`: pictures of weights and attention
- `evidence_figures`: pictures of the criteria against their thresholds, and along training
"""
