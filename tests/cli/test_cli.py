"""The command line as a user meets it: real processes, exit codes, one line for what is wrong."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import interp_toolkit as it
from interp_toolkit.cli.descriptions import setting_descriptions
from interp_toolkit.registry import find, names

ROOT = Path(__file__).resolve().parents[2]


def lines(text: str) -> list[str]:
    """What is said on standard error apart from the progress lines."""
    return [line for line in text.splitlines() if line.strip() and not line.startswith("  ")]


@pytest.mark.parametrize(
    "statement", ["import interp_toolkit", "import interp_toolkit.cli.main", "import cli, circuits"]
)
def test_importing_takes_no_torch(statement: str) -> None:
    heavy = ("torch", "transformer_lens", "sklearn", "scipy", "pandas", "plotly", "sae_lens")
    code = f"import sys; {statement}; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert found.stdout.strip() == "[]"


def test_help_and_version_import_no_torch_either() -> None:
    for arguments in (["analyze", "--help"], ["--version"]):
        code = (
            f"import sys; sys.argv = {['interp', *arguments]}\n"
            "from interp_toolkit.cli.main import main\n"
            "try: main()\n"
            "finally: sys.stderr.write(str('torch' in sys.modules))"
        )
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert found.returncode == 0
        assert found.stderr.endswith("False")
    assert found.stdout.strip() == it.__version__


def test_the_top_level_links_give_the_very_same_class() -> None:
    code = (
        "from probes import XORProbe\nfrom interp_toolkit.probes import XORProbe as same\n"
        "print(XORProbe is same)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert found.stdout.strip() == "True", found.stderr


def test_analyze_writes_everything_asked_for(call, tmp_path: Path, texts) -> None:
    report, document = tmp_path / "r.html", tmp_path / "r.json"
    code, out, err = call(
        "analyze", "toy:xor-2head", "--probe", "xor", "--json", document, "--html", report
    )
    assert code == 0
    texts(" ".join(out.replace("│", " ").split()))
    assert json.loads(document.read_text())["results"][0]["sites"][0]["status"] == "separable"
    assert report.stat().st_size > 5e5
    assert "ablating L0H1" in err


def test_json_to_standard_output_is_alone_there(call) -> None:
    code, out, err = call("analyze", "toy:xor-1head", "--probe", "xor", "--json", "-")
    assert code == 0
    assert json.loads(out)["results"][0]["sites"][0]["status"] == "not_separable"
    assert "not linearly separable" in err
    code, out, err = call("analyze", "toy:xor-1head", "--probe", "xor", "--json", "-", "--quiet")
    assert json.loads(out)
    assert err == ""


def test_quiet_prints_verdicts_only(call) -> None:
    code, out, err = call("analyze", "toy:xor-2head", "--probe", "xor", "--probe", "or", "--quiet")
    assert code == 0
    assert len(out.splitlines()) == 2
    assert err == ""


def test_without_a_probe_what_fits_runs(call) -> None:
    code, out, _ = call("analyze", "toy:or-1head", "--quiet")
    assert code == 0
    assert len(out.splitlines()) == 3  # xor, and, or


def test_train_then_analyze_a_checkpoint_that_knows_its_task(call, tmp_path: Path, texts) -> None:
    path = tmp_path / "m.pt"
    code, out, _ = call("train", "xor", "--seeds", 2, "--set", "d_model=6", "--out", path)
    assert code == 0
    assert "of 2 seeds solve it" in out
    assert "saved:" not in out
    code, out, _ = call("analyze", path, "--probe", "xor", "--quiet")
    assert (code, "is linearly separable" in out) == (0, True)
    code, out, _ = call("info", path)
    assert code == 0
    assert "d_model 6" in " ".join(out.split())
    code, out, _ = call("train", "xor", "--variant", "1-head", "--steps", 200, "--seeds", 1)
    texts(out, numbers=False)


def test_info_of_a_checkpoint_that_leaves_settings_open(call, tmp_path: Path) -> None:
    path = tmp_path / "bare.pth"
    torch.save(it.load("toy:xor-1head-mlp").state_dict(), path)
    code, out, err = call("info", path)
    said = " ".join(out.split())
    assert (code, err) == (0, "")
    assert "n_layers 1" in said
    assert "attention_dir=causal" in said
    assert "--set act_fn=relu" in said
    given = ["--set", "act_fn=relu", "--set", "positional_embedding_type=none"]
    code, out, _ = call("info", path, *given)
    assert (code, "act fn relu" in " ".join(out.split())) == (0, True)


def test_keys_and_ignore(call, tmp_path: Path, texts) -> None:
    model = it.load("toy:induction")
    state = {name.replace("embed.W_E", "tokens"): t for name, t in model.state_dict().items()}
    torch.save({**state, "more": torch.zeros(2)}, tmp_path / "model.pt")
    (tmp_path / "keys.json").write_text('{"tokens": "embed.W_E"}')
    given = [tmp_path / "model.pt", "--keys", tmp_path / "keys.json"]
    code, _, err = call("info", *given)
    assert (code, err.count("\n"), "more" in err) == (2, 1, True)
    texts(err)
    code, out, _ = call("info", *given, "--ignore", "more")
    assert (code, "n_layers 2" in " ".join(out.split())) == (0, True)
    code, _, err = call("analyze", *given, "--probe", "heads", "--json", tmp_path / "keys.json")
    assert (code, "would overwrite --keys" in err) == (2, True)


def test_a_bare_state_dict_with_tokens_and_settings(call, tmp_path: Path) -> None:
    path = tmp_path / "bare.pth"
    torch.save(it.load("toy:xor-1head-mlp").state_dict(), path)
    code, _, err = call("analyze", path, "--probe", "xor", "--tokens", "0=0,1=1,query=2")
    assert code == 2
    assert "act_fn" in lines(err)[-1]
    tokens = ("--tokens", "0=0,1=1,query=2", "--quiet")
    said = ("--set", "act_fn=relu", "--set", "positional_embedding_type=none")
    code, out, _ = call("analyze", path, "--probe", "xor", *said, *tokens)
    assert (code, "is linearly separable" in out) == (0, True)
    config = tmp_path / "cfg.json"
    config.write_text('{"act_fn": "relu", "positional_embedding_type": "none"}')
    again = call("analyze", path, "--probe", "xor", "--config", config, *tokens)
    assert again[1] == out


def test_labelled_prompts_from_a_file(call, tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    rows = [
        {"tokens": [a, b, 2], "a": bool(a), "b": bool(b), "position": 2}
        for a in (0, 1)
        for b in (0, 1)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    code, out, _ = call("analyze", "toy:xor-2head", "--probe", "xor", "--data", path, "--quiet")
    assert (code, "is linearly separable" in out) == (0, True)


def test_lists(call) -> None:
    code, out, _ = call("list")
    assert code == 0
    for name in ("xor", "boolean", "toy:xor-2head", "recipes"):
        assert name in out
    assert call("list", "toys")[1].count("toy:") >= 5


class TouchesAFile:
    """A pickle of this would run code if anybody let it."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))


