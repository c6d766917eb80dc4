#!/bin/sh
# concept-erasure 0.2.4 with torch 2.13.0: integer labels of three classes are taken for a number.
#
# Guess: `LeaceEraser.fit(x, z)` with labels 0, 1, 2 (as its README passes 0 and 1) erases the classes:
# their means are equal behind it, and no linear probe is better than the commonest class.
# Seen: only the linear trend in z is erased. If class 1 alone differs, its mean stays where it was;
# with one column for each class the means are equal.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install -q "torch==2.13.0" "concept-erasure==0.2.4" "scikit-learn==1.9.1"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from concept_erasure import LeaceEraser
from sklearn.linear_model import LogisticRegression

torch.manual_seed(0)
z = torch.arange(3).repeat(400)
x = torch.randn(len(z), 16, dtype=torch.float64)
x[:, 0] += 4.0 * (z == 1)


def spread(rows):
    """The largest distance of a class's mean from the mean of all."""
    return max(float((rows[z == k].mean(0) - rows.mean(0)).norm()) for k in range(3))


def probe(rows):
    """The accuracy of a linear probe, in sample."""
    return LogisticRegression(C=100, max_iter=2000).fit(rows, z).score(rows, z)


columns = torch.nn.functional.one_hot(z).double()
for name, labels in {"labels": z, "columns": columns}.items():
    erased = LeaceEraser.fit(x, labels)(x)
    print(f"{name}: means differ by {spread(erased):.2f} ({spread(x):.2f} before), "
          f"a linear probe has {probe(erased):.2f} ({probe(x):.2f} before; a guess 0.33)")
    if name == "labels":
        assert spread(erased) > 0.9 * spread(x) and probe(erased) > 0.5, "classes are erased now"
    else:
        assert spread(erased) < 1e-6 and probe(erased) < 0.45
PYTHON
