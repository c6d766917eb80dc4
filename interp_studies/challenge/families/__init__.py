"""Families of models with known truth, drawn from seeds.

- `compiled`: compiled programs among decoys and idle heads
- `imitated`: small transformers trained to imitate a compiled program, circuit forced or not
- `backdoors`: compiled programs with a head that one token sets off
- `layouts`: layouts of prompts that ask for an answer
- `shared_work`: models whose work one head or several share
- `planted`: families of such models: diluted, redundant, canceling
- `bigrams`: heads made for pairs of tokens
- `superposed`: features in superposition, directions that read or carry one, placebos
- `xor`: functions of two bits by one head's memory and by two heads
- `modular`: two hand-set algorithms for addition modulo p
- `twins`: one task by two algorithms; a model with and without a backdoor
"""
