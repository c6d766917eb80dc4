"""The covariance SDE compared with sampled networks: `interp reproduce random-attention/sde`.

- `recursion`: exact means and variances of the tokens' covariance by depth
- `samples`: samples of the diffusion, of the network in law, and of hidden states
- `study`: the distance between network and diffusion against the width
"""
