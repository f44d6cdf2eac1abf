"""Full float32 precision on a GPU, without TF32, as on a CPU."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch


@contextmanager
def full_precision(device: str | torch.device) -> Iterator[None]:
    """Compute convolutions and products in full float32 on a GPU, and restore the user's settings afterwards.

    Args:
        device: Device of the work. For a CPU nothing changes.
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
