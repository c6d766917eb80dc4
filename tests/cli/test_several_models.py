"""`interp analyze A B C`, folders of checkpoints, and `interp compare`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import interp_toolkit as it
from interp_toolkit.models.loading.source_names import models_named


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three checkpoints, as along a training, and what lies beside them."""
    place = tmp_path / "run"
    place.mkdir()
    for step, toy in ((100, "xor-2head"), (20, "xor-1head"), (0, "xor-1head")):
        it.save(it.load(f"toy:{toy}"), place / f"seed-0-step-{step}.safetensors")
    (place / "metrics.jsonl").write_text("{}\n")
    return place


def test_a_folder_is_its_checkpoints_in_the_order_of_their_numbers(folder: Path) -> None:
    found = models_named([str(folder), "toy:induction"])
    steps = [f"{folder}/seed-0-step-{n}.safetensors" for n in (0, 20, 100)]
    assert found == [*steps, "toy:induction"]


def test_a_hugging_face_folder_is_one_model(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    assert models_named([str(tmp_path)]) == [str(tmp_path)]  # its error says what is missing
    (tmp_path / "model-00001-of-00002.safetensors").touch()
    assert models_named([str(tmp_path)]) == [str(tmp_path)]
    (tmp_path / "other.pt").touch()
    assert len(models_named([str(tmp_path)])) == 3
    (tmp_path / "config.json").touch()
    assert models_named([str(tmp_path)]) == [str(tmp_path)]


def test_several_models_are_one_report_with_a_table(call, folder: Path, tmp_path: Path) -> None:
    html, written = tmp_path / "r.html", tmp_path / "r.json"
    code, out, _ = call(
        *("analyze", folder, "--probe", "xor", "--html", html, "--json", written, "--quiet")
    )
    assert code == 0
    lines = out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        f"xor of seed-0-step-{n}.safetensors" for n in (0, 20, 100)
    ]
    found = json.loads(written.read_text())
    assert [r["evidence"]["status"] for r in found["results"]] == [
        *["not_separable"] * 2,
        "separable",
    ]
    assert found["model"] is None
    assert "Side by side" in html.read_text()


def test_one_bad_file_loses_no_other(call, folder: Path, tmp_path: Path) -> None:
    bad, written = tmp_path / "bad.pt", tmp_path / "r.json"
    bad.write_bytes(b"no model")
    code, out, err = call(
        *("analyze", bad, folder / "seed-0-step-100.safetensors", "--probe", "xor"),
        *("--json", written),
    )
    assert code == 2
    assert "left out of 2 models" in err
    assert str(bad) in err.splitlines()[-1]
    assert "separable" in out
    assert len(json.loads(written.read_text())["results"]) == 1


def test_where_all_are_bad_one_line_says_so(call, tmp_path: Path) -> None:
    for name in ("a.pt", "b.pt"):
        (tmp_path / name).write_bytes(b"no model")
    code, out, err = call("analyze", tmp_path, "--probe", "xor", "--quiet")
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert "(and 1 more)" in err


def test_one_graph_is_of_one_model(call, tmp_path: Path) -> None:
    graph = tmp_path / "g.json"
    code, _, err = call(
        *("analyze", "toy:induction", "toy:induction-trained", "--probe", "circuit"),
        *("--graph", graph),
    )
    assert code == 2
    assert "of one model; 2 are given" in err
    assert not graph.exists()


def test_compare_says_what_differs(call, tmp_path: Path, texts, analyzed) -> None:
    files = []
    for toy in ("xor-1head", "xor-2head"):
        files.append(tmp_path / f"{toy}.json")
        it.write_json([it.analyze(f"toy:{toy}", "xor")], files[-1])
    html = tmp_path / "c.html"
    code, out, _ = call("compare", *files, "--html", html)
    assert code == 0
    texts(" ".join(out.replace("│", " ").split()), numbers=False)
    assert "Verdicts" in html.read_text()
    code, _, err = call("compare", files[0], tmp_path / "no.json")
    assert code == 2
    assert len(err.splitlines()) == 1
    code, _, err = call("compare", *files, "--json", files[0])
    assert code == 2
    assert "would overwrite A.json" in err
    assert analyzed("toy:xor-1head", "xor").status == "not_separable"
