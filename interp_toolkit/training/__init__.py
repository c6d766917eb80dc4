"""Training recipes: the documented toy models, trained."""
