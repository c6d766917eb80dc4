"""Several processes that train one model together, as `torchrun` starts them.

Each rank draws its own batches; the gradients are averaged after every backward pass, so that a
step is the one that a single process would make on all the batches joined (as long as the loss is
a mean over as many terms on each rank). Only rank 0 writes. Alone, all of this does nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from interp_toolkit.errors import InputError


@dataclass(frozen=True)
class Ranks:
    """The rank of this process.

    Attributes:
        rank, world: its number, from 0, and how many there are.
    """

    rank: int = 0
    world: int = 1

    @property
    def writes(self) -> bool:
        """Whether this process is the one that writes files and reports."""
        return self.rank == 0

    def seed(self, seed: int) -> int:
        """The seed of this rank's batches; rank 0's is the seed itself."""
        if self.rank == 0:
            return seed
        digest = hashlib.sha256(f"{seed} {self.rank}".encode()).digest()
        return int.from_bytes(digest[:4], "little")  # the CPU's generator uses 32 bits of a seed

    def share_parameters(self, model: nn.Module) -> None:
        """Give every rank the parameters of rank 0."""
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
    """The rank and number of processes that the environment names; without torchrun, one alone.

    Raises InputError when it names none that could be.
    """
    try:
        world = int(os.environ.get("WORLD_SIZE", "1"))
        rank = int(os.environ["RANK"]) if world > 1 else 0
    except (KeyError, ValueError) as error:
        raise InputError(
            "WORLD_SIZE and RANK in the environment name no processes: unset them, or use torchrun"
        ) from error
    return Ranks(rank, world)


@contextmanager
def ranks(device: str) -> Iterator[Ranks]:
    """The ranks that the environment names (`WORLD_SIZE`, as `torchrun` sets it), connected.

    Raises InputError when the device is one numbered GPU, which the ranks cannot share, or the
    environment names no ranks.
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
