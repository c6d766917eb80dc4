"""Which pairs of features a head's query and key check for: skip-bigrams, found in its weights.

Read `form` (a head's QK circuit on features), `directions` and `scores`, `null`, `pursuit` (one
pair explained after the other), `count` (how many there are), `head` and `find`.
"""
