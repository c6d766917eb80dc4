"""A program or an agent proposes ten claims about a model; `audit` tests each of them.

Run: python examples/check_claims.py [FOLDER]    writes claims.json and answers.json there
"""

import json
import sys
from pathlib import Path

import numpy as np

import interp_toolkit as it

# --8<-- [start:claims]
PROPOSED = [
    {"heads": ["L1H0"], "relation": "induction", "says": "attends"},
    {"heads": ["L1H0"], "relation": "induction", "says": "carries"},
    {"heads": ["L1H1"], "relation": "induction", "says": "attends"},
    {"heads": ["L1H1"], "relation": "induction", "says": "contributes"},
    {"heads": ["L1H1"], "relation": "induction", "says": "carries"},
    {"heads": ["L0H1"], "relation": "previous-token", "says": "carries"},
    {"heads": ["L0H0"], "relation": "previous-token", "says": "attends"},
    {"heads": ["L1H0"], "relation": "duplicate-token", "says": "attends"},
    {
        "circuit": [
            *("input->L0H1<v>", "L0H1->L1H0<k>"),
            *("input->L1H0<q>", "input->L1H0<v>", "L1H0->logits"),
        ],
        "says": "sufficient",
    },
    {"circuit": ["input->L1H1<q>", "input->L1H1<v>", "L1H1->logits"], "says": "sufficient"},
]
# --8<-- [end:claims]

# --8<-- [start:audit]
folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
folder.mkdir(parents=True, exist_ok=True)
(folder / "claims.json").write_text(json.dumps({"claims": PROPOSED}, indent=2))

rng = np.random.default_rng(0)
prompts = np.array([np.tile(rng.permutation(64)[:16], 2) for _ in range(16)])  # repeated tokens
result = it.audit("toy:induction-decoy", folder / "claims.json", data=prompts)
it.write_json([result], folder / "answers.json")

[answers] = json.loads((folder / "answers.json").read_text())["results"]
for claim in answers["claims"]:
    print(f"{claim['answer']}: {claim['about']}")
    if claim["answer"] != "confirmed":
        [reason, *_] = [
            p for p in claim["parts"] if p["asserted"] and p["answer"] == claim["answer"]
        ]
        print(f"    {reason['summary']}")
# --8<-- [end:audit]
