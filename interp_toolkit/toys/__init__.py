"""Documented toy models with known ground truth: `toy:NAME`.

- `zeros`: the model of zeros that hand-set weights are written into
- `hand_set`: hand-set heads: induction, boolean functions, decoys
- `sorting`: hand-set sorting models
- `superposition`: constructions of "Computation in superposition"
- `random_attention`: tasks and model variants of "Is random attention sufficient ...?"
- `trained`: trained models that the package ships
"""
