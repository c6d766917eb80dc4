"""Faster or smaller training steps: no denormals, CUDA graphs, micro-batches.

A CUDA graph is a step recorded once and played back, for models so small that launching kernels is
what costs. Rows in parts: a mean over a batch with the activations of only some rows in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from interp_toolkit.errors import InputError
from interp_toolkit.training.engine.problem import Problem
from interp_toolkit.training.engine.ranks import Ranks
from interp_toolkit.training.engine.settings import TrainingSettings

MANY = 2**17  # numbers that PyTorch shares out among its threads


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Numbers below the smallest normal one count as zero, where the processor can do that."""
    before = _flushed()
    torch.zeros(MANY).add_(1.0)  # starts the threads among which operations are shared out
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _flushed() -> bool:
    """Whether they do already, which PyTorch does not tell."""
    smallest = torch.tensor(torch.finfo(torch.float32).smallest_normal)
    return bool(smallest / 2 == 0)


WARM_UP = 3  # steps before the recording


def records(problem: Problem, settings: TrainingSettings, ranks: Ranks) -> bool:
    """Whether this run's steps are to be recorded.

    Raises InputError where they must (`graphs` is "on") and cannot.
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
    """A step that is run a few times, then recorded, then played back.

    Args:
        step: all of a step; the same kernels on the same memory every time.
        optimiser: a capturable one; its gradients are made anew by the step.
        generator: the one that the step draws from.
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
        with torch.cuda.device(self._generator.device):  # streams are of the current device
            if self._warm_up:
                self._warm_up -= 1
                self._beside()
                return
            if self._graph is None:
                self._graph = self._recorded()
            self._graph.replay()

    def _beside(self) -> None:
        """Do the step on a side stream."""
        here, beside = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        beside.wait_stream(here)
        with torch.cuda.stream(beside):
            self._step()
        here.wait_stream(beside)

    def _recorded(self) -> torch.cuda.CUDAGraph:
        """The step as a graph; recording it runs nothing."""
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._generator)
        self._optimiser.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph, stream=torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            self._step()
        return graph


def mean_in_parts(
    mean: Callable[..., Float[Tensor, ""]], batch: Sequence[Tensor], rows_at_once: int
) -> Float[Tensor, ""]:
    """The mean that `mean(*batch)` gives, of as many rows at once.

    Args:
        mean: a mean over rows, of tensors whose first axis are the rows; draws nothing at random.
        batch: such tensors.
        rows_at_once: how many rows a part has, at most; 0: all.
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
