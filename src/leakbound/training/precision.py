"""Full float32 precision on a GPU: without TF32, as a CPU computes."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, ParamSpec, TypeVar, cast

import torch

_Arguments = ParamSpec("_Arguments")
_Returned = TypeVar("_Returned")


@contextmanager
def full_precision(device: str | torch.device) -> Iterator[None]:
    """Compute convolutions and products in full float32 on a GPU; restore the user's settings afterwards.

    Args:
        device: Where the work runs; nothing is changed for a CPU.
    """
    if torch.device(device).type == "cpu":
        yield
        return
    flags: list[Any] = [torch.backends.cudnn.conv, torch.backends.cudnn.rnn, torch.backends.cuda.matmul]  # type: ignore[attr-defined]
    before = [flag.fp32_precision for flag in flags]
    older: dict[Any, bool] = {}
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


def in_full_precision(function: Callable[_Arguments, _Returned]) -> Callable[_Arguments, _Returned]:
    """Wrap a function so that it computes on its keyword ``device`` within :func:`full_precision`."""

    @functools.wraps(function)
    def computed(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Returned:
        with full_precision(cast(str, kwargs.get("device", "cpu"))):
            return function(*args, **kwargs)

    return computed
