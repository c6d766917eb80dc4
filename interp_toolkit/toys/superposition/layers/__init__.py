"""Shared by the superposition constructions: layers, gates, densities, readout errors.

- `gates`: boolean functions and AND gates of features, and a layer of them as a model
- `layer`: one MLP layer on boolean features: its model, its density, its errors about each gate
- `readouts`: readouts of functions of features, and their errors, worst and measured
"""
