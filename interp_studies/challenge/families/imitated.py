"""Small transformers trained to imitate a compiled program, with or without its circuit.

Forced (strict interchange intervention training, as in InterpBench): each head of the program is
assigned a head of the small model. The small model is trained on the answers and on interchange
interventions. If an assigned head gets its output on another prompt, the answer must be that of the
program with the same intervention. If an unassigned head does, the answer must not change. The
circuit counts as known if the interchange accuracy on held-out prompts is at least LEARNT;
otherwise no question about heads is asked.

Not forced: the model is trained on the answers alone. The effect of every head is then measured by
ablating every set of heads. The answers depend on a head if ablating it alone costs at least COSTS.
They do not depend on it if ablating it in addition to any other set costs at most SPARES. No
question is asked about the other heads.

Sources: Gupta et al. 2024, "InterpBench", arXiv 2407.14494; Geiger et al. 2022, "Inducing Causal
Structure for Interpretable Neural Networks".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, combinations
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from interp_studies.challenge.case import Case, Truth
from interp_studies.challenge.families.compiled import program_rows
from interp_studies.challenge.plain import (
    PlainPass,
    Writes,
    accuracy,
    without_heads,
)
from interp_studies.challenge.programs import LIBRARY, Program, rows_of
from interp_studies.challenge.tracr_model import Compiled, compile_program
from interp_toolkit.data import FeatureData
from interp_toolkit.models.model import Head
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer

PROGRAMS = ("reverse", "compare", "most frequent")
STEPS = {True: 500, False: 300}  # of training, forced and not
BATCH, RATE = 64, 8e-3
POOL = 4096  # rows to learn from
D_MODEL, D_HEAD, N_LAYERS, N_HEADS, D_MLP = 32, 12, 2, 3, 64
LEARNT = 0.97  # of held-out exchanges answered as the program does
COSTS, SPARES = 0.1, 0.02  # of the answers


def imitated_cases(seed: int, count: int) -> Iterator[Case]:
    """`count` models: every program in turn, forced and not forced; training one takes seconds."""
    rng = np.random.default_rng([seed, 61])
    for number in range(count):
        name = PROGRAMS[number // 2 % len(PROGRAMS)]
        yield imitated_case(name, int(rng.integers(2**31)), forced=number % 2 == 0)


def imitated_case(name: str, seed: int, *, forced: bool, steps: int | None = None) -> Case:
    """A small transformer that imitates one program.

    Args:
        name: name of the program, one of PROGRAMS.
        seed: random seed of the program, the weights and the prompts.
        forced: whether the program's circuit is trained too.
        steps: number of training steps; None: STEPS.
    """
    program = LIBRARY[name](np.random.default_rng([seed, 62]))
    imitation = _Imitation(program, seed)
    imitation.train(STEPS[forced] if steps is None else steps, forced)
    model, data = imitation.model.eval(), program_rows(program, seed)
    for parameter in model.parameters():
        parameter.grad = None
    if forced:
        learnt = imitation.interchange_accuracy()
        known = min(learnt) >= LEARNT
        truth = Truth(heads=frozenset(imitation.places.values()) if known else None)
        told = f"forced, {min(learnt):.0%} of exchanges as the program"
    else:
        truth, told = _measured(model, data), "not forced, heads measured"
    return Case("imitated", f"{program.name}; {told}", None, seed, model, data, truth)


class _Imitation:
    """The model of a program, and the small model that is trained to imitate it."""

    def __init__(self, program: Program, seed: int):
        self.program = program
        self.made: Compiled = compile_program(program, seed, beside=0)
        self.plain = PlainPass(self.made.model)
        self.rng = np.random.default_rng([seed, 63])
        self.generator = torch.Generator().manual_seed(seed)
        self.at = 1 + program.asked
        symbols = rows_of(program, POOL, seed % 2**20 + 1)
        bos = np.zeros((POOL, 1), dtype=np.int64)
        self.rows = torch.from_numpy(np.concatenate([bos, symbols + 1], axis=1))
        self.writes: Writes = {}
        with torch.no_grad():
            self.answers = self._told(self.plain(self.rows, writes=self.writes))
        self.model = Transformer(
            TransformerConfig(
                n_layers=N_LAYERS,
                d_model=D_MODEL,
                n_ctx=program.n_places + 1,
                d_head=D_HEAD,
                n_heads=N_HEADS,
                d_vocab=program.d_vocab,
                d_mlp=D_MLP,
                act_fn="relu",
                normalization_type=None,
                attention_dir="causal" if program.causal else "bidirectional",
                initializer_range=0.3,
                seed=seed % 2**31,
            )
        )
        self.places = self._places()

    def _places(self) -> Mapping[Head, Head]:
        """The assigned head of each of the program's heads: layers in order, heads at random."""
        layers = sorted({head.layer for head in self.made.heads})
        last = N_LAYERS - len(layers)
        shift = int(self.rng.integers(last + 1)) if last > 0 else 0
        places: dict[Head, Head] = {}
        for number, layer in enumerate(layers):
            free = self.rng.permutation(N_HEADS)
            mine = [head for head in self.made.heads if head.layer == layer]
            places |= {
                head: Head(number + shift, int(f)) for head, f in zip(mine, free, strict=False)
            }
        return places

    def train(self, steps: int, forced: bool) -> None:
        """Train with Adam, a short warm-up and cosine decay of the learning rate to 0."""
        optimizer = torch.optim.Adam(self.model.parameters(), RATE, (0.9, 0.98))
        for step in range(steps):
            rise, rest = min(1.0, (step + 1) / 50), step / steps
            for group in optimizer.param_groups:
                group["lr"] = RATE * rise * (1 + np.cos(np.pi * rest)) / 2
            base, source = self._drawn(), self._drawn()
            with torch.enable_grad():
                loss = self._forced_loss(base, source) if forced else self._loss(base)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()

    def _drawn(self) -> Tensor:
        return torch.randint(POOL // 2, (BATCH,), generator=self.generator)

    def _loss(self, base: Tensor) -> Tensor:
        return F.cross_entropy(self._asked(self.model(self.rows[base])), self.answers[base])

    def _forced_loss(self, base: Tensor, source: Tensor) -> Tensor:
        """Sum of the losses of answers, of assigned and of unassigned heads exchanged."""
        with torch.no_grad():
            found = self._z(source)
        pairs = list(self.places.items())
        theirs, mine = pairs[int(self.rng.integers(len(pairs)))]
        others = self._others()
        chosen = {h for h in others if self.rng.random() < 1 / 2} or {others[0]}
        wanted = [self.answers[base], self._exchanged(theirs, base, source), self.answers[base]]
        logits = self._with([set(), {mine}, chosen], base, found)
        return 3 * F.cross_entropy(logits, torch.cat(wanted))

    @torch.no_grad()
    def interchange_accuracy(self, n: int = 512) -> list[float]:
        """Held-out interchange accuracy of each assigned head, then of each other head."""
        base = torch.randint(POOL // 2, POOL, (n,), generator=self.generator)
        source = torch.randint(POOL // 2, POOL, (n,), generator=self.generator)
        found, shares = self._z(source), []
        for theirs, mine in self.places.items():
            wanted = self._exchanged(theirs, base, source)
            shares.append(self._share(self._with([{mine}], base, found), wanted))
        for other in self._others():
            shares.append(self._share(self._with([{other}], base, found), self.answers[base]))
        return [*shares, self._share(self._asked(self.model(self.rows[base])), self.answers[base])]

    @staticmethod
    def _share(logits: Tensor, wanted: Tensor) -> float:
        return float((logits.argmax(-1) == wanted).double().mean())

    def _others(self) -> list[Head]:
        mine = set(self.places.values())
        every = [Head(layer, head) for layer in range(N_LAYERS) for head in range(N_HEADS)]
        return [head for head in every if head not in mine]

    def _z(self, rows: Tensor) -> dict[int, Tensor]:
        """The heads' `z` on these prompts, by layer."""
        found: dict[int, Tensor] = {}

        def keep(z: Tensor, hook: Any) -> None:
            found[int(hook.name.split(".")[1])] = z

        hooks = [(f"blocks.{layer}.attn.hook_z", keep) for layer in range(N_LAYERS)]
        self.model.run_with_hooks(self.rows[rows], fwd_hooks=hooks)
        return found

    def _with(self, sets: Sequence[set[Head]], base: Tensor, found: Mapping[int, Tensor]) -> Tensor:
        """Logits on the base prompts, with each set's `z` replaced by that on other prompts."""
        masks = torch.zeros(N_LAYERS, len(sets), N_HEADS, dtype=torch.bool)
        for number, heads in enumerate(sets):
            for layer, head in heads:
                masks[layer, number, head] = True
        by_row = masks.repeat_interleave(len(base), dim=1)[:, :, None, :, None]

        def exchange(z: Tensor, hook: Any) -> Tensor:
            layer = int(hook.name.split(".")[1])
            other = found[layer].repeat(len(sets), 1, 1, 1)
            return torch.where(by_row[layer], other, z)

        hooks = [(f"blocks.{layer}.attn.hook_z", exchange) for layer in range(N_LAYERS)]
        rows = self.rows[base].repeat(len(sets), 1)
        logits: Tensor = self.model.run_with_hooks(rows, fwd_hooks=hooks)
        return self._asked(logits)

    def _exchanged(self, head: Head, base: Tensor, source: Tensor) -> Tensor:
        """The program's answers on base prompts, one head's output being from source prompts."""
        with torch.no_grad():
            writes = self.writes[f"a{head.layer}.h{head.head}"][source]
            return self._told(self.plain(self.rows[base], cut={head: writes}))

    def _asked(self, logits: Tensor) -> Tensor:
        return logits[:, self.at]

    def _told(self, logits: Tensor) -> Tensor:
        return self._asked(logits).argmax(-1)


@torch.no_grad()
def _measured(model: Transformer, data: FeatureData) -> Truth:
    """The heads on which the answers depend, from ablating every set of heads."""
    plain = PlainPass(model)
    every = [Head(layer, head) for layer in range(N_LAYERS) for head in range(N_HEADS)]
    subsets = chain.from_iterable(combinations(every, size) for size in range(len(every) + 1))
    right = {frozenset(some): accuracy(without_heads(plain, data, some), data) for some in subsets}
    rested, between = set(), set()
    for head in every:
        costs = [right[some] - right[some | {head}] for some in right if head not in some]
        if right[frozenset()] - right[frozenset({head})] >= COSTS:
            rested.add(head)
        elif max(map(abs, costs)) > SPARES:
            between.add(head)
    return Truth(heads=frozenset(rested), unasked=frozenset(between))
