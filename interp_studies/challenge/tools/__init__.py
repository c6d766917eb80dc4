"""Tools that the challenge tests.

- `tool`: the protocol: `score(model, question)`; a tool of the user's
- `ours`: the toolkit's own analyses and audits
- `detect_head`: TransformerLens's `detect_head`
- `attribution`: attribution patching with one gradient
"""
