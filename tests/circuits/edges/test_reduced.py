"""A circuit kept as a model computes what `run_edges` does, and is loaded and analyzed as one."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import interp_toolkit as it
from interp_toolkit import registry
from interp_toolkit.circuits import circuit_model, repeated_prompts, run_edges
from interp_toolkit.circuits.edges.passes.edge_ablation import SubcircuitPass
from interp_toolkit.circuits.edges.passes.patched_pass import PatchedModel
from interp_toolkit.errors import InputError
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.transformer.circuit import CircuitTransformer, refusal
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer

N_POS = 9
SIZES = {"n_layers": 2, "d_model": 12, "d_head": 4, "n_heads": 3, "n_ctx": 16, "d_vocab": 11}
KINDS = {
    "attention only": {"attn_only": True},
    "gpt2": {"d_mlp": 20, "act_fn": "gelu_new", "normalization_type": "LN"},
    "grouped, rotary, gated": {
        "d_mlp": 20,
        "act_fn": "silu",
        "gated_mlp": True,
        "normalization_type": "RMS",
        "n_heads": 4,
        "n_key_value_heads": 2,
        "positional_embedding_type": "rotary",
        "rotary_dim": 4,
        "biases": False,
    },
}


def random_model(kind: str, seed: int = 0) -> Transformer:
    model = Transformer(TransformerConfig(**{**SIZES, **KINDS[kind]}, seed=seed)).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            noise = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            weight.add_(0.3 * noise)
    return model


def tokens_of(rows: int, seed: int, n_pos: int = N_POS) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 11, (rows, n_pos), generator=generator)


def some_edges(model: Transformer, fraction: float, seed: int = 0) -> list[str]:
    names = [edge.name for edge in PatchedModel(model).wiring.edges]
    order = torch.randperm(len(names), generator=torch.Generator().manual_seed(seed)).tolist()
    return [names[i] for i in order[: round(fraction * len(names))]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.8, 1.0])
def test_its_logits_are_those_of_the_edges(kind, fraction):
    model, prompts = random_model(kind), tokens_of(6, 1)
    edges = some_edges(model, fraction)
    reduced = circuit_model(model, prompts, edges)
    expected = run_edges(model, prompts, edges, ablation="mean")
    torch.testing.assert_close(reduced(prompts), expected)
    new = tokens_of(5, 2)
    engine = PatchedModel(model)
    passes = SubcircuitPass(engine, engine.embedded(new), list(reduced.reference))
    on_new = passes.logits(edges_of(engine, edges))
    torch.testing.assert_close(reduced(new), on_new)
    if fraction == 1.0:  # nothing is ablated
        torch.testing.assert_close(reduced(new), model(new))
    if fraction == 0.0:  # the same for every prompt
        torch.testing.assert_close(reduced(new), reduced(new[:1]).expand_as(on_new))
    shorter = tokens_of(3, 4, n_pos=5)
    longer = torch.cat([shorter, shorter[:, :4]], 1)
    torch.testing.assert_close(reduced(shorter), reduced(longer)[:, :5])


def edges_of(engine, names):
    by_name = {edge.name: edge for edge in engine.wiring.edges}
    return [by_name[name] for name in names]


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_a_file_of_it_is_read_back_with_its_origin(tmp_path, suffix):
    model = random_model("gpt2")
    reduced = circuit_model(model, tokens_of(6, 1), some_edges(model, 0.5))
    path = tmp_path / f"circuit{suffix}"
    it.save(reduced, path)
    again = it.load(path)
    torch.testing.assert_close(again(tokens_of(4, 3)), reduced(tokens_of(4, 3)), rtol=0, atol=0)
    assert again.edges == reduced.edges
    assert again.circuit == reduced.circuit
    assert again.circuit["rows"] == 6
    [phrase] = record_of(again).notes
    assert "6 prompts" in phrase
    it.save(again, tmp_path / "twice.safetensors")
    assert it.load(tmp_path / "twice.safetensors").circuit == reduced.circuit


def test_a_head_outside_the_circuit_has_no_effect_and_one_inside_has(tmp_path):
    model = it.load("toy:induction")
    prompts = repeated_prompts(model, rows=12, n_pos=32)
    edges = ["input->L0H1<q>", "input->L0H1<k>", "input->L0H1<v>", "L0H1->L1H0<k>"]
    edges += ["input->L1H0<q>", "input->L1H0<v>", "L1H0->logits"]
    reduced = circuit_model(model, prompts, edges)
    intact = reduced(prompts.tokens)
    for name, inside in (("L1H1", False), ("L0H0", False), ("L1H0", True), ("L0H1", True)):
        with it.ablate(reduced, heads=[name], how="zero"):
            change = (reduced(prompts.tokens) - intact).abs().max().item()
        assert (change > 0.1) is inside


def test_the_command_keeps_a_model_that_analyses_run_on(tmp_path):
    path = tmp_path / "circuit.safetensors"
    result = it.analyze("toy:induction", "circuit", keep_circuit=str(path))
    reduced = it.load(path)
    assert set(reduced.edges) == {edge.edge for edge in result.edges}
    assert "keep_circuit" not in result.provenance.settings
    heads = it.analyze(str(path), "heads")
    assert heads.status == "detected"
    detected = {(h.detector, h.name) for h in heads.heads if h.detected}
    assert detected == {("induction", "L1H0"), ("previous-token", "L0H1")}
    assert "edges of toy:induction" in heads.provenance.model["notes"][0]


OF_WHOLE_MODELS = (
    *("circuit", "composition", "skip-bigrams", "logit-attribution", "collapse", "qk", "ov"),
    *("roles", "sorting", "universal-keys", "xor", "and", "uand"),
)


@pytest.mark.parametrize("probe", OF_WHOLE_MODELS)
def test_analyses_of_the_residual_stream_and_of_weights_refuse_it_alike(tmp_path, probe):
    """They would speak of the whole model."""
    path = tmp_path / "circuit.safetensors"
    model = it.load("toy:induction")
    prompts = repeated_prompts(model, rows=8, n_pos=32)
    circuit = circuit_model(model, prompts, ["input->L1H0<v>", "L1H0->logits"])
    it.save(circuit, path)
    with pytest.raises(InputError) as error:
        it.analyze(str(path), probe)
    assert str(error.value) == refusal(circuit)
    assert registry.find("probes", probe).unfit(it.load(path), None) == refusal(circuit)


@pytest.mark.parametrize("probe", ["heads", "patching"])
def test_analyses_of_attention_and_of_nodes_run_on_it(probe):
    model = it.load("toy:induction")
    prompts = repeated_prompts(model, rows=8, n_pos=32)
    names = [edge.name for edge in PatchedModel(model).wiring.edges]
    found = it.analyze(circuit_model(model, prompts, names), probe)
    assert found.status == it.analyze(model, probe).status


@pytest.mark.parametrize("kind", KINDS)
def test_doctor_finds_what_its_hooks_promise(kind):
    """Compared with its own run: a fresh copy of it, and what its hooks see."""
    model = random_model(kind).float()
    reduced = circuit_model(model, tokens_of(6, 1), some_edges(model, 0.6))
    found = it.doctor(reduced)
    assert found.status == "sound"
    assert not [c for c in found.checks if c.answer in ("failed", "undecided")]


def test_other_models_edges_and_paths_are_refused(tmp_path):
    model, prompts = random_model("gpt2"), tokens_of(4, 0)
    with pytest.raises(InputError, match="L9H0"):
        circuit_model(model, prompts, ["L9H0->logits"])
    reduced = circuit_model(model, prompts, ["input->logits"])
    with pytest.raises(InputError):
        circuit_model(reduced, prompts, ["input->logits"])
    with pytest.raises(InputError):
        reduced(tokens_of(2, 0, n_pos=N_POS + 1))
    it.save(it.load("toy:induction"), tmp_path / "own.pt")
    before = (tmp_path / "own.pt").read_bytes()
    for name in ("model.txt", "no/folder/model.pt", "own.pt"):
        with pytest.raises(InputError):
            it.analyze(str(tmp_path / "own.pt"), "circuit", keep_circuit=str(tmp_path / name))
    assert (tmp_path / "own.pt").read_bytes() == before


def test_only_a_circuit_that_was_kept_before_is_replaced(tmp_path, texts):
    path = tmp_path / "kept.pt"
    runs = [it.analyze("toy:induction", "circuit", keep_circuit=str(path)) for _ in range(2)]
    told = [[note for note in run.notes if path.name in note] for run in runs]
    assert [len(notes) for notes in told] == [1, 1]
    assert told[0] != told[1]  # the second replaces a file
    texts(told)
    assert set(it.load(path).edges) == {edge.edge for edge in runs[1].edges}
    for name, write in (("other.pt", it.save), ("notes.pt", lambda _, file: file.write_text("x"))):
        other = tmp_path / name
        write(it.load("toy:xor-2head"), other)
        before = other.read_bytes()
        with pytest.raises(InputError, match=name):
            it.analyze("toy:induction", "circuit", keep_circuit=str(other))
        assert other.read_bytes() == before


@pytest.mark.parametrize(
    "edges",
    [
        ["L9H0->logits"],
        ["logits->input"],
        [3],
        "input->logits",
        ["L1H0->L0H0<q>"],
        ["MLP0->MLP0"],
    ],
)
def test_a_damaged_file_is_one_line(tmp_path, edges):
    model = random_model("gpt2")
    path = tmp_path / "circuit.safetensors"
    it.save(circuit_model(model, tokens_of(4, 0), ["input->logits"]), path)
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        about = json.loads(file.metadata()["interp_toolkit"])
    about["circuit"]["edges"] = edges
    save_file(tensors, path, {"interp_toolkit": json.dumps(about)})
    with pytest.raises(InputError) as error:
        it.load(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "edges",
    [None, 5, {"L0H1->L1H0<k>": 1}, [3], ["L" + "9" * 5000 + "H0->logits"], ["L\u0661H0->logits"]],
)
def test_a_record_of_other_edges_is_refused(edges):
    with pytest.raises(InputError):
        CircuitTransformer(it.load("toy:induction").cfg, {"edges": edges})


def test_a_circuit_is_told_from_the_model_that_it_is_of():
    model = it.load("toy:induction")
    prompts = repeated_prompts(model, rows=8, n_pos=24)
    circuit = circuit_model(model, prompts, ["input->L1H0<v>", "L1H0->logits"])
    about = it.analyze(circuit, "heads").provenance.model
    assert about["name"] != "toy:induction"
    assert about["config"]["n_ctx"] == 24
    assert about["notes"]