@pytest.fixture
def bad_files(tmp_path: Path) -> dict[str, Path]:
    good = it.load("toy:xor-2head").state_dict()
    files = {name: tmp_path / name for name in ("empty.pt", "text.pt", "code.pt", "model.pt")}
    files["empty.pt"].write_bytes(b"")
    files["text.pt"].write_text("I am no checkpoint\n")
    torch.save({"state_dict": TouchesAFile(tmp_path / "ran")}, files["code.pt"])
    torch.save(it.load("toy:xor-2head"), files["model.pt"])
    broken = {
        "missing.pt": {k: v for k, v in good.items() if not k.endswith("W_O")},
        "extra.pt": {**good, "blocks.0.attn.W_X": torch.zeros(2)},
        "misshapen.pt": {**good, "unembed.W_U": torch.zeros(4, 2)},
        "nan.pt": {**good, "embed.W_E": good["embed.W_E"] * float("nan")},
        "whole.pt": good,
    }
    for name, state in broken.items():
        files[name] = tmp_path / name
        torch.save(state, files[name])
    files["truncated.pt"] = tmp_path / "truncated.pt"
    whole = files.pop("whole.pt").read_bytes()
    files["truncated.pt"].write_bytes(whole[: len(whole) // 2])
    files["objects.npz"] = tmp_path / "objects.npz"
    np.savez(files["objects.npz"], weights=np.array([TouchesAFile(tmp_path / "ran")], dtype=object))
    files["folder"] = tmp_path / "folder"
    files["folder"].mkdir()
    files["remote"] = tmp_path / "remote"
    files["remote"].mkdir()
    config = {"model_type": "mine", "auto_map": {"AutoModelForCausalLM": "mine.Model"}}
    (files["remote"] / "config.json").write_text(json.dumps(config))
    (files["remote"] / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    files["absent.pt"] = tmp_path / "absent.pt"
    return files


def test_bad_files_are_one_clear_line_and_run_nothing(call, bad_files, tmp_path: Path) -> None:
    for name, path in bad_files.items():
        code, out, err = call("analyze", path, "--probe", "xor", "--tokens", "0=0,1=1,query=2")
        assert code == 2, (name, err)
        assert out == "", name
        (line,) = lines(err)
        assert line.startswith("interp: "), name
        assert "Traceback" not in err
        assert name.split(".")[0] in line or name in ("folder",), (name, line)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["analyze", "toy:xor-3head", "--probe", "xor"],
        ["analyze", "toy:xor-2head", "--probe", "xr"],
        ["analyze", "toy:xor-2head", "--probe", "xor", "--table", "0110"],
        ["analyze", "toy:induction", "--probe", "boolean"],
        ["analyze", "toy:xor-2head", "--probe", "xor", "--tokens", "0=a"],
        ["analyze", "toy:xor-2head", "--probe", "xor", "--position", "last"],
        ["analyze", "toy:xor-2head", "--probe", "xor", "--hook", "resid_pst"],
        ["analyze", "toy:xor-2head", "--probe", "xor", "--data", "none.npz"],
        ["analyze", "toy:xor-2head", "--probe", "xor", "--memory", "lots"],
        ["analyze", "toy:xor-2head", "--probe", "xor", "--device", "tpu"],
        ["analyze", "toy:xor-2head", "--probe", "xor", "--html", "no/such/r.html"],
        ["analyze", "toy:xor-2head", "--probe", "xor", "--config", "no.json"],
        ["analyze", "toy:xor-2head", "--probe", "xor", "--set", "act_fn"],
        ["train", "sort"],
        ["train", "xor", "--variant", "3-head"],
        ["train", "xor", "--preset", "huge"],
        ["train", "xor", "--set", "head=3"],
        ["train", "xor", "--set", "heads=many"],
        ["train", "xor", "--steps", "0"],
        ["train", "xor", "--out", "no/such/m.pt"],
        ["list", "toy"],
        ["list", "toys", "probes"],
        ["analyse", "toy:xor-2head"],
        ["analyze"],
        ["--quiet", "analyze", "toy:xor-2head"],
        ["analyze", "toy:xor-2head", "--prob", "xor"],
        ["analyze", "", "--probe", "xor"],
        ["analyze", "~nobody-of-this-name/m.pt", "--probe", "xor"],
        ["analyze", "toy:xor-2head", "--table", "0110"],
        ["analyze", "toy:xor-2head", "--probe", "or", "--probe", "or"],
        ["analyze", "toy:xor-2head", "--probe", "xor", "--seed", "-1"],
        ["analyze", "toy:xor-2head", "--probe", "xor", "--seed", "9" * 30],
        ["analyze", "toy:xor-2head", "--probe", "xor", "--device", "meta"],
        ["analyze", "toy:xor-2head", "--probe", "xor", "--set", "device=cpu"],
        ["analyze", "toy:xor-2head", "--probe", "xor", "--set", "source=x"],
        ["analyze", "toy:xor-2head", "--probe", "xor", "--html", "-"],
        ["analyze", "toy:xor-2head", "--probe", "xor", "--json", ""],
        ["analyze", "toy:xor-2head", "--probe", "xor", "--json", "x" * 300],
        ["analyze", "toy:xor-2head", "--json", "r.out", "--html", "r.out"],
        ["analyze", "toy:xor-2head", "--probe", "xor", "--tokens", "0=0,1=1,query=" + "9" * 30],
        ["train", "xor", "--device", "gpu"],
        ["train", "xor", "--set", "device=gpu"],
        ["train", "xor", "--steps", "many"],
        ["train", "xor", "--steps", "9", "--set", "steps=9"],
        ["train", "xor", "--out", "m.txt"],
        ["train", "xor", "--out", "-"],
    ],
)
def test_bad_options_are_one_clear_line(call, arguments: list[str], texts) -> None:
    code, out, err = call(*arguments)
    assert code == 2
    assert out == ""
    (line,) = lines(err)
    assert line.startswith("interp: ")
    texts(line)
    assert "\n" not in line


@pytest.mark.parametrize("text", ["", "[" * 100_000, "[1]", "{", '{"device": "cpu"}'])
def test_a_bad_config_file_is_one_clear_line(call, tmp_path: Path, text: str) -> None:
    config = tmp_path / "cfg.json"
    config.write_text(text)
    code, out, err = call("analyze", "toy:xor-2head", "--probe", "xor", "--config", config)
    assert (code, out, len(lines(err))) == (2, "", 1)
    assert err.startswith("interp: ")


@pytest.mark.parametrize("option", ["--json", "--html"])
@pytest.mark.parametrize("read", ["m.pt", "d.jsonl", "cfg.json"])
def test_what_is_read_is_never_overwritten(call, tmp_path: Path, option: str, read: str) -> None:
    it.save(it.load("toy:xor-2head"), tmp_path / "m.pt")
    (tmp_path / "d.jsonl").write_text('{"tokens": [0, 1, 2], "a": false, "b": true}\n')
    (tmp_path / "cfg.json").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / read)
    before = (tmp_path / read).read_bytes()
    given = ("--data", tmp_path / "d.jsonl", "--config", tmp_path / "cfg.json", "--probe", "xor")
    for written in (tmp_path / read, tmp_path / "link"):
        code, _, err = call("analyze", tmp_path / "m.pt", *given, option, written)
        assert code == 2
        assert "would overwrite" in err
    assert (tmp_path / read).read_bytes() == before


