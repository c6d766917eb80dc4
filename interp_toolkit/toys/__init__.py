"""The documented toy models: tasks and hand-set weights with known ground truth, as `toy:NAME`.

`hand_set` (heads written into a model of zeros; boolean functions; planted and untrained heads),
`sorting`, `superposition`, `random_attention` (tasks and variants), `trained` (shipped weights).
"""
