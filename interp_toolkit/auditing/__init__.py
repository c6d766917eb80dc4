"""Tests of claims about a model: confirmed, refuted, undecided or not testable (`interp audit`).

- `claims`: kinds of claims, claim files, test plans, seals
- `analysis`: `audit(model, claims)` runs the plan
- `context`: the model, the prompts, task performance on them, and the error level
- `parts`: the questions that make up a claim, and how their answers combine
- `heads`: audits a head: its attention pattern, and the metric's dependence on it
- `circuit`: audits a circuit: are its edges sufficient and necessary?
- `pair`: audits a skip-bigram: does a head's query for one token check for another token's key?
- `algorithm`: audits the sorting algorithm of a one-layer model
- `direction`: audits a direction: does it read a function, carry the answers, or steer them?
- `site`: activations at one hook and position, and runs of the model with them edited
- `threshold`: thresholds on a score per prompt; stability of an effect over prompts
- `result`: claims with their answers, the verdict over all of them, the figure
"""
