"""The toolkit's own transformer, with `HookedTransformer`'s names, shapes and hooks.

Read `config`, `transformer`, `attention`, `layers`, `mixing` (MixiT); `collapsed` trains one-layer
models through their tables, `stacked_weights` gives weights under `HookedTransformer`'s names.
"""
