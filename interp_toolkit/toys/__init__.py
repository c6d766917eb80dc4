"""The documented toy models: tasks and hand-set weights with known ground truth."""
