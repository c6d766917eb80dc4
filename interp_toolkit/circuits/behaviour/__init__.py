"""What is asked of heads and edges: prompts that repeat, and what a model makes of them.

`prompts` makes the rows, `advantage` measures the in-context advantage on them, `objective` is what
a circuit is judged by (that advantage, the answers, or closeness to the whole model), `task` what a
model is to do on rows and `checked` whether it does, `replacement` is what stands in for the
output of a head that is taken out.
"""
