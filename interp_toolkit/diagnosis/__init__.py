"""Does the instrument measure? Checks of a live model and of the hooks on it.

`interp doctor MODEL` and `doctor(model)`. Read `analysis` (the order of the checks), `bench` (what
the model is run on, how passes are counted, where tolerances come from), then the checks: `present`
(all hook points are there, with nothing on them), `firing` (each fires, an edit there reaches the
logits), `methods` (`run_with_hooks` and `run_with_cache` do what attached hooks do), `sums` (the
residual stream, patterns), `rebuilt` (what the weights say beside what hooks show), `told` (what
`cfg` says beside what the modules are), `fresh` and `reload` (a fresh copy; saving, loading,
folding), `original` (the Hugging Face model), `conditions` (batch, padding, dtype, device),
`prompts` (BOS). `known` lists faults of TransformerLens that were reproduced, by release.
"""
