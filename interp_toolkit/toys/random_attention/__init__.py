"""The tasks and model variants of "Is random attention sufficient for sequence modeling?"."""
