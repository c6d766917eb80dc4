"""Audits of a direction: does it read a function of features, and do the answers depend on it?

- `audit`: selects the tests by the claim's verb
- `reads`: held-out accuracy of a threshold along the direction, against random directions
- `carries`: interchange of the component along it, as a fraction of the corrupted prompt's effect
- `steers`: adding the direction, against random directions of the same length
- `common`: the unit vector, the activations at its site, and random directions
- `moving`: the metric of each prompt before and after an edit, shared by `carries` and `steers`
"""
