"""Heads set by hand: each kind is named, and what only attends, or only writes, is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from planted_roles import (
    AGAINST,
    ASK,
    D_VOCAB,
    FILLERS,
    GAIN,
    INHIBITS,
    MIDDLE,
    MOVES,
    N_POS,
    NAMES,
    ONLY_ATTENDS,
    ONLY_WRITES,
    START,
    SUPPRESSES,
    SUPPRESSES_NOTHING,
    Planted,
    movers,
    noisy_movers,
    rows,
)
from planted_writers import clues, two_heads

import interp_toolkit as it
from interp_toolkit.circuits.metrics.prompts import Prompts
from interp_toolkit.circuits.roles.find import PARKED, Roles, find_roles
from interp_toolkit.models.model import Head
from interp_toolkit.stats import LEVEL
from interp_toolkit.toys.hand_set.heads import head_weights


def named(found: Roles) -> dict[str, set[Head]]:
    kinds: dict[str, set[Head]] = {}
    for head in found.heads:
        if head.named:
            kinds.setdefault(head.kind, set()).add(Head(head.layer, head.head))
    return kinds


def of(found: Roles, kind: str, head: Head):
    [one] = [h for h in found.heads if h.kind == kind and (h.layer, h.head) == head]
    return one


def test_movers_and_what_inhibits_them_are_named_and_decoys_are_not() -> None:
    found = find_roles(movers(), rows())
    assert named(found) == {
        "name-mover": {MOVES},
        "negative-name-mover": {AGAINST},
        "s-inhibition": {INHIBITS},
    }
    assert of(found, "name-mover", ONLY_ATTENDS).attends
    assert not of(found, "name-mover", ONLY_ATTENDS).writes
    assert not of(found, "name-mover", ONLY_WRITES).attends


def test_direct_effects_are_those_of_the_closed_form() -> None:
    found = find_roles(movers(), rows())
    mean = found.direct.mean
    wanted = {MOVES: GAIN, AGAINST: -GAIN / 3, ONLY_ATTENDS: 0.0, ONLY_WRITES: GAIN / 3}
    for (layer, head), effect in wanted.items():
        assert mean[layer, head] == pytest.approx(effect, abs=1e-5)
    assert found.difference == pytest.approx(GAIN, abs=1e-5)


def test_the_causal_check_is_what_a_plain_forward_pass_without_the_head_loses() -> None:
    model, prompts = movers(), rows(32)
    found = find_roles(model, prompts)
    check = of(found, "s-inhibition", INHIBITS).check
    asked, place = prompts.tokens, N_POS - 1
    held = {}
    point = model.hook_dict["blocks.0.attn.hook_z"]

    def preference(hooks: list) -> torch.Tensor:
        with torch.no_grad(), model.hooks(fwd_hooks=hooks):
            logits = model(asked)[:, place]
        return (logits.gather(1, prompts.answers) - logits.gather(1, prompts.wrong))[:, 0]

    def keep(z, hook):
        held["z"] = z.clone()

    def others(z, hook):
        z = z.clone()
        for row in range(len(z)):
            rest = [r for r in range(len(z)) if r != row]
            z[row, place, 0] = held["z"][rest, place, 0].mean(0)
        return z

    whole = preference([(point.name, keep)])
    without = preference([(point.name, others)])
    share = float((whole - without).mean() / whole.mean())
    assert check.loss.mean == pytest.approx(share, abs=1e-6)
    assert check.shift.mean > 0.2
    assert check.word in ("major", "contributes")


def test_a_suppressor_writes_against_what_is_predicted() -> None:
    found = named(find_roles(movers(suppress=True), rows()))
    assert found["copy-suppression"] == {SUPPRESSES}
    assert SUPPRESSES_NOTHING not in set().union(*found.values())


@pytest.mark.parametrize(("n", "seed"), [(7, 1), (8, 1), (10, 0), (10, 2)])
def test_what_few_rows_cannot_show_is_undecided_and_not_denied(n: int, seed: int) -> None:
    found = find_roles(noisy_movers(0.05, seed), rows(n, seed))
    mover = of(found, "name-mover", MOVES)
    assert mover.attention.mean > 0.3
    assert mover.writing.mean > found.difference / 2
    assert mover.p_value > LEVEL
    assert mover.word == "undecided"


def test_an_inhibiting_head_that_nothing_reads_is_none() -> None:
    model = movers()
    for head in (
        MOVES,
        AGAINST,
        ONLY_ATTENDS,
    ):  # they move what the position says, whoever inhibits
        head_weights(model, head, "W_Q")[:, list(NAMES)] = 0.0
        head_weights(model, head, "W_K")[:, D_VOCAB] = 0.0
    found = find_roles(model, rows())
    assert "s-inhibition" not in named(found)


class Marks:
    def decode(self, ids: list[int]) -> str:
        return {MIDDLE: ",", START: "<s>"}.get(ids[0], f"w{ids[0]}")

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return [0, 1]


def with_marks() -> Prompts:
    prompts, rng = rows(), np.random.default_rng(1)
    tokens = prompts.tokens.clone()
    tokens[range(len(tokens)), torch.from_numpy(rng.choice([8, 12], len(tokens)))] = MIDDLE
    return replace(prompts, tokens=tokens)


def test_parked_heads_write_little_where_they_park() -> None:
    made = Planted.of()
    sink, loud_sink, mark, loud_mark = (Head(0, n) for n in range(4))
    for head, token in ((sink, START), (loud_sink, START), (mark, MIDDLE), (loud_mark, MIDDLE)):
        made.attend(head, made.direction(made.axes.tokens, [token]))
        made.write(head, 1.0)
    head_weights(made.model, sink, "W_V")[made.axes.tokens[START]] = 0.0
    head_weights(made.model, mark, "W_V")[made.axes.tokens[MIDDLE]] = 0.0
    made.model.tokenizer = Marks()
    found = find_roles(made.model, with_marks())
    assert named(found) == {"attention-sink": {sink}, "delimiter": {mark}}
    assert of(found, "delimiter", loud_mark).attends
    assert of(found, "attention-sink", loud_sink).attends


def test_without_a_tokenizer_delimiters_are_said_not_to_be_testable() -> None:
    found = find_roles(movers(), rows())
    assert "tokenizer" in found.untested["delimiter"]
    assert "successor" in found.untested


def successor_rows(n: int = 40) -> Prompts:
    prompts, rng = rows(n), np.random.default_rng(2)
    tokens = torch.from_numpy(rng.choice(list(FILLERS), (n, N_POS)))
    tokens[:, 0], tokens[:, -1] = START, ASK
    which = torch.from_numpy(rng.integers(0, len(NAMES) - 1, n))
    far = (which + 1 + torch.from_numpy(rng.integers(3, 10, n))) % len(NAMES)
    tokens[range(n), torch.from_numpy(rng.integers(2, 12, n))] = which + NAMES[0]
    ids = [(x + NAMES[0])[:, None] for x in (which + 1, far)]
    return replace(prompts, tokens=tokens, answers=ids[0], wrong=ids[1])


def test_a_successor_head_takes_tokens_one_on_and_others_do_not() -> None:
    made = Planted.of()
    following, copying, two_on, elsewhere = (Head(0, n) for n in range(4))
    for head, shift in ((following, 1), (copying, 0), (two_on, 2), (elsewhere, 1)):
        target = made.names() if head != elsewhere else made.direction(made.axes.tokens, [ASK])
        made.attend(head, target)
        made.write(head, GAIN, shift)
    found = find_roles(made.model, successor_rows(), lists=[list(NAMES)])
    assert named(found)["successor"] == {following}
    assert "name-mover" in found.untested


def test_grouped_keys_and_values_are_read_head_by_head() -> None:
    made = Planted.of(1, 4, groups=2)
    near = made.direction(made.axes.positions, [9, 10, 11])
    made.attend(Head(0, 3), made.names() + near)  # its group's keys and values are head 2's too
    made.write(Head(0, 3), -GAIN)
    found = find_roles(made.model, rows())
    assert found.direct.mean[0] == pytest.approx([0.0, 0.0, 0.0, GAIN], abs=1e-5)
    repeat = [h for h in found.heads if h.kind == "s-inhibition"]
    assert [h.attends for h in repeat] == [False, False, False, True]
    assert not any(h.named for h in repeat)  # its effect is direct


@pytest.mark.parametrize("memory", ["200kB", "900kB"])
def test_batches_change_nothing(memory: str) -> None:
    whole, split = (find_roles(movers(), rows(), memory=m) for m in (None, memory))
    assert named(whole) == named(split)
    np.testing.assert_allclose(whole.direct.mean, split.direct.mean, atol=1e-9)
    for one, other in zip(whole.heads, split.heads, strict=True):
        assert one.word == other.word
        assert one.attention.mean == pytest.approx(other.attention.mean, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("norm", [None, "LN"])
@pytest.mark.parametrize("frequencies", [(0.5, 0.5), (0.85, 0.15), (0.7, 0.15, 0.15)])
@pytest.mark.parametrize("kind", ["constant", "noise token", "position", "true"])
def test_only_writers_that_depend_on_the_answer_are_listed(
    kind, frequencies, norm, has_hooked_transformer
) -> None:
    if not has_hooked_transformer:
        pytest.skip("TransformerLens 4 has no HookedTransformer")
    model = two_heads(kind, len(frequencies), norm, 4.0)
    data = clues(frequencies, wrong=True, slots=1)
    found = it.analyze(model, "roles", data=data)
    assert found.task_check.yes
    by_head = {writer.name for writer in found.writers}
    by_head |= {head.name for head in found.heads if head.named and head.kind not in PARKED}
    assert by_head == ({"L0H0", "L0H1"} if kind == "true" else {"L0H0"})
