"""k-hop induction heads: complete a bigram by its last occurrence, k times over.

From a token, one hop goes to the token after its last earlier occurrence; hop_k is where k hops
end. In `adcada`, one hop from the last `a` gives `d`, two give `c`. A row opens with a token that
says k, uniform from 1 to `most_hops`, and goes on with random letters; at *every* letter hop_k of
that position is asked, and every answer counts for itself. Where a hop finds no earlier
occurrence, the answer is 'none'. Letters are the ids from 0, then 'none', then k = 1 and so on.
Source: "Is random attention sufficient for sequence modeling?", section 3.1, after Sanford et al.
2024, whose alphabet of 4 letters is the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.toys.random_attention.task import Task, TaskRows


@dataclass(frozen=True)
class KHop(Task):
    """Hop k times.

    Attributes:
        most_hops: the largest k.
        length: of a row, the token that says k included.
        alphabet: how many letters.
    """

    most_hops: int
    length: int
    alphabet: int

    name: ClassVar[str] = "k-hop"
    guess_rule: ClassVar[str] = (
        "the best rule that knows only k, the position and the current letter"
    )
    whole_rows: ClassVar[bool] = False

    @property
    def d_vocab(self) -> int:
        """Letters, 'none' and the numbers of hops."""
        return self.alphabet + 1 + self.most_hops

    @property
    def n_ctx(self) -> int:
        """The whole row."""
        return self.length

    @property
    def guess(self) -> float:
        """Of the best rule that knows k, the position and the letter there, exactly.

        It is far above one in `alphabet`: a letter that repeats the one before it hops to itself
        for ever, and many hops end at 'none'.
        """
        chances = answer_chances(self.most_hops, self.length - 1, self.alphabet)
        return chances.amax(-1).mean().item()

    def draw(self, n_rows: int, generator: torch.Generator) -> TaskRows:
        """Fresh rows; see `Task.draw`."""
        drawing: dict[str, Any] = {"generator": generator, "device": generator.device}
        hops = torch.randint(1, self.most_hops + 1, (n_rows, 1), **drawing)
        letters = torch.randint(self.alphabet, (n_rows, self.length - 1), **drawing)
        jump = _jumps(letters, self.alphabet)
        at = jump[:, :-1]
        for done in range(1, self.most_hops):
            at = torch.where(done < hops, jump.gather(1, at), at)
        none = torch.full_like(hops, self.alphabet)
        answer = torch.cat([letters, none], dim=1).gather(1, at)
        read = torch.arange(1, self.length, device=generator.device)
        return TaskRows(torch.cat([none + hops, letters], dim=1), read.expand(n_rows, -1), answer)


def _jumps(letters: Int[Tensor, "row place"], alphabet: int) -> Int[Tensor, "row _"]:
    """Where one hop leads from each place, and from one more, 'none', which stays where it is."""
    length = letters.shape[1]
    positions = torch.arange(length, device=letters.device)
    is_letter = letters[:, :, None] == torch.arange(alphabet, device=letters.device)
    last = torch.where(is_letter, positions[:, None], -1).cummax(1).values
    earlier = torch.cat([torch.full_like(last[:, :1], -1), last[:, :-1]], dim=1)
    jumps = earlier.gather(2, letters[:, :, None])[:, :, 0]
    jump = torch.where(jumps < 0, length, jumps + 1)
    return torch.cat([jump, torch.full_like(jump[:, :1], length)], dim=1)


def answer_chances(most_hops: int, length: int, alphabet: int) -> Float[Tensor, "hops place 3"]:
    """How likely an answer is the place's own letter, one certain other letter, or 'none'.

    For k from 1 and each place of a string of random letters. A place that repeats the letter
    before it is its own answer. From any other the search goes on among letters that are still
    unknown but for the one before, so the hops are a Markov chain. Its states are the place
    reached, and which of two letters is that of the start: the one reached, the one before
    it, or neither; the two are never the same.
    """
    missed = 1 - 1 / alphabet
    positions = torch.arange(length, dtype=torch.float64)
    gap = positions[:, None] - positions  # from a place back to the letter searched for
    at_gap = torch.where(gap >= 1, missed ** (gap - 1) / alphabet, 0.0)
    own = torch.where(positions >= 1, 1 / alphabet, 0.0)
    first = _behind(torch.where(gap >= 2, at_gap, 0.0))
    near = _behind((gap == 2).double() / alphabet)
    far = _behind(torch.where(gap > 2, at_gap / missed, 0.0))
    reached, before, neither = torch.zeros_like(first), first, torch.zeros_like(first)
    back = 1 / (alphabet - 1)
    chances = []
    for _ in range(most_hops):
        itself, another = own + reached.sum(1), (before + neither).sum(1)
        chances.append(torch.stack([itself, another * back, 1 - itself - another], dim=1))
        away = (before + neither) @ far
        reached, before, neither = (
            before @ near + back * away,
            reached @ (near + far),
            neither @ near + (1 - back) * away,
        )
    return torch.stack(chances)


def _behind(chances: Float[Tensor, "start place"]) -> Float[Tensor, "start place"]:
    """The chances to reach a place: those to find the letter one place before it."""
    return chances.roll(1, 1)
