"""Where a boolean function of features can be read: `--probe xor`, `and`, `or`, `boolean`.

Read `inputs` (prompts, labels, places), `reading` (the activations of a site), `measure` and
`sites` (one site), `theorem` (too few heads), `attribution` (which heads carry it),
`verdict`, `analysis`.
"""
