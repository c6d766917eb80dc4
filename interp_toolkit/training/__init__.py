"""Training recipes: the documented toy models, trained.

`engine` is the trainer and what it keeps (read `trainer`, `seeds`, `state`); `tasks`, `text` and
`uand` are families of recipes; `xor`, `induction` and `sorting` one recipe each.
"""
