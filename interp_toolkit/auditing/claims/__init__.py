"""Claims about a model: their kinds, files and wording, and what is fixed before testing.

- `kinds`: the kinds of claims, read from YAML or JSON, flags or a sentence
- `circuit_files`: circuits in the edge formats of EAP-IG, MIB and auto-circuit
- `plan`: which tests each claim gets, and at which level
- `sentence`: whether the wording of a claim says more than its tests can show
- `seal`: the plan written down with its hash before the data are seen
"""
