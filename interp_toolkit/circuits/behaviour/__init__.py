"""Prompts, tasks and metrics that head and edge analyses share.

- `prompts`: repeated random tokens, made for the model at hand
- `task_check`: whether a model performs the task, and prompts on which it does
- `at_home`: the former name of `task_check`
- `task`: what a model is to do, as one number per prompt, and whether it does it
- `advantage`: the in-context advantage: loss on repeated against unrepeated tokens
- `objective`: the metric of a circuit: logit difference, log-probability or KL
- `replacement`: what a head's output is replaced with: means over, or values of, other prompts
- `words`: the causal word that the intervals of an ablation allow
"""
