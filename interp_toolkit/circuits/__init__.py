"""What weights and heads compute.

Rooms with an analysis each (`analysis`, `result`, `verdict`, `figures`): `heads` (detectors,
ablation, partners), `qk_ov` and `composition` (what weights alone say), `edges` (which edges carry
a behaviour), `roles` (which heads move, suppress, inhibit or park), `collapse` (how alike hidden
states are by depth), `sorting`, `skip_bigrams`, `universal_keys`.
What they share lies below them: `behaviour` (prompts, and what is measured on them) and `weights`
(the arithmetic of QK and OV circuits). Read `behaviour`, then `heads`; `weights`, then `qk_ov`.
Names are imported when first used, so that `import interp_toolkit.circuits` takes no torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("interp_toolkit.circuits", __file__)
