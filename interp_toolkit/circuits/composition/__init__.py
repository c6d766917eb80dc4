"""Q-, K- and V-composition: which heads read what earlier heads write (`--probe composition`).

- `scores`: composition scores of all pairs, with their null from signed permutations
- `analysis`: the steps
- `result`: the clearest pairs, counts and tables; the verdict and the figures
"""
