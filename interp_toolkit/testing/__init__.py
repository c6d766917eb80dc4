"""Tiny models with known ground truth, as pytest fixtures (see `plugin`)."""
