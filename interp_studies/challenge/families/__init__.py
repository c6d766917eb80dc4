"""Families of models whose mechanism is known by construction, drawn from seeds.

- `compiled`: compiled programs with decoys and idle heads
- `imitated`: small transformers trained to imitate a compiled program, with or without its circuit
- `backdoors`: compiled programs with one more head, which a trigger token activates
- `layouts`: prompt layouts for the tasks of `shared_work`
- `shared_work`: models in which one or several heads do the work
- `planted`: diluted, redundant and canceling heads, made with `shared_work`
- `bigrams`: heads with planted skip-bigrams
- `superposed`: features in superposition, with directions that read a feature, carry it, or do
  neither
- `xor`: functions of two bits, computed by one head or two
- `modular`: two hand-set algorithms for addition modulo p
- `twins`: one task solved by two algorithms; a model with and without a backdoor
"""
