"""How often is a tool wrong on models whose truth is known? `interp challenge`.

- `case`: a model with its truth
- `families`: families of models, drawn from seeds
- `programs`: RASP programs for tracr, with prompts and answers
- `tracr_model`: programs compiled into the toolkit's transformer
- `disguise`: the same function in rotated, widened, shuffled weights
- `plain`: a forward pass of its own that measures the truth
- `hulls`: the distance between convex hulls, computed independently of the probes
- `suite`: how many models of each family
- `question`: questions about a model, and their true answers
- `tools`: the tools that are tested
- `score`: recall, precision, calibration, abstentions and cost
- `run`: `run_challenge`, all of these steps
- `result`: the score card
"""
