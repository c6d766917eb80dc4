"""One-layer models that sort lists by hand-set weights, by a known algorithm."""
