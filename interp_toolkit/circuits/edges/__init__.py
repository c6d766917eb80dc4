"""Circuits: the edges between heads, MLPs, input and logits that carry a task: `--probe circuit`.

- `wiring`: the nodes and edges of a transformer, under EAP-IG's names
- `passes`: forward passes with edges ablated, paths patched, and attribution
- `search`: the steps: choose edges on one half of the prompts, judge them on the other
- `exhaustive`: the choice where every edge can be ablated alone
- `screened`: the choice by attribution, then exact ablation, where there are too many edges
- `faithfulness`: the fraction of the metric that a circuit keeps alone
- `checks`: independence, minimality and stability of the circuit on held-out prompts
- `circuit`: the records of a circuit: each edge, its effect, how it was judged
- `graph`: the circuit as a networkx graph
- `export`: that graph as GraphML, node-link JSON or EAP-IG's JSON
- `analysis`: the probe: status, the finding, its sentences and tables
- `figures`: the graph, the map of heads, the fraction kept by size
"""
