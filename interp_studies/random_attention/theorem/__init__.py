"""What frozen heads and fixed mixing can fit: `random-attention/theorem-5-1`.

Read `functions` (what is to be fitted), `heads` (what heads read), `fits`, then `study`.
"""
