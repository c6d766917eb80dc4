"""What a sorting transformer computes, and how: analyses of any model, given its layout.

Read `criteria` (the evidence for each algorithm, and the rule), `measures` (every number behind
it), `fingerprint` (the question asked of one model), `evaluation` (how often it sorts), `kinds`
(which lists), `evolution` (along training).
"""
