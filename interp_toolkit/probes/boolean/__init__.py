"""Where a boolean function of features can be read: `--probe xor`, `and`, `or`, `boolean`.

Read `reading` (the activations of a site), `measure` (one site), `theorem` (one head cannot do
XOR), `attribution` (which heads carry it), `verdict`, `analysis`.
"""
