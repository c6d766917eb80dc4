"""Compiled weights against tracr's own model, and both against answers in plain words."""

import numpy as np
import pytest
import torch

pytest.importorskip("tracr")

from tracr.compiler import compiling

from interp_studies.challenge.programs import LIBRARY, rows_of
from interp_studies.challenge.tracr_model import BOS_NAME, GAIN, compile_program


def tokens_of(symbols):
    bos = np.zeros((len(symbols), 1), dtype=int)
    return torch.from_numpy(np.concatenate([bos, symbols + 1], axis=1))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", list(LIBRARY))
def test_every_activation_of_the_output_is_tracrs(name):
    program = LIBRARY[name](np.random.default_rng(3))
    theirs = compiling.compile_rasp_to_model(
        program.output,
        vocab=set(range(program.n_symbols)),
        max_seq_len=program.n_places,
        causal=program.causal,
        compiler_bos=BOS_NAME,
    )
    made = compile_program(program, 3)
    axes = [made.axes[label] for label in theirs.residual_labels]
    symbols = rows_of(program, 3, 5)
    last = f"blocks.{made.model.cfg.n_layers - 1}.hook_resid_post"
    with torch.no_grad():
        logits, cache = made.model.run_with_cache(tokens_of(symbols))
    asked, label = 1 + program.asked, program.output.label
    for n, row in enumerate(symbols.tolist()):
        output = theirs.apply([BOS_NAME, *row])
        expected = np.asarray(output.transformer_output[0])
        assert cache[last][n][:, axes].numpy() == pytest.approx(expected, abs=1e-5)
        assert int(output.decoded[asked]) == program.answer(row)
        shares = dict(zip(theirs.residual_labels, expected[asked], strict=True))
        for value, token in enumerate(program.tells):
            share = shares.get(f"{label}:{value}", shares.get(f"{label}:{bool(value)}"))
            assert float(logits[n, asked, token]) / GAIN == pytest.approx(share or 0.0, abs=1e-5)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", list(LIBRARY))
def test_answers_are_those_in_plain_words(name, seed):
    program = LIBRARY[name](np.random.default_rng(seed))
    symbols = rows_of(program, 32, seed)
    logits = compile_program(program, seed).model(tokens_of(symbols))[:, 1 + program.asked]
    expected = [program.tells[program.answer(row)] for row in symbols.tolist()]
    assert logits.argmax(-1).tolist() == expected


def test_the_programs_heads_are_where_the_truth_says():
    """A head of the program attends as its selector says; a decoy attends alike."""
    program = LIBRARY["2-hop"](np.random.default_rng(0))
    made = compile_program(program, 0)
    assert made.nodes == {f"a{layer}.h{head}" for layer, head in made.heads}
    assert sorted(head.layer for head in made.heads) == [0, 1, 2]
    [before] = program.relations["previous-token"]
    head = made.places[id(before)]
    with torch.no_grad():
        _, cache = made.model.run_with_cache(tokens_of(rows_of(program, 4, 0)))
    alike = [head, *(decoy for decoy, like in made.decoys.items() if like == head)]
    for layer, number in alike:
        pattern = cache[f"blocks.{layer}.attn.hook_pattern"][:, number]
        for query in range(2, program.n_places + 1, 2):  # the second symbol of each pair
            # BOS keeps exp(-50 / √key size) of it, as in tracr's own model
            assert pattern[:, query, query - 1].numpy() == pytest.approx(1.0, abs=1e-4)


def test_what_stands_beside_changes_nothing():
    program = LIBRARY["sort"](np.random.default_rng(4))
    symbols = rows_of(program, 20, 1)
    bare, among = (
        compile_program(program, 7, beside=beside).model(tokens_of(symbols)).detach().numpy()
        for beside in (0, 3)
    )
    assert among == pytest.approx(bare, abs=1e-9)
