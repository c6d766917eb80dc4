"""Computation in superposition: the source's constructions, each with weights and readoffs.

`layers` has what they share (a layer on boolean features, gates, densities, errors),
`constructions` one construction a file, `skip_bigrams` heads with planted pairs; `toys` and
`computed_toys` are those at sizes that build at once.
"""
