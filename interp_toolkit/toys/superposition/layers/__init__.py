"""Shared by the superposition constructions: layers, gates, densities, readout errors.

- `gates`: boolean functions and AND gates of features
- `layer`: an MLP layer on boolean features as a model; its density, its sampled errors
- `readouts`: readouts of functions of features, and their errors, worst and measured
"""
