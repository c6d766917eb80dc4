"""How alike the hidden states of different tokens are, by depth: `--probe collapse`."""
