"""A step that is recorded once and replayed, so that the host asks a GPU for one thing and not for forty; TF32."""

import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor

logger = logging.getLogger("leakbound")
_WARM = 3  # calls before a recording, in which libraries choose their kernels and buffers are made
Work = Callable[..., None]
Capture = Callable[[Work, Sequence[Tensor]], Work]


class Replayed:
    """Work on tensors that is recorded after three calls, where it can be, and then replayed.

    Args:
        work: Reads the tensors that it is given, all of equal shapes at each call, changes others, asks for no value.
        capture: Records the work, without doing it, and returns what does it on other tensors; None to do it as it is.
            Where it raises a ``RuntimeError``, the work is done as it is from then on.
    """

    def __init__(self, work: Work, capture: Capture | None = None) -> None:
        self._work, self._capture = work, capture
        self._calls = 0
        self._replay: Work | None = None

    def __call__(self, *tensors: Tensor) -> None:
        """Do the work once."""
        self._calls += 1
        if self._capture is not None and self._replay is None and self._calls > _WARM:
            try:
                self._replay = self._capture(self._work, tensors)
            except RuntimeError as error:
                logger.info("the step is not recorded, and asked for kernel by kernel: %s", error)
                self._capture = None
        (self._replay or self._work)(*tensors)


class _Recorded:
    """A CUDA graph and everything that it reads: a graph keeps nothing alive."""

    def __init__(self, graph: torch.cuda.CUDAGraph, work: Work, held: Sequence[Tensor]) -> None:
        self._graph, self._work, self._held = graph, work, held

    def __call__(self, *given: Tensor) -> None:
        """Do the work on other tensors."""
        for own, one in zip(self._held, given, strict=True):
            own.copy_(one)
        self._graph.replay()


def cuda_graph(work: Work, tensors: Sequence[Tensor]) -> Work:
    """Record work as a CUDA graph, as :class:`Replayed` takes it.

    Raises:
        RuntimeError: If something in it cannot be recorded.
    """
    held = [one.clone() for one in tensors]
    graph = torch.cuda.CUDAGraph()
    gc.collect()  # a graph of an earlier learner that is freed during a capture would end the capture
    collects = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph):
            work(*held)
    finally:
        if collects:
            gc.enable()
    return _Recorded(graph, work, held)


@contextmanager
def full_precision(device: str | torch.device) -> Iterator[None]:
    """Convolutions and products on a GPU in full float32, as on a CPU, and afterwards as the user has set them."""
    if torch.device(device).type == "cpu":
        yield
        return
    flags: list[Any] = [torch.backends.cudnn.conv, torch.backends.cudnn.rnn, torch.backends.cuda.matmul]  # type: ignore[attr-defined]
    before, older = [flag.fp32_precision for flag in flags], dict[Any, bool]()
    for flag in (torch.backends.cudnn, torch.backends.cuda.matmul):
        with suppress(RuntimeError):  # the user has set what the older name cannot say
            older[flag] = flag.allow_tf32
    try:
        for flag in older:  # contexts such as cudnn.flags read it, and fail where it says something else
            flag.allow_tf32 = False
        for flag in flags:
            flag.fp32_precision = "ieee"
        yield
    finally:
        for flag, allowed in older.items():
            flag.allow_tf32 = allowed
        for flag, value in zip(flags, before, strict=True):
            flag.fp32_precision = value
