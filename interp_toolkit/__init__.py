"""Mechanistic-interpretability analyses for any TransformerLens model, with verdicts to check.

    import interp_toolkit as it
    model = it.load("model.pt")
    result = it.analyze(model, "xor", tokens={"0": 0, "1": 1, "query": 2})
    it.write_report([result], "report.html")

The rooms, each of which says in its own `__init__` what it computes and in which order to read it:
`probes` and `circuits` (the analyses), `toys` (models with known answers), `tasks` (prompts
of named behaviours), `training`, `studies`,
`diagnosis` (is a model sound as an instrument),
`models` (every TransformerLens model seen alike), `data`, `report`, `cli`, `testing`.
Names load on first use (`__init__.pyi` lists them): importing this package imports no torch.
"""

import lazy_loader

from interp_toolkit._version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("interp_toolkit", __file__)