def test_help_says_what_a_reader_can_use(call) -> None:
    code, out, _ = call("analyze", "--help")
    assert code == 0
    assert "<class" not in out
    assert "--no-" not in out


def test_debug_shows_the_traceback(monkeypatch) -> None:
    from interp_toolkit.cli.main import main

    given = ["interp", "analyze", "toy:nothing", "--probe", "xor", "--debug"]
    monkeypatch.setattr(sys, "argv", given)
    with pytest.raises(it.InputError):  # which Python shows with its traceback
        main()


def test_nothing_is_half_written(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "r.html"
    report.write_text("yesterday's")
    code, _, _ = call("analyze", "toy:xor-2head", "--probe", "xor", "--hook", "x", "--html", report)
    assert code == 2
    assert report.read_text() == "yesterday's"
    assert list(tmp_path.iterdir()) == [report]


def test_columns_of_the_data_are_chosen_in_order(call, tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    rows = [
        {"tokens": [a, b, 2], "b": bool(b), "noise": a == b, "a": bool(a)}
        for a in (0, 1)
        for b in (0, 1)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    table = ("--probe", "boolean", "--table", "0100", "--data", path)  # not a, but b
    _, first, _ = call("analyze", "toy:xor-1head", *table, "--column", "a", "--column", "b")
    _, again, _ = call("analyze", "toy:xor-1head", *table, "--column", "b", "--column", "a")
    assert first != again
    code, _, err = call("analyze", "toy:xor-1head", *table)
    assert code == 2
    assert "--column" in lines(err)[-1]
    code, _, err = call("analyze", "toy:xor-1head", *table, "--column", "c")
    assert (code, "no feature 'c'" in err) == (2, True)
    code, _, err = call("analyze", "toy:xor-1head", "--probe", "xor", "--column", "a")
    assert (code, "--data" in err) == (2, True)


def test_an_option_of_one_probe_does_not_hinder_another(call) -> None:
    probes = ("--probe", "xor", "--probe", "boolean", "--table", "0110")
    code, out, err = call("analyze", "toy:xor-2head", *probes, "--quiet")
    assert code == 0, err
    assert len(out.splitlines()) == 2


def test_a_layout_is_one_text_of_words(call, monkeypatch) -> None:
    monkeypatch.setattr("interp_toolkit.circuits.sorting.analysis.NULLS", 0)
    layout = "15 list10 16 sorted10"
    arguments = ("--probe", "sorting", "--layout", layout, "--json", "-")
    code, out, _ = call("analyze", "toy:sort-min-greater", *arguments)
    assert code == 0
    assert json.loads(out)["results"][0]["layout"] == layout


def test_the_circuit_is_written_as_a_graph(tmp_path: Path, call, texts) -> None:
    import networkx as nx

    path = tmp_path / "circuit.graphml"
    arguments = ["analyze", "toy:induction", "--probe", "circuit", "--graph", path, "--quiet"]
    code, out, _ = call(*arguments)
    assert code == 0
    assert "5 of 29 edges" in out
    graph = nx.read_graphml(path)
    assert graph.has_edge("L0H1", "L1H0")
    code, _, err = call("analyze", "toy:induction", "--probe", "circuit", "--graph", "a.png")
    assert (code, len(lines(err))) == (2, 1)
    assert ".graphml" in err
    code, _, err = call("analyze", "toy:induction", "--probe", "heads", "--graph", path)
    assert code == 2
    texts(err)


def test_heads_are_analysed_and_written_as_json(tmp_path: Path, call, texts) -> None:
    path = tmp_path / "heads.json"
    code, out, _ = call(
        *("analyze", "toy:induction-decoy", "--probe", "induction", "--ablate", "zero"),
        *("--json", path, "--seed", 3),
    )
    assert code == 0
    assert "negligible" in out
    heads = json.loads(path.read_text())["results"][0]["heads"]
    assert [(h["layer"], h["head"]) for h in heads if h["detected"]] == [(1, 0)]
    found = {(h["layer"], h["head"]): h["ablation_effect"] for h in heads if h["attends"]}
    assert set(found) == {(1, 0), (1, 1)}
    assert found[1, 0] > 1
    assert abs(found[1, 1]) < 1e-6
    code, out, _ = call("analyze", "toy:xor-2head", "--probe", "heads")
    assert code == 0
    texts(out)


@pytest.mark.parametrize("command", ["train", "litmus", "sweep", "reproduce"])
def test_help_is_paragraphs_as_wide_as_the_terminal(
    call, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = call(command, "--help")
    prose = [line.strip() for line in out.partition("╭")[0].splitlines()]
    pairs = [(line, after) for line, after in itertools.pairwise(prose) if line and after]
    assert code == 0
    assert pairs
    for line, after in pairs:
        assert len(f"{line} {after.split()[0]}") > 78, line


def test_a_wrong_path_is_refused_before_anything_heavy_is_imported(texts) -> None:
    code = (
        "import sys\n"
        "sys.argv = ['interp', 'analyze', 'nowhere.pt', '--probe', 'xor']\n"
        "from interp_toolkit.cli.main import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert end.code == 2, end.code\n"
        "assert not {'torch', 'transformer_lens', 'pandas'} & set(sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    texts(run.stderr)


def test_help_shows_the_options_of_the_probes_named(call) -> None:
    code, plain, _ = call("analyze", "--help")
    assert code == 0
    assert "--level" not in plain
    assert len(plain.splitlines()) < 75
    code, out, _ = call("analyze", "--probe", "uand", "--help")
    assert code == 0
    for flag in ("--level", "--gate", "--most-features", "--seed"):
        assert flag in out


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("uand", ["--level", "NUMBER", "interp analyze MODEL --probe uand", "toy uand"]),
        ("toy:xor-2head", ["interp analyze toy:xor-2head"]),
        ("retrieval", ["--set steps=", "variants", "presets"]),
        ("sorting", ["--layout", "artefact sorting", "interp reproduce sorting"]),
        ("previous-token", ["detector previous-token"]),
    ],
)
def test_show_says_what_a_name_is_and_takes(call, name, says) -> None:
    code, out, _ = call("show", name)
    assert code == 0
    for part in says:
        assert part in out, part


def test_show_describes_every_setting_of_every_recipe(call, texts) -> None:
    for name in names("recipes"):
        described = setting_descriptions(find("recipes", name).config)
        assert set(find("recipes", name).config.model_fields) <= set(described), name
    _, out, _ = call("show", "retrieval")
    texts(out)  # its own setting
    texts(" ".join(out.split()))  # a base's


def test_show_of_an_unknown_name_is_one_line(call, texts) -> None:
    code, out, err = call("show", "xro")
    assert (code, out, len(lines(err))) == (2, "", 1)
    texts(err)
    code, out, err = call("show", "nothing-like-it")
    assert (code, out, len(lines(err))) == (2, "", 1)
    assert len(err) < 100  # not a list of every name
    assert "interp list" in err


def test_what_does_not_fit_is_said(call) -> None:
    code, _, err = call("analyze", "toy:xor-2head")
    assert code == 0
    assert "not run: " in err
    for probe in ("qk", "ov", "induction", "part of heads"):
        assert probe in err


def test_columns_and_features_together_are_refused_without_a_probe_too(call) -> None:
    code, _, err = call(
        *["analyze", "toy:uand", "--data", "d.npz", "--column", "a", "--features", "embeddings"]
    )
    assert (code, len(lines(err))) == (2, 1)
    assert "--column and --features" in err


def test_words_of_options_are_no_files(tmp_path: Path, call, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, _ = call(
        "analyze", "toy:xor-2head", "--probe", "xor", "--position", "all", "--json", "all"
    )
    assert code == 0
    assert (tmp_path / "all").exists()
    code, _, err = call(
        *["analyze", "toy:uand", "--probe", "skip-bigrams", "--query-features", "all"],
        *["--json", "all"],
    )
    assert code == 2
    assert "would overwrite --query-features" in err


@pytest.mark.slow
def test_a_plugin_adds_a_command_and_takes_no_name_of_ours(tmp_path, texts) -> None:
    (tmp_path / "theirs.py").write_text(
        'def greet(name: str) -> None:\n    """Greet."""\n    print("hello", name)\n'
    )
    code = """
import sys
from importlib.metadata import EntryPoint
from interp_toolkit import registry
names = ["greet", "analyze", "list"]
theirs = [EntryPoint(name, "theirs:greet", "interp_toolkit.commands") for name in names]
registry.entry_points = lambda group: theirs if group == "interp_toolkit.commands" else []
from interp_toolkit.cli.main import main
main()
"""

    def run(*line: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, *line]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    assert run("greet", "you").stdout == "hello you\n"
    assert "--probe" in run("analyze", "--help").stdout
    listed = run("list", "detectors")
    assert "induction" in listed.stdout
    texts(listed.stderr)


def test_ctrl_c_during_knockouts_prints_and_writes_what_attention_says(
    call, tmp_path, monkeypatch, texts
):
    def stopped(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("interp_toolkit.circuits.heads.analysis.group_effects", stopped)
    written = tmp_path / "heads.json"
    code, out, err = call("analyze", "toy:induction", "--probe", "heads", "--json", written)
    assert code == 130
    assert "interp: interrupted" in err
    for text in (out, err):  # what is known at the end; the table as soon as it was
        texts(text)
        assert "L1H0" in text
    [result] = json.loads(written.read_text())["results"]
    assert result["status"] == "described"
    assert {head["causal"] for head in result["heads"]} == {"not_tested"}


def test_an_analysis_that_does_not_fit_leaves_the_results_of_those_before_it(call, tmp_path):
    """They may have taken minutes; the error and its exit code are as of the one alone."""
    file = tmp_path / "results.json"
    asked = ("analyze", "toy:xor-2head", "--quiet", "--probe", "roles")
    code, out, alone = call(*asked)
    assert code == 2
    assert not out
    asked = (*asked[:-2], "--probe", "xor", *asked[-2:], "--json", file)
    code, out, err = call(*asked)
    assert code == 2
    assert alone.strip() in err
    assert [result["probe"] for result in json.loads(file.read_text())["results"]] == ["xor"]
