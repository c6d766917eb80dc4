"""How often is a tool wrong on models whose mechanism is known? `interp challenge`.

- `case`: a model with the truth about it
- `families`: families of models, drawn from seeds
- `programs`: RASP programs for tracr, with prompts and answers
- `tracr_model`: programs compiled into the toolkit's transformer
- `disguise`: the same function with rotated, widened and shuffled weights
- `plain`: a separate forward pass that measures the truth
- `hulls`: the distance between convex hulls, computed independently of the probes
- `suite`: how many models of each family are drawn
- `question`: questions about a model, and their true answers
- `tools`: the tools that are tested
- `score`: recall, precision, calibration, abstentions and cost
- `run`: `run_challenge`, all of these steps
- `result`: the score card
"""
