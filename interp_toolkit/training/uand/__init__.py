"""A layer that learns the ANDs of all pairs: `interp train uand`."""
