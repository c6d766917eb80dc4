"""Studies: reproductions of the sources' tables and figures, open questions, tests of tools.

The package uses `interp_toolkit` and is never imported by it; its commands and artefacts register
through entry points, as a plugin's do.

    from interp_studies import run_challenge

What is run:

- `xor`: how many heads XOR needs (`interp reproduce xor`)
- `sorting`: sorting transformers (`interp reproduce sorting`)
- `superposition`: computation in superposition (`interp reproduce superposition`)
- `random_attention`: random attention (`interp reproduce random-attention/NAME`)
- `open`: questions that the sources leave open (`interp reproduce open/NAME`)
- `reproduce_all`: every artefact, one after the other (`interp reproduce all`)
- `litmus`: does a task need attention that learns? (`interp litmus TASK`)
- `sweep`: grids of training runs (`interp sweep FILE.yaml`)
- `challenge`: how often a tool is wrong on models with known truth (`interp challenge`)
- `cli`: these commands

Shared by the studies:

- `study`: a grid of jobs over seeds, and a report: the shape of every study
- `claims`: claims, judged together by intervals over seeds
- `result`: what a study returns: claims, the source's figures beside ours
- `jobs`: the independent jobs of a study, on this machine or a cluster
- `train_seed`: trains one seed of a recipe within a job
- `recipe_settings`: settings that users give for a study's recipes
- `texts`: whether the texts that jobs train on can be read
- `seed_interval`: 95 % intervals over seeds
- `power_law`: power laws and exponentials, fitted by least squares
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
