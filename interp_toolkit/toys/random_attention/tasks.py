"""Synthetic tasks: prompts, the positions of their answers, and the right answers.

Prompts are drawn on the generator's device, all of one length (shorter ones are padded at the end,
which earlier positions of a causal model do not see). An answer is the token that the logits at a
position should predict.
Source: "Is random attention sufficient for sequence modeling?", section 3.1.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

NOTHING = -100  # marks a position without an answer; PyTorch's cross-entropy ignores it


class TaskRows(NamedTuple):
    """Prompts: token ids, the positions of the answers, and the right answers.

    `answer` is NOTHING in unused entries of prompts that have fewer answers than others.
    """

    tokens: Int[Tensor, "row pos"]
    read: Int[Tensor, "row item"]
    answer: Int[Tensor, "row item"]

    def to(self, device: str | torch.device) -> TaskRows:
        """The prompts on a device."""
        return TaskRows(*(tensor.to(device) for tensor in self))

    def take(self, which: Int[Tensor, " taken"] | slice | Bool[Tensor, " row"]) -> TaskRows:
        """A subset of the prompts."""
        return TaskRows(*(tensor[which] for tensor in self))


@dataclass(frozen=True)
class Task(ABC):
    """A task; its fields are its sizes.

    Attributes:
        name: as in its recipe's name and in a checkpoint's task record.
        whole_rows: whether a prompt counts as right only if all its answers are right (sequence
            accuracy); otherwise answers are counted separately.
        guess_rule: the rule whose accuracy is `guess`, as a phrase.
    """

    name: ClassVar[str]
    guess_rule: ClassVar[str]
    whole_rows: ClassVar[bool] = True

    @property
    @abstractmethod
    def d_vocab(self) -> int:
        """Number of token ids."""

    @property
    @abstractmethod
    def n_ctx(self) -> int:
        """Context length that a model of this task needs."""

    @property
    def stored_bits(self) -> float | None:
        """Bits stored by a model with full accuracy; None if a rule gives the answers."""
        return None

    @property
    @abstractmethod
    def guess(self) -> float | None:
        """The accuracy of `guess_rule`, which does not solve the task; None: unknown."""

    @abstractmethod
    def draw(self, n_rows: int, generator: torch.Generator) -> TaskRows:
        """New random prompts, from this generator and on its device."""

    def record(self) -> dict[str, Any]:
        """The task record of a checkpoint: the name and the sizes, as JSON data."""
        return {"name": self.name, **asdict(self)}


class FiniteTask(Task):
    """A task with so few distinct prompts that they can be numbered."""

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """The number of distinct prompts."""

    @abstractmethod
    def numbered(self, numbers: Int[Tensor, " taken"]) -> TaskRows:
        """The prompts with these numbers, from 0, on the numbers' device."""

    def draw(self, n_rows: int, generator: torch.Generator) -> TaskRows:
        """Uniformly random prompts, on the generator's device."""
        device = generator.device
        return self.numbered(
            torch.randint(self.n_rows, (n_rows,), generator=generator, device=device)
        )


def right_share(
    predictions: Int[Tensor, "row item"], answer: Int[Tensor, "row item"], *, whole_rows: bool
) -> float:
    """The fraction of prompts, or of answers, that are predicted correctly."""
    scored = answer != NOTHING
    right = (predictions == answer) | ~scored
    if whole_rows:
        return right.all(1).double().mean().item()
    return (right & scored).sum().item() / scored.sum().item()


PAD = 0


