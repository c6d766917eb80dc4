"""The trainer: steps, seeds, state to resume from bit for bit, and what a run keeps.

- `settings`: the settings of every recipe; learning-rate schedules
- `problem`: what a recipe gives the trainer: model, batches, loss
- `trainer`: trains one seed
- `seeds`: trains several seeds and keeps the best
- `state`: the state of a seed's training, to resume from
- `run_files`: the folder of a run
- `metrics`: the metrics file, and the figure by which runs are compared
- `tracking`: metrics sent to TensorBoard or Weights & Biases
- `ranks`: several processes that train one model (`torchrun`)
- `acceleration`: CUDA graphs, batches in parts, no denormal numbers
"""
