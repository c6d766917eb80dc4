"""Prompts, metrics and tasks that head and edge analyses share.

- `prompts`: prompts with their answers; repeated random tokens, made for the model at hand
- `metrics`: one number per prompt from its logits, such as the logit difference
- `repetition`: the in-context advantage: loss on repeated against unrepeated tokens
- `task`: prompts with their metric, and whether a model performs the task
- `task_check`: task performance, and synthetic prompts on which a model performs it
- `replacement`: the values that replace a head's output: means over, or values of, other prompts
- `causal_words`: the causal word that the intervals of an ablation allow
"""
