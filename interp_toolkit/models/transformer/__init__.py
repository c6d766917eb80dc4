"""The toolkit's own transformer, with `HookedTransformer`'s names, shapes and hooks.

- `config`: its configuration, in TransformerLens's field names
- `hooks`: hook points and the root module, imported without the rest of TransformerLens
- `transformer`: the model
- `attention`: attention, every step behind a hook point
- `layers`: norms, MLPs and embeddings
- `mixing`: attention with a fixed random pattern (MixiT)
- `stacked_weights`: weights of all layers in one tensor, such as `W_Q`
- `collapsed`: a one-layer model as two tables, for fast training
"""
