"""CUDA-graph capture of a training step: it is recorded once, then replayed by one launch per step.

Work that cannot be captured runs kernel by kernel.
"""

import gc
import logging
from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

logger = logging.getLogger("leakbound")
_WARM_UP = 3  # calls before a capture, in which libraries choose their kernels and buffers are made
TensorStep = Callable[..., None]
Capture = Callable[..., TensorStep]


class Replayed:
    """A step on tensors that is captured after three calls with equal shapes, if possible, and then replayed.

    Args:
        step: Reads the tensors that it is called with, and changes other tensors. It waits for no value of
            the GPU. What a replay computes is read before the next one, which may be of another shape.
        capture: Captures the step without running it, and returns a function that replays it on other
            tensors of these shapes. It gets the step, the tensors, and for further shapes the first such
            function, whose memory may be used again. None calls the step itself, as does a capture that
            raises a ``RuntimeError``.
    """

    def __init__(self, step: TensorStep, capture: Capture | None = None) -> None:
        self._step = step
        self._capture = capture
        self._calls: Counter[tuple[torch.Size, ...]] = Counter()
        self._replays: dict[tuple[torch.Size, ...], TensorStep] = {}

    def __call__(self, *tensors: Tensor) -> None:
        """Run the step once."""
        shapes = tuple(tensor.shape for tensor in tensors)
        self._calls[shapes] += 1
        if self._capture is not None and shapes not in self._replays and self._calls[shapes] > _WARM_UP:
            first = list(self._replays.values())[:1]
            try:
                self._replays[shapes] = self._capture(self._step, tensors, *first)
            except RuntimeError as error:
                logger.info(
                    "the step is not captured as a CUDA graph, its kernels start one by one: %s", error
                )
                self._capture = None
        self._replays.get(shapes, self._step)(*tensors)


class _Captured:
    """A CUDA graph with everything that it reads, because a graph keeps no tensor alive."""

    def __init__(self, graph: torch.cuda.CUDAGraph, step: TensorStep, inputs: Sequence[Tensor]) -> None:
        self._graph = graph
        self._step = step
        self._inputs = inputs
        self.pool = graph.pool()

    def __call__(self, *tensors: Tensor) -> None:
        """Replay the step on other tensors."""
        for captured, tensor in zip(self._inputs, tensors, strict=True):
            captured.copy_(tensor)
        self._graph.replay()


def cuda_graph(step: TensorStep, tensors: Sequence[Tensor], earlier: TensorStep | None = None) -> TensorStep:
    """Capture a step as a CUDA graph, as :class:`Replayed` takes it.

    Args:
        step: Step as :class:`Replayed` takes it.
        tensors: Inputs of the step on the GPU, of the shapes of all later calls.
        earlier: Result for other shapes, whose memory is used again.

    Returns:
        A function that copies its tensors into the graph's inputs and replays the graph.

    Raises:
        RuntimeError: If something in the step cannot be captured.
    """
    inputs = [tensor.clone() for tensor in tensors]
    graph = torch.cuda.CUDAGraph()
    pool = earlier.pool if isinstance(earlier, _Captured) else None
    gc.collect()  # a graph of an earlier learner that is freed during a capture would end the capture
    collects = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, pool=pool):
            step(*inputs)
    finally:
        if collects:
            gc.enable()
    return _Captured(graph, step, inputs)
