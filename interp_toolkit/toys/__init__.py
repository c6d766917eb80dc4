"""Documented toy models with known ground truth: `toy:NAME`.

- `zeros`: a model of zeros, into which hand-set weights are written
- `hand_set`: hand-set heads: induction, boolean functions, decoys
- `sorting`: hand-set sorting models
- `superposition`: constructions of "Computation in superposition"
- `random_attention`: tasks and model variants of "Is random attention sufficient ...?"
- `trained`: trained models that the package ships
"""
