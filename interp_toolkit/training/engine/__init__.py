"""The trainer: seeds, steps, state to resume from, and what is kept.

Read `settings` and `problem` (what a recipe gives), `trainer` (one seed), `seeds` (several),
`state` and `run_files` (killed at any moment, the same bits), `ranks` and `cuda_graph` (GPUs).
"""
