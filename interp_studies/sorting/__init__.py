"""The sorting transformers of the source, trained and judged: `interp reproduce sorting`.

- `experiments`: the models that are trained, and the source's figures
- `models`: one model: trained, tested, its failures and its algorithm
- `study`: all models over several seeds, beside the source
- `figures`: accuracy by seed, loss curves, metrics along training
"""
