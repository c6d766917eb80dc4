"""The checks of `doctor`; each module's functions yield `Check`s.

- `reconstruction`: activations recomputed from weights in float64 match the hooked ones
- `configuration`: `cfg` agrees with the modules; effects of batch, padding, dtype and device
- `firing`: hook points exist and fire with the expected shape; edits reach the logits
- `reload`: saving, loading and folding change nothing; the Hugging Face model agrees
- `sums`: the residual stream adds up, patterns sum to 1; faults of TransformerLens, by release
- `methods`: `run_with_hooks` and `run_with_cache`; prompts have at most one BOS token
"""
