import gc
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from interp_toolkit.errors import InputError
from interp_toolkit.models.running.hooks import expand_hooks
from interp_toolkit.models.running.streaming import activations, collect
from interp_toolkit.toys.hand_set.untrained import random_model

HOOKS = ["resid_pre", "attn_out", "z", "pattern", "resid_post", "hook_embed"]


@pytest.fixture
def cache(model, tokens):
    with torch.no_grad():
        return model.run_with_cache(tokens)[1]


def test_one_position_equals_the_cache(model, tokens, cache):
    for position in (0, 3, -1):
        got = collect(model, tokens, HOOKS, position, batch_size=2)
        assert set(got) == set(expand_hooks(model, HOOKS))
        for name, value in got.items():
            expected = cache[name].select(2 if "pattern" in name else 1, position)
            torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-5)


def test_several_positions_equal_the_cache(model, tokens, cache):
    for positions in ("all", [0, -1, 2], slice(1, None, 2)):
        index = slice(None) if positions == "all" else positions
        for name, value in collect(model, tokens, HOOKS, positions).items():
            axis = 2 if "pattern" in name else 1
            expected = cache[name].movedim(axis, 0)[index].movedim(0, axis)
            torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-5)


def test_later_layers_do_not_run(model, tokens, count_hooks):
    ran = []
    point = model.hook_dict["blocks.1.hook_resid_post"]
    before = count_hooks(model)
    point.add_hook(lambda value, hook: ran.append(1))
    try:
        collect(model, tokens, "blocks.0.hook_resid_post")
        assert not ran
        collect(model, tokens, ["blocks.0.hook_resid_post", "blocks.1.hook_resid_post"])
        assert ran
        assert count_hooks(model) == before + 2  # the one above, twice in the books
    finally:
        point.remove_hooks()


def test_stopping_leaves_no_trace(model, tokens, count_hooks):
    with torch.no_grad():
        before = model(tokens)
        collect(model, tokens, "blocks.0.attn.hook_z")
        assert torch.equal(before, model(tokens))
    assert count_hooks(model) == 0


def test_hooks_are_gone_after_an_error(model, tokens, count_hooks):
    def fail(value, hook):
        raise RuntimeError("from inside")

    with model.hooks(fwd_hooks=[("blocks.0.hook_resid_pre", fail)]):
        before = count_hooks(model)
        with pytest.raises(RuntimeError, match="from inside"):
            collect(model, tokens, ["hook_embed", "resid_post"])
        assert count_hooks(model) == before
    assert count_hooks(model) == 0


def test_no_hooks_and_no_mode_changes_between_batches(zoo, tokens, count_hooks):
    model = zoo("own").train()
    for batch in activations(model, tokens, "resid_post", batch_size=2):
        assert count_hooks(model) == 0
        assert torch.is_grad_enabled()
        assert all(module.training for module in model.modules())
        assert not any(value.requires_grad for value in batch.values())


def test_rows_of_different_lengths_are_never_padded(model):
    rows = [[1, 2, 3], [4], [5, 6, 7], [8, 9], [1, 1, 2]]
    data = SimpleNamespace(tokens=[np.array(row) for row in rows])
    got = collect(model, data, "resid_post", batch_size=2)
    for name, value in got.items():
        for row, vector in zip(rows, value, strict=True):
            with torch.no_grad():
                alone = model.run_with_cache(torch.tensor([row]))[1][name][0, -1]
            torch.testing.assert_close(vector, alone, rtol=1e-4, atol=1e-4)


def test_batches_cover_every_row_once(zoo):
    data = SimpleNamespace(tokens=[[1] * (1 + i % 3) for i in range(10)])
    batches = list(activations(zoo("own"), data, "z", batch_size=2))
    assert sorted(torch.cat([b.index for b in batches]).tolist()) == list(range(10))
    assert all(len(b.index) <= 2 for b in batches)


def test_positions_of_the_data(zoo, tokens):
    model = zoo("own")
    own = SimpleNamespace(tokens=tokens, positions=np.array([0, 1, -1, 3, 6]))
    value = collect(model, own, "blocks.1.hook_resid_post")["blocks.1.hook_resid_post"]
    full = collect(model, tokens, "blocks.1.hook_resid_post", "all")["blocks.1.hook_resid_post"]
    assert torch.equal(value, full[torch.arange(5), own.positions])
    given = collect(model, own, "blocks.1.hook_resid_post", 2)["blocks.1.hook_resid_post"]
    assert torch.equal(given, full[:, 2])
    last = collect(model, SimpleNamespace(tokens=tokens, positions=None), "resid_post")
    assert torch.equal(last["blocks.1.hook_resid_post"], full[:, -1])


