"""A boolean function's values, handed to a probe that takes its features."""

import numpy as np
import pytest
import torch

from interp_toolkit.errors import LONGEST, InputError
from interp_toolkit.probes import BooleanProbe, LogisticProbe, XORProbe
from interp_toolkit.probes.estimators.truth_tables import TABLES, truth_values

AB = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=bool)
X = np.column_stack([AB, AB.all(1)]).astype(float)
XOR = AB[:, 0] != AB[:, 1]


def refusal(call, *arguments):
    with pytest.raises(InputError) as refused:
        call(*arguments)
    return str(refused.value)


@pytest.mark.parametrize(
    "values",
    [XOR, XOR.astype(float), XOR.tolist(), torch.from_numpy(XOR), XOR[:, None]],
    ids=["booleans", "numbers", "list", "tensor", "column"],
)
@pytest.mark.parametrize(
    ("probe", "name"),
    [(XORProbe(), "XOR"), *((BooleanProbe(table), name.upper()) for name, table in TABLES.items())],
)
def test_values_in_place_of_features_are_refused(probe, name, values):
    said = refusal(probe.fit, X, values)
    for part in ("LogisticProbe", str(tuple(np.shape(values))), f"their {name};"):
        assert part in said
    fitted = probe.fit(X, AB)
    assert refusal(fitted.score, X, values) == said


@pytest.mark.parametrize("n_features", [1, 3, 12])
def test_the_message_is_short_for_any_table(n_features):
    table = "01" * 2 ** (n_features - 1)
    said = refusal(truth_values, table, XOR)
    assert "LogisticProbe" in said
    assert "(4,)" in said
    assert len(said) <= LONGEST


@pytest.mark.parametrize("shape", [(), (4, 3), (4, 2, 1)])
def test_other_shapes_are_not_taken_for_values(shape):
    assert "LogisticProbe" not in refusal(XORProbe().fit, X, np.zeros(shape))


def test_labels_are_fitted_by_the_probe_that_the_message_names():
    by_bits, by_labels = XORProbe().fit(X, AB), LogisticProbe().fit(X, XOR)
    np.testing.assert_array_equal(by_bits.coef_, by_labels.coef_)
