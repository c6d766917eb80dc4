"""The trainer: steps, seeds, exact resumption, and the files of a run.

- `settings`: a recipe's settings, learning-rate schedules, and the problem that it trains
- `run_files`: the folder of a run, and the state from which a seed's training resumes
- `metrics`: metrics in a file and in trackers, and the score by which runs are compared
- `acceleration`: CUDA graphs, batches in parts, several processes that train one model (`torchrun`)
- `trainer`: trains one seed, or several of which the best is kept
"""
