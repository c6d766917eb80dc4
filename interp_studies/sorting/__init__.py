"""The sorting transformers of the source, trained and judged: `interp reproduce sorting`.

- `experiments`: the models that are trained, the source's figures, and what is measured
- `study`: all models over several seeds, beside the source
"""
