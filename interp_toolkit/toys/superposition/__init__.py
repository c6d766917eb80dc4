"""Constructions of "Computation in superposition", each with weights and readouts.

- `layers`: what the constructions share: layers on boolean features, gates, densities, errors
- `constructions`: one construction per module
- `skip_bigrams`: heads with planted skip-bigrams
- `toys`: universal AND, superposed and targeted, as `toy:uand` and others
- `computed_toys`: higher fan-in, squares, stacked layers, universal keys, as `toy:NAME`
"""
