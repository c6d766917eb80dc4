"""Names and shapes of parameters: whose they are, and the configuration that they imply."""
