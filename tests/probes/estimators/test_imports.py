"""What importing the estimators loads, in a new process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HEAVY = {
    "torch",
    "transformer_lens",
    "pandas",
    "datasets",
    "pyarrow",
    "plotly",
    "sympy",
    "networkx",
}
#: scikit-learn 1.9 itself imports pandas where it is installed, and pandas imports pyarrow: without
#: pandas, nothing but this package can load them
CODE = """
import sys
sys.modules["pandas"] = None
{statement}
print(*{{name.split(".")[0] for name, module in sys.modules.items() if module}})
"""


@pytest.mark.parametrize(
    ("statement", "left_out"),
    [
        (
            "from interp_toolkit.probes import (\n"
            "    BooleanProbe, LogisticProbe, UANDReadout, XORProbe, check_separability\n"
            ")",
            HEAVY,
        ),
        (
            "from interp_toolkit.probes import check_separability\n"
            "check_separability([[0.0], [1.0]], [[0.5], [2.0]])",
            HEAVY | {"sklearn", "joblib"},
        ),
    ],
    ids=["estimators", "separability"],
)
def test_estimators_load_numpy_scipy_and_scikit_learn_only(statement, left_out):
    ran = subprocess.run(
        [sys.executable, "-c", CODE.format(statement=statement)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(ran.stdout.split())
    assert {"numpy", "scipy", "interp_toolkit"} <= loaded
    assert loaded & left_out == set()
