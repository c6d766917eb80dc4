"""Which edges of a model carry a behaviour: `--probe circuit`.

Read `wiring` (nodes and edges), `blocks` (what a node computes from its inputs), `patched_pass`
(the model with any edges cut), `cut` (the loss of it), `search` (the rule), `faithfulness` (the
circuit alone, on held-out rows), `paths`; `graph` and `export` give it to others.
"""
