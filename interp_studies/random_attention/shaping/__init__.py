"""What shaping the mixing matrices is for: `random-attention/shaping`.

Read `signals` (a stack of attention layers, and whole models), then `study`.
"""
