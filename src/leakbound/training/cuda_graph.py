"""CUDA-graph capture of a training step: recorded once, then replayed, so that the host starts one thing a step.

Work that cannot be captured is done kernel by kernel.
"""

import gc
import logging
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

logger = logging.getLogger("leakbound")
_WARM_UP = 3  # calls before a capture, in which libraries choose their kernels and buffers are made
TensorStep = Callable[..., None]
Capture = Callable[[TensorStep, Sequence[Tensor]], TensorStep]


class Replayed:
    """A step on tensors that is captured after three calls, where it can be, and then replayed.

    Args:
        step: Reads the tensors that it is given, all of equal shapes at each call, changes others, waits for
            no value.
        capture: Captures the step, without doing it, and returns what does it on other tensors; None to call
            the step itself. Where it raises a ``RuntimeError``, the step itself is called from then on.
    """

    def __init__(self, step: TensorStep, capture: Capture | None = None) -> None:
        self._step = step
        self._capture = capture
        self._calls = 0
        self._replay: TensorStep | None = None

    def __call__(self, *tensors: Tensor) -> None:
        """Do the step once."""
        self._calls += 1
        if self._capture is not None and self._replay is None and self._calls > _WARM_UP:
            try:
                self._replay = self._capture(self._step, tensors)
            except RuntimeError as error:
                logger.info(
                    "the step is not captured as a CUDA graph, its kernels start one by one: %s", error
                )
                self._capture = None
        (self._replay or self._step)(*tensors)


class _Captured:
    """A CUDA graph and everything that it reads: a graph keeps nothing alive."""

    def __init__(self, graph: torch.cuda.CUDAGraph, step: TensorStep, inputs: Sequence[Tensor]) -> None:
        self._graph = graph
        self._step = step
        self._inputs = inputs

    def __call__(self, *tensors: Tensor) -> None:
        """Do the step on other tensors."""
        for captured, tensor in zip(self._inputs, tensors, strict=True):
            captured.copy_(tensor)
        self._graph.replay()


def cuda_graph(step: TensorStep, tensors: Sequence[Tensor]) -> TensorStep:
    """Capture a step as a CUDA graph, as :class:`Replayed` takes it.

    Args:
        step: As :class:`Replayed` describes it.
        tensors: Its inputs on the GPU, of the shapes of all later calls.

    Returns:
        The step, which copies its tensors into the graph's inputs and replays it.

    Raises:
        RuntimeError: If something in the step cannot be captured.
    """
    inputs = [tensor.clone() for tensor in tensors]
    graph = torch.cuda.CUDAGraph()
    gc.collect()  # a graph of an earlier learner that is freed during a capture would end the capture
    collects = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph):
            step(*inputs)
    finally:
        if collects:
            gc.enable()
    return _Captured(graph, step, inputs)
