"""How alike hidden states are, by depth, at initialisation: `random-attention/table-6`."""
