"""The checks of `doctor`; each module yields its `Check`s.

- `present`: all hook points exist, with no hooks left on them
- `firing`: each hook point fires with the expected shape, and an edit there reaches the logits
- `methods`: `run_with_hooks` and `run_with_cache` do what attached hooks do
- `sums`: the residual stream adds up from its parts; attention patterns sum to 1
- `rebuilt`: activations recomputed from weights in float64 match what hooks show
- `configuration`: `cfg` agrees with the modules: folded norms, eps, rotary base
- `reload`: saving, loading and folding leave the model's probabilities unchanged
- `original`: the Hugging Face model computes the same
- `conditions`: effects of batch, padding, dtype and device
- `prompts`: the tokenizer's beginning-of-sequence token is there once
- `faults`: faults of TransformerLens that were reproduced, by release
"""
