"""Checks that a live model and its hooks measure correctly: `interp doctor`.

- `analysis`: `doctor(model)`, and the order of the checks
- `sections`: the checks, by section
- `checks`: the record of one check, and the result: all checks, headline and findings
- `bench`: the probe prompts, tolerances, and a fresh copy of the model
"""
