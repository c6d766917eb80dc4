"""`--probe uand` and `--probe skip-bigrams` from the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest


def found(call, *arguments):
    code, out, err = call("analyze", *arguments, "--json", "-", "--quiet")
    assert code == 0, err
    return json.loads(out)["results"]


def test_a_trained_layer_and_a_gate(call):
    [result] = found(
        call, "toy:uand-trained", "--probe", "uand", "--gate", "f0,f1", "--gate", "f2,f7",
        "--table", "0110", "--reinitialisations", "3",
    )  # fmt: skip
    assert result["evidence"]["status"] == "undecided"  # three random layers are too few
    assert result["layers"][0]["counts"]["computed"] > 20
    assert [gate["gate"] for gate in result["gates"]] == ["f0, f1", "f2, f7"]
    assert result["gates"][0]["function"] == "0110"
    assert len(result["layers"][0]["random_mean_worst"]) == 3
    assert result["layers"][0]["p_better"] == 0.25


def test_a_toy_runs_what_fits(call):
    results = found(call, "toy:skip-bigrams-rotary")
    by_probe = {result["probe"]: result for result in results}
    assert "xor" not in by_probe
    assert "uand" not in by_probe
    [planted, random] = by_probe["skip-bigrams"]["heads"]
    assert len(planted["bigrams"]) > 60
    assert not random["bigrams"]
    assert planted["capacity"] == 64 * 32


def test_distances(call):
    [result] = found(
        call, "toy:skip-bigrams-rotary", "--probe", "skip-bigrams", "--head", "0",
        "--distance", "0", "--distance", "5",
    )  # fmt: skip
    assert [head["distance"] for head in result["heads"]] == [0, 5]


def test_token_sets_are_features(call, tmp_path):
    sets, data = tmp_path / "sets.json", tmp_path / "tokens.npz"
    sets.write_text(json.dumps({f"even{k}": [k, k + 1] for k in range(0, 12, 2)}))
    np.savez(data, tokens=np.random.default_rng(0).integers(0, 12, (60, 4)))
    [result] = found(
        call, "toy:uand-trained", "--probe", "uand", "--data", data, "--features", sets,
        "--reinitialisations", "0",
    )  # fmt: skip
    assert result["features"]["count"] == 6
    assert result["pairs"]["counts"]["unseen"] == 15  # a token is in one set only


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["toy:uand-trained", "--probe", "uand", "--gate", "f0"], "two to 6 different features"),
        (["toy:uand-trained", "--probe", "uand", "--gate", "f0,g1"], "no feature 'g1'"),
        (["toy:uand-trained", "--probe", "uand", "--table", "0110"], "--gate"),
        (["toy:uand-trained", "--probe", "xor", "--gate", "f0,f1"], "takes no --gate"),
        (["toy:xor-2head", "--probe", "uand"], "no data"),
        (["toy:skip-bigrams", "--probe", "skip-bigrams", "--layer", "3"], "no layer 3"),
        (["toy:skip-bigrams", "--probe", "skip-bigrams", "--head", "9"], "no head 9"),
        (["toy:skip-bigrams-rotary", "--probe", "skip-bigrams", "--distance", "-4"], "not see"),
        (["toy:uand-trained", "--probe", "uand", "--distance", "1"], "takes no --distance"),
        (["toy:uand-trained", "--probe", "uand", "--features", "embeddings"], "--data"),
    ],
)
def test_what_cannot_be_is_one_line(call, arguments, said):
    code, out, err = call("analyze", *arguments, "--quiet")
    assert code == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert not out
