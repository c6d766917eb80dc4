"""Tables and figures of "Is random attention sufficient for sequence modeling?", made again.

Read `cells` (a model on a task), `entries`, `ordering` (does the source's order hold?), `table`,
`tables`, `scaling`, `memorization`; `covariance`, `depth` and `circuit` are studies of their own.
"""
