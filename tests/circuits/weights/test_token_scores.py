"""Factored scores against the dense matrix they stand for."""

import pytest
import torch

from interp_toolkit.circuits.weights.token_scores import TokenPair, TokenScores
from interp_toolkit.errors import InputError

TINY = 4 * 4 * 9  # a tile of 3 x 3


@pytest.fixture
def factors():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in ((7, 3), (10, 3), (7,), (10,))]


@pytest.fixture(params=["bare", "full"])
def scores(factors, request):
    if request.param == "bare":
        return TokenScores(*factors[:2])
    return TokenScores(*factors, soft_cap=1.5, offset=-0.25)


@pytest.fixture
def dense(factors, scores):
    left, right, row, column = factors
    if scores.soft_cap is None:
        return torch.einsum("ir,jr->ij", left, right)
    total = torch.einsum("ir,jr->ij", left, right) + row[:, None] + column[None]
    return 1.5 * torch.tanh(total / 1.5) - 0.25


def test_pairs_rows_diagonal_and_matrix(scores, dense):
    assert scores.shape == (7, 10)
    rows, columns = torch.tensor([[0, 6], [3, 3]]), torch.tensor([[9, 0], [3, 1]])
    torch.testing.assert_close(scores.score(rows, columns), dense[rows, columns])
    torch.testing.assert_close(scores.row(4), dense[4])
    torch.testing.assert_close(scores.diagonal(), dense[range(7), range(7)])
    torch.testing.assert_close(scores.matrix(), dense)


def test_tiles_cover_everything_once(scores, dense):
    covered, count = torch.zeros(7, 10), 0
    for rows, columns, tile in scores.tiles(memory=TINY):
        assert tile.numel() <= 9
        covered[rows, columns] += tile
        count += 1
    assert count == 3 * 4
    torch.testing.assert_close(covered, dense)
    assert len(list(scores.tiles())) == 1


@pytest.mark.parametrize("k", [1, 13, 70, 100])
def test_top_pairs_are_those_of_the_whole_matrix(scores, dense, k):
    found = scores.top(k, memory=TINY)
    values, index = dense.flatten().sort(descending=True)
    assert [pair.score for pair in found] == pytest.approx(values[:k].tolist(), abs=1e-5)
    assert [(p.row, p.column) for p in found] == [divmod(i, 10) for i in index[:k].tolist()]
    assert isinstance(found[0], TokenPair)


def test_the_whole_matrix_is_refused_above_the_bound(scores):
    with pytest.raises(InputError, match=r"all 7 x 10 scores take 1120 bytes.*tiles\(\), top\(\)"):
        scores.matrix(memory=1000)


def test_pairs_that_are_not_there(scores, texts):
    one = torch.tensor([1])
    with pytest.raises(InputError, check=texts):
        scores.score(torch.tensor([7]), one)
    with pytest.raises(InputError, check=texts):
        scores.score(one, torch.tensor([-1]))
    with pytest.raises(InputError, match="rows 0 to 6"):
        scores.row(-1)
    with pytest.raises(InputError, check=texts):
        scores.top(0)


def test_ids_may_be_numbers_and_lists(texts):
    scores = TokenScores(torch.eye(3), 2 * torch.eye(3))
    assert scores.score([0, 1, 2], [0, 2, 2]).tolist() == [2, 0, 2]
    assert scores.score(1, [0, 1]).tolist() == [0, 2]
    assert float(scores.score(1, 1)) == 2
    with pytest.raises(InputError, check=texts):
        scores.score([3], [1])
