"""Estimators on arrays: no model, no hooks.

Read `separability`, `hulls` and `witness` (either way a witness), `logistic`, `solver` and `site`
(thousands of logistic probes at once), `boolean` and `logistic_probe` (scikit-learn's contract),
`heldout`, `splits`, `metrics`.
"""
