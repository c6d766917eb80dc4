"""Which pairs of features a head's query and key check for: skip-bigrams, found in its weights."""
