"""Estimators on arrays: separability certificates and logistic probes; no model, no hooks.

- `separability`: a hyperplane, or a certificate that there is none, as for XOR
- `hulls`: the search for either, which `separability` verifies
- `witness`: the two witnesses, each checked by two matrix products
- `logistic`: logistic probes for many targets at one site
- `site`: the activations in their principal axes
- `solver`: L-BFGS on all targets at once
- `logistic_probe`: one logistic probe as a scikit-learn estimator
- `boolean`: probes of boolean functions: any truth table
- `heldout`: cross-validated scores of many targets
- `splits`: held-out rows, and shuffled labels
- `metrics`: accuracy, AUROC, log loss and calibration of many targets at once
- `rows`: input arrays, checked in scikit-learn's words
"""
