"""The toolkit's own transformer, with `HookedTransformer`'s names, shapes and hooks.

- `config`: its configuration, in TransformerLens's field names
- `hooks`: hook points and the root module, imported without the rest of TransformerLens
- `layers`: norms, MLPs and embeddings
- `collapsed`: a one-layer model as two tables, for fast training
- `attention`: attention, learned or by fixed mixing matrices
- `circuit`: a circuit of such a model, as a model
- `transformer`: the model, and its weights stacked by layer
"""
