"""The constructions of "Computation in superposition", one per module.

- `uand`: universal AND: every pair's AND from one ReLU layer
- `superposed`: the same on features in superposition
- `targeted`: ANDs of chosen sets of features
- `fan_in`: ANDs of k features
- `quadratic`: universal AND with squares for the activation
- `separate`: one neuron per AND, for comparison
- `stacked`: a boolean circuit executed layer after layer
- `stacked_model`: such layers as a transformer
- `universal_keys`: a head that attends where a function of the key's features holds
"""
