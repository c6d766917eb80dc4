"""How fast the variants train: `random-attention/throughput`.

Read `timing` (training steps a second), then `study`.
"""
