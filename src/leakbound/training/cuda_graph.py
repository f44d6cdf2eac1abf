"""CUDA-graph capture of a training step: it is recorded once, then replayed by one launch per step.

Work that cannot be captured runs kernel by kernel.
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
    """A step on tensors that is captured after three calls, if possible, and then replayed.

    Args:
        step: Reads the tensors that it is called with, of equal shapes at each call, and changes other
            tensors. It waits for no value of the GPU.
        capture: Captures the step without running it, and returns a function that replays it on other
            tensors. None calls the step itself, as does a capture that raises a ``RuntimeError``.
    """

    def __init__(self, step: TensorStep, capture: Capture | None = None) -> None:
        self._step = step
        self._capture = capture
        self._calls = 0
        self._replay: TensorStep | None = None

    def __call__(self, *tensors: Tensor) -> None:
        """Run the step once."""
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
    """A CUDA graph with everything that it reads, because a graph keeps no tensor alive."""

    def __init__(self, graph: torch.cuda.CUDAGraph, step: TensorStep, inputs: Sequence[Tensor]) -> None:
        self._graph = graph
        self._step = step
        self._inputs = inputs

    def __call__(self, *tensors: Tensor) -> None:
        """Replay the step on other tensors."""
        for captured, tensor in zip(self._inputs, tensors, strict=True):
            captured.copy_(tensor)
        self._graph.replay()


def cuda_graph(step: TensorStep, tensors: Sequence[Tensor]) -> TensorStep:
    """Capture a step as a CUDA graph, as :class:`Replayed` takes it.

    Args:
        step: Step as :class:`Replayed` takes it.
        tensors: Inputs of the step on the GPU, of the shapes of all later calls.

    Returns:
        A function that copies its tensors into the graph's inputs and replays the graph.

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
