"""Does the instrument measure? Checks of a live model and of the hooks on it."""
