"""Steps on a GPU, recorded once and played back: for models so small that launching is what costs.

A CUDA graph holds every kernel of a step (draw, loss, gradients, optimiser) and starts them in one
call. The first steps run as usual on a side stream, as PyTorch asks for before recording; the
batches' generator is registered with the graph, so that every playback draws anew.
Source: the PyTorch documentation, "CUDA semantics", section "CUDA Graphs".
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from interp_toolkit.errors import InputError
from interp_toolkit.training.engine.problem import Problem
from interp_toolkit.training.engine.ranks import Ranks
from interp_toolkit.training.engine.settings import TrainingSettings

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
