"""Shared by the superposition constructions: layers, gates, densities, readout errors.

- `layer`: one MLP layer on boolean features, and as a model
- `gates`: AND gates as tuples of features
- `functions`: boolean functions of some features
- `boolean_readoffs`: readouts of any such function from ANDs and features
- `gate_model`: a layer of gates as a model with ground truth
- `density`: how densely to connect features to neurons
- `triples`: exact worst-case errors of universal AND
- `sampled`: errors of gates, measured on inputs about each
- `measured_epsilon`: errors of readouts, measured by running their layer
"""
