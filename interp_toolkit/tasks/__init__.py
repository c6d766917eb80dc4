"""Behaviours that papers have asked of language models, made for the tokenizer at hand.

Every task is one file and one entry point of the group `interp_toolkit.tasks`: prompts in pairs,
clean and corrupted, with the token that should come next and one that should not. Read `words`
(what a tokenizer makes of words), `rows` (drawing rows of one length), `make` (for a model), then
any task, such as `indirect_object`.
"""
