"""Analyses of attention heads, their weights, and the edges between components.

Shared arithmetic; each comes before the analyses that use it:

- `metrics`: prompts, metrics and tasks, and the causal words that their intervals allow
- `weights`: QK and OV circuits and composition of heads, factored, with their nulls

Analyses, each one module or a package with `analysis` (the steps) and `result` (what it returns):

- `heads`: attention-head detectors and attention knockout (`--probe heads`)
- `roles`: name movers, inhibition, copy suppression, attention sinks (`--probe roles`)
- `edges`: circuits of edges, by ablation and attribution (`--probe circuit`)
- `qk_ov`: QK and OV circuits of heads, from weights alone (`--probe qk`, `--probe ov`)
- `composition`: Q-, K- and V-composition of all pairs of heads (`--probe composition`)
- `skip_bigrams`: pairs of features that a head's QK circuit checks for (`--probe skip-bigrams`)
- `universal_keys`: boolean functions of key features by query token (`--probe universal-keys`)
- `sorting`: the algorithm of a sorting transformer (`--probe sorting`)
- `logit_attribution`: heads and MLPs that write the answer's logit (`--probe logit-attribution`)
- `patching`: activation patching by layer, position and head (`--probe patching`)
- `collapse`: similarity of hidden states by depth (`--probe collapse`)
- `similarity`: the measurement behind `collapse`

Names are imported when first used, so that `import interp_toolkit.circuits` takes no torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("interp_toolkit.circuits", __file__)
