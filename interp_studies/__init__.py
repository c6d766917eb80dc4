"""Tables and figures of the source documents made again, theirs beside ours.

`jobs` runs the independent parts of a study on one machine or on a cluster; `result` puts the
source's figures beside ours. On them stand `sorting`, `superposition` and `random_attention` (what
`interp reproduce` runs), `open` (questions that they leave open), `litmus` (does a task need
attention that learns), `sweep` (grids of training runs) and `challenge` (how often is a tool wrong,
on models whose truth is known). `cli` has their commands, which register as a plugin's do.
It uses `interp_toolkit` and is not used by it.

    from interp_studies import run_challenge
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
