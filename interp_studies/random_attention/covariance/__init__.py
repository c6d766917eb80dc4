"""The covariance SDE of the source against sampled networks: `random-attention/sde`."""
