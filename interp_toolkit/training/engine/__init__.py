"""The trainer: steps, seeds, state to resume from bit for bit, and what a run keeps.

- `settings`: what a recipe gives the trainer: settings, model, batches, loss
- `run_files`: the folder of a run, and the state that a seed's training resumes from
- `metrics`: metrics, in a file and sent to TensorBoard or Weights & Biases
- `acceleration`: CUDA graphs, batches in parts, several processes that train one model (`torchrun`)
- `trainer`: trains one seed, or several and keeps the best
"""
