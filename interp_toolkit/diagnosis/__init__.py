"""Does the model measure correctly? Checks of a live model and its hooks: `interp doctor`.

- `analysis`: `doctor(model)`, and the order of the checks
- `bench`: the prompts that the checks run on, the count of passes, the tolerances
- `sections`: the checks, section by section
- `checks`: the record of one check and its outcome
- `fresh`: a fresh copy of the model, which tells faults of the class from faults of this model
- `result`: what it returns: the checks, headline and findings
"""
