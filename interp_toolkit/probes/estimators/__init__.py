"""Estimators on arrays: separability certificates and logistic probes; no model, no hooks.

- `hulls`: the search for hyperplanes and certificates, which `separability` verifies
- `metrics`: accuracy, AUROC, log loss and calibration of many targets at once
- `logistic`: logistic regression for many targets, and as a scikit-learn estimator
- `boolean`: `XORProbe`, `BooleanProbe`: boolean functions as scikit-learn estimators
- `heldout`: accuracy on held-out prompts, and its null distribution from shuffled labels
- `separability`: linear separability: a verdict with a witness that two matrix products check
- `solver`: many L2 logistic regressions on one site, minimized together
"""
