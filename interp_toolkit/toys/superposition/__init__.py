"""Constructions of "Computation in superposition", each with weights and readouts.

- `layers`: shared parts: layers on boolean features, gates, densities, errors
- `constructions`: universal AND, targeted, of k features, stacked; universal keys
- `skip_bigrams`: heads with planted skip-bigrams
- `toys`: the constructions at sizes that build quickly, as `toy:NAME`
"""
