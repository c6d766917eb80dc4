"""How many heads XOR needs: hand-set, random and trained layers: `interp reproduce xor`."""
