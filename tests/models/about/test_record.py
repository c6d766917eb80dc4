"""What is recorded of a model, and what a result tells of it."""

import interp_toolkit as it
from interp_toolkit.models.about.record import ModelRecord, provenance, set_record


def test_provenance_tells_no_place_outside_the_working_folder(tmp_path, monkeypatch):
    inside = tmp_path / "work" / "runs"
    inside.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    paths = []
    for path in (inside / "a.pt", tmp_path / "b.pt"):
        model = it.load("toy:xor-2head")
        set_record(model, ModelRecord(path.name, "checkpoint", path=str(path)))
        paths.append(provenance(model, {}, {}, 0).model["path"])
    assert paths == ["runs/a.pt", "b.pt"]
