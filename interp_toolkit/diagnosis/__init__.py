"""Does the model measure correctly? Checks of a live model and its hooks: `interp doctor`.

- `analysis`: `doctor(model)`, and the order of the checks
- `sections`: the checks, section by section
- `checks`: the record of one check, and the result: all checks, headline and findings
- `bench`: the prompts that the checks run on, tolerances, and a fresh copy of the model
"""
