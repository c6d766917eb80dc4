"""Mechanistic-interpretability analyses for any TransformerLens model, with verdicts to check.

    import interp_toolkit as it
    model = it.load("model.pt")
    result = it.analyze(model, "xor", tokens={"0": 0, "1": 1, "query": 2})
    it.write_report([result], "report.html")

Analyses and what they need:

- `analysis`: `analyze(model, name)` finds an analysis, checks its options and runs it
- `registry`: `CATALOGUE`, the names of everything built in; plugins, found by entry point
- `probes`: linear readability: separability certificates, logistic probes, universal AND
- `circuits`: attention heads, QK and OV circuits, composition, circuit graphs, sorting algorithms
- `auditing`: tests of a user's claims about a model (`interp audit`)
- `diagnosis`: checks that a model and its hooks measure correctly (`interp doctor`)
- `models`: loading, running, editing and reading the weights of every kind of model
- `data`: prompts with features and answers, data files, tokenization, lists to sort
- `tasks`: prompts of named behaviors, such as indirect-object identification
- `toys`: documented toy models with known answers (`toy:NAME`)
- `training`: the trainer and the recipes of toy models (`interp train`)

Output and commands:

- `report`: terminal tables, JSON, the HTML page, comparison of two files of results
- `cli`: the `interp` command, one module per subcommand
- `__main__`: starts that command line in a process of its own
- `testing`: pytest fixtures, tiny models with known ground truth

Shared by all of these:

- `results`: `Result`, what an analysis returns; its status, evidence, tables, figures, provenance
- `finding`: `Run` and `Finding`, the shape of an analysis; records that make tables and JSON
- `evidence`: what a control must be able to show, and the status that evidence allows
- `options`: the base class of analysis options, read by Python, command line and docs alike
- `state`: preserves and restores the state of a live model around an analysis
- `boolean_functions`: polynomials, threshold degree and readout error of boolean functions
- `stats`: multiple-comparison corrections, exact intervals, Cover's count
- `plots`: colors, traces, axes and layouts of figures as plain plotly data
- `files`: atomic writes, bounded readers of JSON, NPZ and YAML
- `formatting`: short reprs, ASCII fallback, estimates of the remaining time
- `errors`: the exceptions that users meet
- `_version`: the version number

Reproductions and other studies are a second package of the same distribution, built on this one.
Names load on first use (`__init__.pyi` lists them): importing this package imports no torch.
"""

import lazy_loader

from interp_toolkit._version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("interp_toolkit", __file__)
