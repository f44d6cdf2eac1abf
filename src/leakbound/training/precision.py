"""Precision of products on a GPU: full float32 as on a CPU, or TF32 and bfloat16 in passes of a training."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Literal, cast

import torch
from torch import Tensor

from leakbound.config.training import Precision


def full_precision(device: str | torch.device) -> AbstractContextManager[None]:
    """Compute convolutions and products in full float32 on a GPU, and restore the user's settings afterwards.

    Args:
        device: Device of the work. For a CPU nothing changes.
    """
    return _products(device, "ieee")


def passes_in(precision: Precision, device: str | torch.device) -> AbstractContextManager[None]:
    """Allow TF32 in forward and backward passes on a GPU, within :func:`full_precision`.

    Args:
        precision: ``float32`` changes nothing.
        device: Device of the passes.
    """
    return nullcontext() if precision == "float32" else _products(device, "tf32")


def forward_in(
    precision: Precision, device: str | torch.device, forward: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    """Return a function that computes the results of ``forward``, in bfloat16 if that is the precision."""
    if precision != "bfloat16":
        return forward
    # A captured step must not keep rounded weights, hence no cache of them.
    rounding = torch.autocast(torch.device(device).type, torch.bfloat16, cache_enabled=False)
    return cast(Callable[..., Tensor], rounding(lambda *inputs: forward(*inputs).float()))


@contextmanager
def _products(device: str | torch.device, precision: Literal["ieee", "tf32"]) -> Iterator[None]:
    """Compute convolutions and products of float32 values on a GPU in full precision, or in TF32."""
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
            flag.allow_tf32 = precision == "tf32"
        for flag in flags:
            flag.fp32_precision = precision
        yield
    finally:
        for flag, allowed in older.items():
            flag.allow_tf32 = allowed
        for flag, value in zip(flags, before, strict=True):
            flag.fp32_precision = value
