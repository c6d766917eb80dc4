"""Every public function answers an object of the wrong kind with one InputError line."""

from types import SimpleNamespace

import jaxtyping
import numpy as np
import pytest
import torch
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

import interp_toolkit as it
from interp_toolkit import circuits, data, models, probes, registry, report

ROWS = torch.zeros(2, 3, dtype=torch.long)
LONGEST = 300


class Own(HookedRootModule):
    """Somebody's model: hook points, and a configuration that may lack anything."""

    def __init__(self, cfg=None):
        super().__init__()
        if cfg is not None:
            self.cfg = cfg
        self.embed, self.hook_embed = torch.nn.Embedding(20, 8), HookPoint()
        self.setup()

    def forward(self, tokens):
        return self.hook_embed(self.embed(tokens))


TOY = it.load("toy:xor-2head")
ODD = {
    "None": None,
    "a number": 3,
    "a text": "no such",
    "a list": [1, 2],
    "a tuple with a model": (TOY, None),
    "an empty mapping": {},
    "a state dict": TOY.state_dict(),
    "a class": type(TOY),
    "a layer": torch.nn.Linear(2, 2),
    "a wrapper": torch.nn.DataParallel(TOY),
    "a sequence of layers": torch.nn.Sequential(TOY),
    "a tensor": torch.ones(2, 3),
    "an array of objects": np.array(["a"], dtype=object),
    "a function": len,
    "NaN": float("nan"),
    "bytes": b"x",
    "no cfg": Own(),
    "a dictionary for cfg": Own({"d_model": 8}),
    "a cfg of one field": Own(SimpleNamespace(d_model=8)),
    "a cfg without heads": Own(SimpleNamespace(d_model=8, d_vocab=20, n_ctx=8, n_layers=0)),
}


def enter(context):
    with context:
        pass


#: calls in which the object stands for the model
AS_MODEL = {
    "ablate": lambda m: enter(it.ablate(m, [(0, 0)])),
    "activations": lambda m: list(it.activations(m, ROWS, "resid_post")),
    "collect": lambda m: models.collect(m, ROWS, "resid_post"),
    "audit": lambda m: it.audit(m, ["L0H0 is an induction head"]),
    "doctor": it.doctor,
    "load": it.load,
    "task": lambda m: it.task(m, "ioi"),
    "check_assumptions": lambda m: models.check_assumptions(m, ROWS, ROWS[:, :1], ROWS[0, :1]),
    "edit": lambda m: enter(models.edit(m, {"resid_post": lambda value, hook: value})),
    "reinitialised": lambda m: enter(models.reinitialised(m)),
    "composition_graph": circuits.composition_graph,
    "composition_scores": circuits.composition_scores,
    "find_skip_bigrams": circuits.find_skip_bigrams,
    "ov_circuit": lambda m: circuits.ov_circuit(m, 0, 0),
    "qk_circuit": lambda m: circuits.qk_circuit(m, 0, 0),
    "partners": lambda m: circuits.partners(m, None, (0, 0)),
    "repeated_prompts": circuits.repeated_prompts,
    "score_heads": circuits.score_heads,
    "sorting_fingerprint": circuits.sorting_fingerprint,
    "weight_scores": circuits.weight_scores,
}
AS_MODEL |= {
    f"analyze {name}": lambda m, name=name: it.analyze(m, name) for name in registry.names("probes")
}
#: calls in which it stands for another argument, all of which want something else
AS_ARGUMENT = {
    "save path": lambda o: it.save(TOY, o),
    "compare": lambda o: it.compare(o, o),
    "write_json": lambda o: it.write_json(o, "x.json"),
    "write_report": lambda o: it.write_report(o, "x.html"),
    "render": lambda o: report.render(o, None),
    "write_graph": lambda o: circuits.write_graph(o, "x.graphml"),
    "data_from_arrays": data.data_from_arrays,
    "parse_layout": lambda o: data.parse_layout(o, d_vocab=5, d_vocab_out=5),
    "parse_tokens": data.parse_tokens,
    "read_data": data.read_data,
    "analyze name": lambda o: it.analyze(TOY, o),
    "task name": lambda o: it.task(TOY, o),
    "ablate heads": lambda o: enter(it.ablate(TOY, o)),
    "ablate how": lambda o: enter(it.ablate(TOY, [(0, 0)], o)),
    "edits": lambda o: enter(models.edit(TOY, o)),
    "qk layer": lambda o: circuits.qk_circuit(TOY, o, 9),
    "load dtype": lambda o: it.load("toy:xor-2head", dtype="no" if o is None else o),
    "hooks": lambda o: list(it.activations(TOY, ROWS, o)),
    "rows of prompts": lambda o: circuits.repeated_prompts(TOY, rows=o),
}
#: calls in which it may be fit, or end in one line
EITHER = {
    "analyze data": lambda o: it.analyze(TOY, "xor", data=o),
    "analyze tokens": lambda o: it.analyze(TOY, "xor", tokens=o),
    "reference": lambda o: enter(it.ablate(TOY, [(0, 0)], reference=o)),
    "positions": lambda o: list(it.activations(TOY, ROWS, "resid_post", positions=o)),
    "memory": lambda o: list(it.activations(TOY, ROWS, "resid_post", memory=o)),
    "batch_size": lambda o: list(it.activations(TOY, ROWS, "resid_post", batch_size=o)),
    "edit function": lambda o: enter(models.edit(TOY, {"resid_post": o})),
    "claims": lambda o: it.audit(TOY, o),
    "prompt": lambda o: it.doctor(TOY, prompt=o),
    "tokens": lambda o: circuits.score_heads(TOY, o),
    "detectors": lambda o: circuits.score_heads(TOY, None, o),
    "truth_table": data.truth_table,
    "ignore": lambda o: it.load("toy:xor-2head", ignore=o),
    "keys": lambda o: it.load("toy:xor-2head", keys=o),
    "device": lambda o: it.load("toy:xor-2head", device=o),
    "separability": lambda o: probes.check_separability(o, o),
    "skip_bigrams_of": lambda o: circuits.skip_bigrams_of(o, o),
}


def refusal(call, odd):
    """What the call says; None where it took the object."""
    try:
        call(odd)
    except (it.InputError, it.InterventionError) as error:
        return str(error)
    return None


@pytest.fixture(autouse=True)
def as_users_have_it(monkeypatch):
    """No network, and no checks of annotations, which only the tests have."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.mark.parametrize("name", AS_MODEL)
def test_what_is_no_model_is_one_line(name):
    for what, odd in ODD.items():
        said = refusal(AS_MODEL[name], odd)
        needs_no_heads = name in ("load", "doctor", "reinitialised", "repeated_prompts")
        assert said is not None or (needs_no_heads and what.startswith("a cfg")), what
        assert said is None or len(said) <= LONGEST, what


@pytest.mark.parametrize("name", AS_ARGUMENT)
def test_an_argument_of_another_kind_is_one_line(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fits = {
        ("data_from_arrays", "a list"),
        ("save path", "a text"),
        ("hooks", "an empty mapping"),
        ("rows of prompts", "a number"),
    }
    for what, odd in ODD.items():
        assert refusal(AS_ARGUMENT[name], odd) is not None or (name, what) in fits, what


@pytest.mark.parametrize("name", EITHER)
def test_an_argument_is_taken_or_one_line(name):
    for odd in ODD.values():
        refusal(EITHER[name], odd)
