"""How many attention heads XOR needs: `interp reproduce xor`.

- `layers`: hand-set, random and trained layers, and what they separate
- `study`: all of them, beside the source
"""
