"""Audits of a direction: does it read a function of features, do the answers rest on it?

Read `audit` (which kind of claim), `reads`, `carries` and `steers` (each kind), `common` and
`moving` (what they share).
"""
