"""Estimators on arrays: separability certificates and logistic probes; no model, no hooks.

- `hulls`: the search for hyperplanes and certificates, which `separability` verifies
- `metrics`: accuracy, AUROC, log loss and calibration of many targets at once
- `arrays`: activations, features, labels and options, checked
- `logistic`: logistic regression for many targets
- `logistic_probe`: `LogisticProbe`: one logistic regression as a scikit-learn estimator
- `truth_tables`: truth tables of boolean functions, and their values
- `boolean`: `XORProbe`, `BooleanProbe`: boolean functions as scikit-learn estimators
- `heldout`: accuracy on held-out prompts
- `splits`: folds and groups of prompts; shuffled labels, for null distributions
- `separability`: linear separability: a verdict with a witness that two matrix products check
- `solver`: many L2 logistic regressions on one site, minimized together

Only `solver`, `logistic` and `heldout` import torch, and `LogisticProbe` when it is fitted.
"""
