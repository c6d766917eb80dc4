"""Faster training: CUDA graphs, batches in parts, no denormal numbers, several processes.

A CUDA graph is a step recorded once and replayed, for models so small that launching kernels
dominates. Batches in parts limit memory: a mean over a batch is computed with the activations of
only some rows in memory.

Several processes train one model together, as `torchrun` starts them. Each rank draws its own
batches; gradients are averaged after every backward pass, so that a step equals that of a single
process on all the batches joined (if the loss is a mean over as many terms on each rank). Only rank
0 writes. With a single process, the methods of `Ranks` change nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from interp_toolkit.errors import InputError
from interp_toolkit.training.engine.settings import Problem, TrainingSettings

MANY = 2**17  # numbers in an operation that PyTorch distributes over its threads


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Flush denormal numbers to zero, if the processor can."""
    before = _flushed()
    torch.zeros(MANY).add_(1.0)  # starts PyTorch's threads
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _flushed() -> bool:
    """Whether denormals are flushed already, which PyTorch does not report."""
    smallest = torch.tensor(torch.finfo(torch.float32).smallest_normal)
    return bool(smallest / 2 == 0)


WARM_UP = 3  # steps before the recording


def records(problem: Problem, settings: TrainingSettings, ranks: Ranks) -> bool:
    """Whether this run's steps are to be recorded as a CUDA graph.

    Raises InputError if `graphs` is "on" and they cannot be.
    """
    reasons = {
        "the device is no GPU": not settings.device.startswith("cuda"),
        "this recipe's step cannot be recorded": not problem.capturable,
        "several processes train together": ranks.world > 1,
    }
    hindrance = next((reason for reason, holds in reasons.items() if holds), None)
    if settings.graphs == "on" and hindrance is not None:
        raise InputError(f"graphs = on: {hindrance}; give graphs=auto")
    return settings.graphs != "off" and hindrance is None


class RecordedStep:
    """A step that is run a few times, then recorded as a CUDA graph, then replayed.

    Args:
        step: a complete step, with the same kernels on the same memory every time.
        optimiser: a capturable one; the step recomputes its gradients.
        generator: used by the step.
    """

    def __init__(
        self,
        step: Callable[[], None],
        optimiser: torch.optim.Optimizer,
        generator: torch.Generator,
    ):
        self._step, self._optimiser, self._generator = step, optimiser, generator
        self._graph: torch.cuda.CUDAGraph | None = None
        self._warm_up = WARM_UP

    def __call__(self) -> None:
        """Do one step."""
        with torch.cuda.device(self._generator.device):  # streams belong to the current device
            if self._warm_up:
                self._warm_up -= 1
                self._beside()
                return
            if self._graph is None:
                self._graph = self._recorded()
            self._graph.replay()

    def _beside(self) -> None:
        """Run the step on a side stream."""
        here, beside = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        beside.wait_stream(here)
        with torch.cuda.stream(beside):
            self._step()
        here.wait_stream(beside)

    def _recorded(self) -> torch.cuda.CUDAGraph:
        """The step as a graph; recording does not run it."""
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._generator)
        self._optimiser.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph, stream=torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            self._step()
        return graph


def mean_in_parts(
    mean: Callable[..., Float[Tensor, ""]], batch: Sequence[Tensor], rows_at_once: int
) -> Float[Tensor, ""]:
    """The value of `mean(*batch)`, computed on `rows_at_once` rows at a time.

    Args:
        mean: a mean over rows, of tensors whose first axis is the row; without randomness.
        batch: such tensors.
        rows_at_once: largest number of rows in a part; 0: all.
    """
    n_rows = len(batch[0])
    if not 0 < rows_at_once < n_rows:
        return mean(*batch)
    total = torch.zeros((), device=batch[0].device)
    for start in range(0, n_rows, rows_at_once):
        part = [tensor[start : start + rows_at_once] for tensor in batch]
        share = len(part[0]) / n_rows
        loss = checkpoint(mean, *part, use_reentrant=False, preserve_rng_state=False)
        total = total + share * loss
    return total


@dataclass(frozen=True)
class Ranks:
    """The rank of this process among those that train together.

    Attributes:
        rank, world: index of the process, from 0, and number of processes.
    """

    rank: int = 0
    world: int = 1

    @property
    def writes(self) -> bool:
        """Whether this process writes files and reports progress."""
        return self.rank == 0

    def seed(self, seed: int) -> int:
        """The seed of this rank's batches; for rank 0 the seed itself."""
        if self.rank == 0:
            return seed
        digest = hashlib.sha256(f"{seed} {self.rank}".encode()).digest()
        return int.from_bytes(digest[:4], "little")  # the CPU's generator uses 32 bits of a seed

    def share_parameters(self, model: nn.Module) -> None:
        """Copy the parameters of rank 0 to every rank."""
        if self.world > 1:
            for parameter in model.parameters():
                dist.broadcast(parameter.data, src=0)

    def average_gradients(self, model: nn.Module) -> None:
        """Replace each gradient by its mean over the ranks, in one message."""
        if self.world == 1:
            return
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        joined = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(joined)
        joined /= self.world
        parts = torch.split(joined, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def means(self, values: Mapping[str, float], device: str) -> dict[str, float]:
        """The mean of each number over the ranks."""
        if self.world == 1:
            return dict(values)
        sums = torch.tensor(list(values.values()), dtype=torch.float64, device=device)
        dist.all_reduce(sums)
        return dict(zip(values, (sums / self.world).tolist(), strict=True))

    def gathered(self, value: Any) -> list[Any]:
        """Every rank's value, in order."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value)
        return values


def named_ranks() -> Ranks:
    """The rank and number of processes from the environment; a single process without torchrun.

    Raises InputError if the environment's values are invalid.
    """
    try:
        world = int(os.environ.get("WORLD_SIZE", "1"))
        rank = int(os.environ["RANK"]) if world > 1 else 0
    except (KeyError, ValueError) as error:
        raise InputError(
            "WORLD_SIZE and RANK in the environment are not valid: unset them, or use torchrun"
        ) from error
    return Ranks(rank, world)


@contextmanager
def ranks(device: str) -> Iterator[Ranks]:
    """The ranks from the environment (`WORLD_SIZE`, as `torchrun` sets it), connected.

    Raises InputError if the device is one numbered GPU, which the ranks cannot share, or if the
    environment's values are invalid.
    """
    if named_ranks().world == 1:
        yield Ranks()
        return
    if device.startswith("cuda"):
        if ":" in device:
            raise InputError(f"several ranks cannot share {device}: give --device cuda")
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    connected = dist.is_initialized()
    if not connected:
        dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size())
    finally:
        if not connected:
            dist.destroy_process_group()