def test_memory_makes_batches_smaller(zoo, tokens):
    model = zoo("own")

    def sizes(memory):
        return [len(b.index) for b in activations(model, tokens, "z", memory=memory)]

    assert sizes(None) == [5]
    assert sizes("20KiB") == [2, 2, 1]
    with pytest.raises(InputError, match="one row of 7 tokens"):
        sizes("1KB")


def live_bytes():
    """Of all plain tensors that Python holds, each storage once."""
    plain = (torch.Tensor, torch.nn.Parameter)
    found = (value for value in gc.get_objects() if type(value) in plain)
    held = [v.untyped_storage() for v in found if v.layout is torch.strided and not v.is_meta]
    return sum({storage.data_ptr(): storage.nbytes() for storage in held}.values())


def test_what_a_loop_holds_stays_within_the_memory():
    """A loop holds the last batch while the next is made; here nearly all of both is kept."""
    model = random_model(0, n_layers=12, n_heads=2, d_model=64, d_head=8, d_vocab=9, n_ctx=32)
    tokens = torch.randint(9, (48, 32), generator=torch.Generator().manual_seed(0))
    held, memory = [], 4_000_000
    gc.collect()
    before = live_bytes()
    last = model.hook_dict["blocks.11.hook_resid_post"]
    handle = last.register_forward_hook(lambda *given: held.append(live_bytes() - before))
    for batch in activations(model, tokens, "resid_post", "all", memory=memory):
        assert len(batch.index) > 1
    handle.remove()
    assert len(held) > 3
    assert 0.3 * memory < max(held) < memory


def test_what_is_the_same_for_every_row_is_given_for_every_row(zoo, tokens):
    got = collect(zoo("llama"), tokens, "rotary_emb.hook_cos", "all")["rotary_emb.hook_cos"]
    assert len(got) == 5
    assert torch.equal(got[0], got[4])


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (torch.zeros(2, 3), {}),
        (torch.zeros(3, dtype=torch.long), {}),
        (torch.zeros(0, 3, dtype=torch.long), {}),
        (torch.full((2, 3), 11), {}),
        (torch.full((2, 3), -1), {}),
        (torch.zeros(2, 13, dtype=torch.long), {}),
        (3, {}),
        (torch.zeros(2, 3, dtype=torch.long), {"positions": 3}),
        (torch.zeros(2, 3, dtype=torch.long), {"positions": [0, -4]}),
        (torch.zeros(2, 3, dtype=torch.long), {"positions": "every"}),
        (torch.zeros(2, 3, dtype=torch.long), {"positions": []}),
        (torch.zeros(2, 3, dtype=torch.long), {"positions": slice(5, 9)}),
        (torch.zeros(2, 3, dtype=torch.long), {"batch_size": 0}),
    ],
)
def test_bad_input(zoo, data, options, texts):
    with pytest.raises(InputError, check=texts):
        collect(zoo("own"), data, "resid_post", **options)


def test_a_hook_that_never_fires(zoo, tokens):
    with pytest.raises(InputError, match="hook_rot_q never fires"):
        collect(zoo("neox"), tokens, "blocks.0.attn.hook_rot_q")


def test_rows_that_keep_different_numbers_of_positions_do_not_stack(zoo, texts):
    data = SimpleNamespace(tokens=[[1, 2], [1, 2, 3]])
    with pytest.raises(InputError, check=texts):
        collect(zoo("own"), data, "resid_post", "all")


def test_a_model_without_heads_gives_its_activations():
    from types import SimpleNamespace

    from transformer_lens import HookedRootModule
    from transformer_lens.hook_points import HookPoint

    class Own(HookedRootModule):
        def __init__(self):
            super().__init__()
            self.cfg = SimpleNamespace(d_model=8, d_vocab=20, n_ctx=5, n_layers=0)
            self.embed, self.hook_embed = torch.nn.Embedding(20, 8), HookPoint()
            self.setup()

        def forward(self, tokens):
            return self.hook_embed(self.embed(tokens))

    model, rows = Own(), torch.arange(10).reshape(2, 5)
    read = collect(model, rows, "hook_embed", positions="all")["hook_embed"]
    assert torch.equal(read, model.embed.weight[rows].detach())
