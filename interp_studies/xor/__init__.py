"""How many attention heads XOR needs: `interp reproduce xor`.

- `layers`: hand-set, random and trained layers, and the functions that they separate
- `study`: all layers, compared with the paper
"""
