"""The sorting transformers of the paper, trained and measured: `interp reproduce sorting`.

- `experiments`: the models, the paper's values, and what is measured
- `study`: all models over several seeds, compared with the paper
"""
