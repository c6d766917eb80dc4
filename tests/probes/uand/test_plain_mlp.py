"""ANDs that a plain MLP computes: from a module, arrays and a file, by Python and command."""

import json
from itertools import combinations

import numpy as np
import pytest
import torch
from torch import nn

import interp_toolkit as it
from interp_toolkit.errors import InputError
from interp_toolkit.models.loading.plain_mlp import model_on_rows
from interp_toolkit.models.running.forward import run
from interp_toolkit.models.running.hooks import hook_points

M, N_TRAINED = 12, 20
PAIRS = list(combinations(range(M), 2))
NAMES = "abcdefghijkl"


@pytest.fixture(scope="module")
def trained():
    """An MLP on 20 of 66 pairs, and rows of its inputs."""
    rng = np.random.default_rng(0)
    chosen = [PAIRS[i] for i in rng.permutation(len(PAIRS))[:N_TRAINED]]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        mlp = nn.Sequential(nn.Linear(M, 32), nn.ReLU(), nn.Linear(32, N_TRAINED))
    optimizer = torch.optim.Adam(mlp.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1500)
    for _ in range(1500):
        on = torch.from_numpy(rng.random((256, M)) < 0.25).float()
        wanted = torch.stack([on[:, i] * on[:, j] for i, j in chosen], dim=1)
        loss = (mlp(on) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    features = rng.random((2500, M)) < 0.25
    return mlp, {(NAMES[i], NAMES[j]) for i, j in chosen}, features


def named(every_pair):
    rows = zip(every_pair["first"], every_pair["second"], every_pair["claim"], strict=True)
    return {(first, second) for first, second, claim in rows if claim == "computed"}


def test_the_trained_pairs_are_named_and_no_others(trained):
    mlp, chosen, features = trained
    finding = it.analyze(mlp, "uand", data={"inputs": features.astype(float), "features": features})
    assert finding.status == "computed"
    assert named(finding.every_pair) == chosen
    table = finding.to_frame()
    worst = table["worst_after_offset"].to_numpy()
    of_chosen = [pair in chosen for pair in zip(table["first"], table["second"], strict=True)]
    assert worst[of_chosen].max() < 0.25 < worst[~np.array(of_chosen)].min()
    assert len(finding.layers[0].random_mean_worst) == 19
    assert finding.layers[0].mean_worst < min(finding.layers[0].random_mean_worst)


@pytest.mark.parametrize("as_linear", [True, False])
def test_a_file_of_two_matrices_by_command(trained, tmp_path, call, as_linear):
    mlp, _, features = trained
    state = mlp.state_dict()
    if not as_linear:
        names = ("W_in", "b_in", "W_out", "b_out")
        state = {
            n: t.mT.contiguous() if t.ndim == 2 else t
            for n, t in zip(names, state.values(), strict=True)
        }
    torch.save(state, tmp_path / "mlp.pt")
    np.savez(tmp_path / "rows.npz", inputs=features.astype(np.float32), features=features)
    arguments = ["analyze", str(tmp_path / "mlp.pt"), "--probe", "uand"]
    arguments += ["--data", str(tmp_path / "rows.npz"), "--json", str(tmp_path / "out.json")]
    code, _, err = call(*arguments)
    assert code == 0
    assert "relu" in err
    content = json.loads((tmp_path / "out.json").read_text())["results"][0]
    assert content["status"] == "computed"
    assert content["pairs"]["counts"]["computed"] == N_TRAINED
    for setting in ("n_heads=2", "act_fn=rel"):
        code, _, err = call(*arguments, "--set", setting)
        assert code == 2
        assert len(err.strip().splitlines()) == 1


def test_an_untrained_mlp_computes_nothing_that_random_ones_do_not(trained):
    _, _, features = trained
    with torch.random.fork_rng():
        torch.manual_seed(1)
        mlp = nn.Sequential(nn.Linear(M, 32), nn.ReLU(), nn.Linear(32, 4))
    finding = it.analyze(mlp, "uand", data={"inputs": features.astype(float), "features": features})
    assert finding.layers[0].p_better > 0.05


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.GELU(), nn.GELU("tanh"), nn.SiLU()], ids=str)
def test_the_neurons_are_those_of_the_module(activation):
    mlp = nn.Sequential(nn.Linear(5, 9), activation, nn.Linear(9, 3))
    x = torch.randn(20, 5)
    x[7] = x[3]  # the same input has the same token
    model, tokens = model_on_rows(mlp, x)
    assert tokens[7] == tokens[3]
    values = []

    def keep(value, hook):
        values.append(value[:, 0].clone())

    run(model, torch.from_numpy(tokens), [(hook_points(model)["blocks.0.mlp.hook_post"], keep)])
    torch.testing.assert_close(values[0], mlp[1](mlp[0](x)).detach())


def test_outputs_tell_the_nonlinearity_of_a_file():
    mlp = nn.Sequential(nn.Linear(5, 9), nn.SiLU(), nn.Linear(9, 3))
    x = torch.randn(20, 5)
    model, _ = model_on_rows(mlp.state_dict(), x, mlp(x))
    assert model.cfg.act_fn == "silu"
    with pytest.raises(InputError):
        model_on_rows(mlp.state_dict(), x, mlp(x), "relu")


@pytest.mark.parametrize(
    "mlp",
    [
        nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 3)),
        nn.Sequential(nn.Linear(5, 9), nn.ReLU(), nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 3)),
        nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 3)),
        nn.Linear(5, 3),
        {"a": np.zeros((5, 9)), "b": np.zeros((8, 3))},
        {"a": np.zeros((5, 9)), "b": np.zeros((9, 3)), "c": np.zeros(4)},
        {"a": np.full((5, 9), np.nan), "b": np.zeros((9, 3))},
        3,
    ],
    ids=lambda mlp: type(mlp).__name__,
)
def test_what_is_no_such_mlp_is_one_line(mlp):
    with pytest.raises(InputError) as error:
        model_on_rows(mlp, np.zeros((4, 5)))
    assert len(str(error.value)) <= 300


@pytest.mark.parametrize(
    "inputs", [np.zeros(4), np.full((4, 5), np.nan), [["a"]], np.zeros((0, 5))]
)
def test_inputs_that_are_no_numbers_are_one_line(inputs):
    mlp = nn.Sequential(nn.Linear(5, 9), nn.ReLU(), nn.Linear(9, 3))
    with pytest.raises(InputError):
        model_on_rows(mlp, inputs)
