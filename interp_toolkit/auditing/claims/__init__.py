"""Claims about a model: their kinds, files and wording, and what is fixed before testing.

- `kinds`: the kinds of claims, read from YAML or JSON, flags or a sentence
- `grammar`: the sentences that are read as claims about heads, and the sentence of each claim
- `circuit_files`: circuits in the edge formats of EAP-IG, MIB and auto-circuit
- `plan`: the tests of each claim, and their level
- `sentence`: whether the wording of a claim is stronger than its tests can support
- `seal`: the plan, stored with its hash before the data are seen
"""