@dataclass(frozen=True)
class Retrieval(Task):
    """Find the value of a key.

    A needle in a haystack: pairs of a key and a value, then one of the keys; what is its value?

    A prompt of m pairs, m uniform from 1 to `most_pairs`, is `k1 v1 ... km vm q` and padding (token
    0); the answer is read at the query. Values are the ids 1 to V/2 - 1, keys V/2 to V. The source
    draws keys independently, so that a repeated one makes its value ambiguous (the accuracy is at
    most 94.6 % at 30 pairs). Here keys are distinct unless `repeated_keys`, with which the last
    pair of the query's key counts. Source: "Is random attention sufficient for sequence
    modeling?", section 3.1.

    Attributes:
        most_pairs: the source's m_max.
        symbols: the source's V, an even number.
        repeated_keys: draw keys independently; the last pair of the query's key counts.
    """

    most_pairs: int
    symbols: int
    repeated_keys: bool = False

    name: ClassVar[str] = "retrieval"
    guess_rule: ClassVar[str] = "naming any value of the context"

    @property
    def d_vocab(self) -> int:
        """V + 1, since the key V has an id too."""
        return self.symbols + 1

    @property
    def n_ctx(self) -> int:
        """Length of a prompt: all pairs and the query."""
        return 2 * self.most_pairs + 1

    @property
    def guess(self) -> float:
        """The accuracy of naming any value of the context: that of the right pair, or an equal one.

        With few values, the accuracy of naming the most frequent value is higher still.
        """
        same = 1 / (self.symbols // 2 - 1)
        by_pairs = [1 / m + (1 - 1 / m) * same for m in range(1, self.most_pairs + 1)]
        return sum(by_pairs) / self.most_pairs

    def draw(self, n_rows: int, generator: torch.Generator) -> TaskRows:
        """Random prompts; see `Task.draw`."""
        drawing: dict[str, Any] = {"generator": generator, "device": generator.device}
        most, half = self.most_pairs, self.symbols // 2
        shape = (n_rows, most)
        if self.repeated_keys:
            keys = torch.randint(half, self.symbols + 1, shape, **drawing)
        else:
            keys = half + torch.rand(n_rows, half + 1, **drawing).argsort(-1)[:, :most]
        values = torch.randint(1, half, shape, **drawing)
        pairs = torch.randint(1, most + 1, (n_rows, 1), **drawing)
        query_pair = (torch.rand(n_rows, 1, **drawing) * pairs).long()
        query = keys.gather(1, query_pair)
        tokens = torch.zeros(n_rows, self.n_ctx, dtype=torch.int64, device=generator.device)
        tokens[:, :-1] = torch.stack([keys, values], dim=-1).flatten(1)
        positions = torch.arange(self.n_ctx, device=generator.device)
        tokens = torch.where(positions < 2 * pairs, tokens, PAD).scatter(1, 2 * pairs, query)
        number = torch.arange(most, device=generator.device)
        same = (keys == query) & (number < pairs)
        last = torch.where(same, number, -1).amax(1, keepdim=True)
        return TaskRows(tokens, 2 * pairs, values.gather(1, last))


@dataclass(frozen=True)
class KHop(Task):
    """Hop k times.

    k-hop induction heads: complete a bigram by its last occurrence, k times in a row.

    From a token, one hop goes to the token after its last earlier occurrence; hop_k is the result
    of k hops. In `adcada`, one hop from the last `a` gives `d`, two give `c`. A prompt starts with
    a token for k, uniform from 1 to `most_hops`, and continues with random letters. At *every*
    letter the answer is hop_k of that position, and answers are counted separately. If a hop finds
    no earlier occurrence, the answer is 'none'. Letters are the ids from 0, then 'none', then k = 1
    and so on. Source: "Is random attention sufficient for sequence modeling?", section 3.1, after
    Sanford et al. 2024, whose alphabet of 4 letters is the default.

    Attributes:
        most_hops: the largest k.
        length: length of a prompt, including the token for k.
        alphabet: number of letters.
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
        """The length of a prompt."""
        return self.length

    @property
    def guess(self) -> float:
        """Exact accuracy of the best rule that knows k, the position and the letter there.

        It is far above 1 / `alphabet`: a letter that repeats the previous one hops to itself
        forever, and many hops end at 'none'.
        """
        chances = answer_chances(self.most_hops, self.length - 1, self.alphabet)
        return chances.amax(-1).mean().item()

    def draw(self, n_rows: int, generator: torch.Generator) -> TaskRows:
        """Random prompts; see `Task.draw`."""
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


def _jumps(letters: Int[Tensor, "row pos"], alphabet: int) -> Int[Tensor, "row _"]:
    """Target of one hop from each position, and from an extra one, 'none', which stays."""
    length = letters.shape[1]
    positions = torch.arange(length, device=letters.device)
    is_letter = letters[:, :, None] == torch.arange(alphabet, device=letters.device)
    last = torch.where(is_letter, positions[:, None], -1).cummax(1).values
    earlier = torch.cat([torch.full_like(last[:, :1], -1), last[:, :-1]], dim=1)
    jumps = earlier.gather(2, letters[:, :, None])[:, :, 0]
    jump = torch.where(jumps < 0, length, jumps + 1)
    return torch.cat([jump, torch.full_like(jump[:, :1], length)], dim=1)


def answer_chances(most_hops: int, length: int, alphabet: int) -> Float[Tensor, "hops pos 3"]:
    """Probability that an answer is the position's own letter, a given other letter, or 'none'.

    For each k from 1 and each position of a string of random letters. A position that repeats the
    previous letter is its own answer. From any other position, the search continues among letters
    that are unknown except for the previous one, so the hops are a Markov chain. Its states are the
    position reached, and which of two letters equals that of the start: the one reached, the one
    before it, or neither; the two are never the same.
    """
    missed = 1 - 1 / alphabet
    positions = torch.arange(length, dtype=torch.float64)
    gap = positions[:, None] - positions  # from a position back to the letter searched for
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


def _behind(chances: Float[Tensor, "start pos"]) -> Float[Tensor, "start pos"]:
    """The chances to reach a position: those of finding the letter one position earlier."""
    return chances.roll(1, 1)


@dataclass(frozen=True)
class ModularAddition(FiniteTask):
    """Add modulo `modulus`, the source's p.

    A prompt is `a b =` and the answer, read at '=', is (a + b) mod p. Numbers are residues, the ids
    0 to p - 1 (the source's 1 to p are the same residues); '=' is the id p. There are p² prompts.
    Source: "Is random attention sufficient for sequence modeling?", section 3.1.
    """

    modulus: int

    name: ClassVar[str] = "modular-addition"
    guess_rule: ClassVar[str] = "the best constant answer"

    @property
    def d_vocab(self) -> int:
        """The residues and '='."""
        return self.modulus + 1

    @property
    def n_ctx(self) -> int:
        """Two numbers and '='."""
        return 3

    @property
    def guess(self) -> float:
        """The accuracy of any constant: for each first number, every answer occurs once."""
        return 1 / self.modulus

    @property
    def n_rows(self) -> int:
        """Number of pairs."""
        return self.modulus**2

    def numbered(self, numbers: Int[Tensor, " taken"]) -> TaskRows:
        """The prompts with these numbers; see `FiniteTask.numbered`."""
        p = self.modulus
        first, second = numbers // p, numbers % p
        tokens = torch.stack([first, second, torch.full_like(first, p)], dim=1)
        # read at '=', the third token
        return TaskRows(tokens, torch.full_like(tokens[:, :1], 2), ((first + second) % p)[:, None])


PLUS, EQUALS = 10, 11
MOST_DIGITS = 18  # sums of more would not fit into 64 bits


@dataclass(frozen=True)
class DecimalAddition(Task):
    """Add two numbers.

    A prompt is `a + b = s` with one token per digit (its own id; '+' is 10, '=' is 11). a and b
    have `digits` digits and no leading zero; s is written with one more digit, with a leading zero
    if necessary. The most significant digit comes first, or with `reversed` the least significant
    one, in all three numbers.

    The answers are all digits of s, each with the right ones before it in the prompt (teacher
    forcing), and a prompt is right if all are. This equals the accuracy of a model that reads its
    own digits: both agree up to the first wrong digit, and a prompt with one is wrong either way.
    Source: "Is random attention sufficient for sequence modeling?", section 3.1.

    Attributes:
        digits: number of digits of each number, 1 to 18.
        reversed: whether numbers are written with the least significant digit first.
    """

    digits: int
    reversed: bool = False

    name: ClassVar[str] = "decimal-addition"
    guess_rule: ClassVar[str] = "the best constant answer"

    @property
    def d_vocab(self) -> int:
        """Ten digits, '+' and '='."""
        return 12

    @property
    def n_ctx(self) -> int:
        """Length of a prompt: both numbers, '+', '=', and the sum without its last digit."""
        return 3 * self.digits + 2

    @property
    def guess(self) -> float:
        """The probability of the likeliest sum, 11 · 10^(digits - 1) - 1."""
        return 1 / (9 * 10.0 ** (self.digits - 1))

    def draw(self, n_rows: int, generator: torch.Generator) -> TaskRows:
        """Random prompts; see `Task.draw`."""
        least = 10 ** (self.digits - 1)
        numbers = torch.randint(
            least, 10 * least, (2, n_rows), generator=generator, device=generator.device
        )
        first, second = (self._written(number, self.digits) for number in numbers)
        total = self._written(numbers.sum(0), self.digits + 1)
        plus, equals = (torch.full_like(total[:, :1], token) for token in (PLUS, EQUALS))
        tokens = torch.cat([first, plus, second, equals, total[:, :-1]], dim=1)
        read = torch.arange(2 * self.digits + 1, self.n_ctx, device=generator.device)
        return TaskRows(tokens, read.expand(n_rows, -1), total)

    def _written(self, numbers: Int[Tensor, " row"], digits: int) -> Int[Tensor, "row digit"]:
        exponents = torch.arange(digits, device=numbers.device)
        exponents = exponents if self.reversed else exponents.flip(0)
        return numbers[:, None] // 10**exponents % 10


OPEN, CLOSE, END, FALSE, TRUE = range(5)


@dataclass(frozen=True)
class Dyck(Task):
    """Recognize balanced strings of `length` parentheses, an even number.

    Is a string of parentheses balanced (a word of the Dyck language of one kind)?

    A prompt is `length` parentheses ('(' is 0, ')' is 1) and '=' (2), where the answer is read:
    false (3) or true (4). Of uniformly random strings of 40 only one in 168 is balanced, so each
    prompt is balanced with probability 1/2, and then uniform among the balanced strings (cycle
    lemma: of the rotations of n/2 '(' and n/2 + 1 ')' exactly one is a balanced string and a last
    ')'). An unbalanced prompt is, with probability 1/3 each,
        a near miss: a balanced string with one parenthesis, at a random position, flipped;
        equal numbers of '(' and ')' in random order, so that only the order is wrong;
        a uniformly random string.
    If one of the last two is balanced by chance, it is changed: in the first kind the first '(' is
    moved to the end, in the second it is flipped.
    Source: "Is random attention sufficient for sequence modeling?", section 3.1, which does not
    specify the distribution of its strings.
    """

    length: int

    name: ClassVar[str] = "dyck-1"
    guess_rule: ClassVar[str] = "either answer"

    @property
    def d_vocab(self) -> int:
        """Two parentheses, '=' and two answers."""
        return 5

    @property
    def n_ctx(self) -> int:
        """The string and '='."""
        return self.length + 1

    @property
    def guess(self) -> float:
        """Half of the prompts are balanced."""
        return 0.5

    def draw(self, n_rows: int, generator: torch.Generator) -> TaskRows:
        """Random prompts; see `Task.draw`."""
        drawing: dict[str, Any] = {"generator": generator, "device": generator.device}
        kind = torch.randint(6, (n_rows, 1), **drawing)  # 0 to 2: balanced
        made = balanced_strings(n_rows, self.length, generator)
        turned = torch.randint(self.length, (n_rows, 1), **drawing)
        positions = torch.arange(self.length, device=generator.device)
        strings = torch.where((kind == 3) & (positions == turned), 1 - made, made)
        even = shuffled(n_rows, self.length // 2, self.length // 2, generator)
        even = torch.where(is_balanced(even)[:, None], even.roll(-1, 1), even)
        strings = torch.where(kind == 4, even, strings)
        free = torch.randint(2, (n_rows, self.length), **drawing)
        free = torch.where(is_balanced(free)[:, None] & (positions == 0), CLOSE, free)
        strings = torch.where(kind == 5, free, strings)
        tokens = torch.cat([strings, torch.full_like(kind, END)], dim=1)
        read = torch.full_like(kind, self.length)
        return TaskRows(tokens, read, torch.where(kind < 3, TRUE, FALSE))


def is_balanced(strings: Int[Tensor, "row pos"]) -> Bool[Tensor, " row"]:
    """Whether no prefix has more ')' than '(', and the numbers of both are equal."""
    height = (1 - 2 * strings).cumsum(1)
    return (height >= 0).all(1) & (height[:, -1] == 0)


def shuffled(
    n_rows: int, n_open: int, n_close: int, generator: torch.Generator
) -> Int[Tensor, "row pos"]:
    """The given numbers of '(' and ')' in uniformly random order."""
    uniform = torch.rand(
        n_rows,
        n_open + n_close,
        generator=generator,
        device=generator.device,
        dtype=torch.float64,  # without ties
    )
    return (uniform.argsort(1) >= n_open).long()


def balanced_strings(
    n_rows: int, length: int, generator: torch.Generator
) -> Int[Tensor, "row pos"]:
    """Uniformly random balanced strings of an even length."""
    cycle = shuffled(n_rows, length // 2, length // 2 + 1, generator)
    lowest = (1 - 2 * cycle).cumsum(1).argmin(1, keepdim=True)  # the first minimum
    positions = torch.arange(1, length + 1, device=generator.device)
    return cycle.gather(1, (lowest + positions) % (length + 1))


@dataclass(frozen=True)
class Memorization(FiniteTask):
    """Know a table by heart.

    Memorize a random table: pairs of keys, each with a value drawn once.

    A prompt is `k1 k2`, one of `side`² pairs, and the answer, read at k2, is the table's value: one
    of `side` values, drawn independently and uniformly by `table_seed`, so log2(side) bits per
    pair. k1 is one of the ids below `side`, which are the values too, k2 one of the next `side`
    ids. There is no rule to find, so the test is on the table itself. Models have three positions,
    as in the source's parameter counts (the value's is never read from). Source: "Is random
    attention sufficient for sequence modeling?", section 3.1, after Zhong and Andreas 2024.

    Attributes:
        side: number of keys of each kind, and number of values (the source's 512).
        table_seed: seed of the table.
    """

    side: int
    table_seed: int = 0

    name: ClassVar[str] = "memorization"
    guess_rule: ClassVar[str] = "the best rule that knows only the second key"

    @property
    def d_vocab(self) -> int:
        """Number of token ids: the keys of both kinds; values share the ids of the first kind."""
        return 2 * self.side

    @property
    def n_ctx(self) -> int:
        """Two keys and a value."""
        return 3

    @property
    def guess(self) -> float:
        """Accuracy of the best rule that knows only k2: its most frequent value in this table."""
        second = torch.arange(self.side).repeat(self.side)
        counts = torch.bincount(second * self.side + self.table(), minlength=self.n_rows)
        return int(counts.view(self.side, self.side).amax(1).sum()) / self.n_rows

    @property
    def n_rows(self) -> int:
        """Number of pairs of keys."""
        return self.side**2

    @property
    def stored_bits(self) -> float:
        """log2 of the number of tables, as the source counts."""
        return self.n_rows * math.log2(self.side)

    def table(self) -> Int[Tensor, " row"]:
        """The values of all pairs, in the order of their numbers."""
        generator = torch.Generator().manual_seed(self.table_seed)
        return torch.randint(self.side, (self.n_rows,), generator=generator)

    def numbered(self, numbers: Int[Tensor, " taken"]) -> TaskRows:
        """The prompts with these numbers; see `FiniteTask.numbered`."""
        first, second = numbers // self.side, numbers % self.side
        tokens = torch.stack([first, self.side + second], dim=1)
        values = self.table().to(numbers.device)[numbers]
        return TaskRows(tokens, torch.ones_like(tokens[:, :1]), values[:, None])
