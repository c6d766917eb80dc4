"""Which random layers compute universal AND, and from which width."""
