"""The constructions of "Computation in superposition".

- `uand`: universal AND: every pair's AND from one ReLU layer
- `universal_keys`: a head that attends to keys whose features satisfy a boolean function
- `stacked`: a boolean circuit executed layer after layer, and as a transformer
- `targeted`: ANDs in superposition, of chosen sets, and with one neuron each
- `fan_in`: ANDs of k features, also with squares as activation
"""
