"""Studies: reproductions of the papers' tables and figures, open questions, tests of tools.

The package uses `interp_toolkit` and is never imported by it. Its commands and artefacts are
registered through entry points, as those of a plugin.

    from interp_studies import run_challenge

Studies:

- `xor`: how many heads XOR needs (`interp reproduce xor`)
- `sorting`: sorting transformers (`interp reproduce sorting`)
- `superposition`: computation in superposition (`interp reproduce superposition`)
- `random_attention`: random attention (`interp reproduce random-attention/NAME`)
- `open`: questions that the papers leave open (`interp reproduce open/NAME`)
- `reproduce_all`: all of these, one after the other (`interp reproduce all`)
- `litmus`: does a task need trained attention? (`interp litmus TASK`)
- `sweep`: grids of training runs (`interp sweep FILE.yaml`)
- `challenge`: how often a tool is wrong on models with known truth (`interp challenge`)
- `cli`: these commands

Shared modules:

- `study`: the interface of a study: a grid of jobs over seeds, and a report
- `claims`: claims, judged together by intervals over seeds
- `result`: a study's result: claims, and the paper's values beside ours
- `jobs`: the independent jobs of a study, on this machine or a cluster
- `train_seed`: trains one seed of a recipe within a job
- `recipe_settings`: the user's settings of a study's recipes
- `texts`: whether the texts that jobs train on can be read
- `seed_interval`: 95 % intervals over seeds
- `power_law`: power laws and exponentials, fitted by least squares
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
