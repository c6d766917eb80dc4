"""How many attention heads XOR needs: `interp reproduce xor`.

- `layers`: hand-set layers, and random ones with one condition of the theorem changed
- `jobs`: what hand-set, random and trained layers separate
- `study`: all of them, beside the source
- `figures`: attention by input, margin against score, random layers
"""
