"""Compiled weights against the interpreter, and both against answers in plain words."""

import numpy as np
import pytest
import torch

from interp_toolkit.challenge.compiler.interpreter import interpret
from interp_toolkit.challenge.compiler.language import Attend, Bins, Indices, Map, Tokens
from interp_toolkit.challenge.compiler.library import LIBRARY, rows_of
from interp_toolkit.challenge.compiler.weights import GAIN, compiled
from interp_toolkit.challenge.families.compiled import compile_program


def logits_of(made, symbols):
    tokens = np.concatenate([np.zeros((len(symbols), 1), dtype=int), symbols + 1], axis=1)
    with torch.no_grad():
        return made.model(torch.from_numpy(tokens))[:, 1:].numpy()


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", list(LIBRARY))
def test_weights_interpreter_and_plain_words_agree(name, seed):
    program = LIBRARY[name](np.random.default_rng(seed))
    symbols = rows_of(program, 8, seed)
    logits = logits_of(compile_program(program, seed), symbols)[:, program.asked]
    for row, told in zip(symbols.tolist(), logits, strict=True):
        shares = interpret(program.output, row, causal=program.causal)[program.asked]
        assert max(range(len(shares)), key=shares.__getitem__) == program.answer(row)
        # 10 places at 1e-12 of the attention each, through steps 220 to 1 steep
        assert told[list(program.tells)] / GAIN == pytest.approx(
            [float(s) for s in shares], abs=1e-5
        )


@pytest.mark.parametrize("causal", [True, False])
def test_attend_is_the_mean_over_what_has_the_highest_level(causal):
    tokens = Tokens(3)
    # places of a greater symbol, the greatest most; BOS where there is none
    head = Attend(tokens, tokens, lambda k, q: float(k) if k > q else 0.0, tokens)
    symbols = np.array([[1, 0, 2, 1, 2]])
    made = compiled(
        head, (1, 2, 3), n_symbols=3, n_places=5, d_vocab=4, causal=causal, beside=0, seed=0
    )
    told = logits_of(made, symbols)[0][:, 1:4] / GAIN
    two, one, none = [0, 0, 1], [0, 1, 0], [0, 0, 0]
    wanted = [none, one, none, two, none] if causal else [two, two, none, two, none]
    assert told == pytest.approx(np.array(wanted, dtype=float), abs=1e-5)
    exact = interpret(head, symbols[0].tolist(), causal=causal)
    assert np.array(exact, dtype=float) == pytest.approx(np.array(wanted, dtype=float))


def test_bins_count_and_map_looks_up():
    tokens, places = Tokens(4), Indices(4)
    alike = Attend(tokens, tokens, lambda k, q: float(k == q), None, counts_bos=True)
    # BOS's share is 1 / (1 + count): 1/2, 1/3, 1/4, 1/5
    count = Bins(alike, (-1.0,), (-5 / 12, -7 / 24, -9 / 40), 1 / 40)
    output = Map((count, places), lambda c, p: (c + p) % 4, 4)
    symbols = np.array([[3, 1, 3, 3], [0, 1, 2, 3], [2, 2, 2, 2]])
    made = compiled(output, (1, 2, 3, 4), n_symbols=4, n_places=4, d_vocab=5, causal=False, seed=3)
    counts = [[(row == s).sum() - 1 for s in row] for row in symbols]
    wanted = (np.array(counts) + np.arange(4)) % 4
    assert (logits_of(made, symbols)[:, :, 1:].argmax(-1) == wanted).all()
    for row, answers in zip(symbols.tolist(), wanted, strict=True):
        shares = interpret(output, row, causal=False)
        assert [max(range(4), key=s.__getitem__) for s in shares] == answers.tolist()


def test_what_stands_beside_changes_nothing():
    program = LIBRARY["sort"](np.random.default_rng(4))
    symbols = rows_of(program, 20, 1)
    bare, among = (
        logits_of(compile_program(program, 7, beside=beside), symbols) for beside in (0, 3)
    )
    assert among == pytest.approx(bare, abs=1e-9)
