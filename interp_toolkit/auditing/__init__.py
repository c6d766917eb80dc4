"""Tests of claims about a model: confirmed, refuted, undecided or not testable (`interp audit`).

- `claims`: kinds of claims, claim files, test plans, seals
- `analysis`: `audit(model, claims)` runs the plan
- `context`: the model, the prompts, task performance on them, and the significance level
- `parts`: the questions that a claim splits into, and how their answers make one
- `heads`: does a head have an attention pattern, and does the metric rest on it?
- `circuit`: do these edges do what the whole model does, and are they needed?
- `pair`: does a head check for a skip-bigram?
- `algorithm`: does a one-layer model sort by the algorithm that is claimed?
- `direction`: does a direction read a function of features, carry the answers, or steer them?
- `site`: activations of one hook and position, and the model run with them changed
- `threshold`: thresholds on a score per prompt; stability of an effect over prompts
- `result`: claims with their answers, the verdict over all of them, the figure
"""
