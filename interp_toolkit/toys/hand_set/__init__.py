"""Heads written into a model of zeros: induction and its kin, boolean functions, planted heads."""
