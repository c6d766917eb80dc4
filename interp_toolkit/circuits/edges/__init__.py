"""Circuits: the edges between heads, MLPs, input and logits that carry a task: `--probe circuit`.

- `wiring`: the nodes and edges of a transformer, under EAP-IG's names
- `passes`: forward passes with edges ablated, paths patched, and attribution
- `screened`: the choice by attribution, then exact ablation, where there are too many edges
- `circuit`: the records of a circuit: each edge, its effect, and how it was selected
- `analysis`: the probe: status, the finding, its sentences and tables
- `figures`: the graph, the map of heads, the fraction kept by size
- `checks`: faithfulness of a circuit, with its interval; minimality, stability, rivals
- `search`: finds a circuit: every edge ablated, or those that attribution chose
- `graph`: the circuit as a networkx graph, and as files
- `exchange`: the graph in the formats of auto-circuit and Neuronpedia
- `run`: a model with only some edges intact, for other code
- `reduced`: a circuit as a model of its own
"""
