"""The tools that the challenge tests.

- `tool`: the protocol, `score(model, question)`, and tools of the user
- `ours`: the toolkit's own analyses and audits
- `detect_head`: TransformerLens' `detect_head`
- `attribution`: attribution patching with one gradient
"""
