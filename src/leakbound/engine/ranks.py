"""One verdict for all ranks: all know what each process of torch.distributed is about to release before it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

from leakbound.engine.refusals import GuaranteeError

T = TypeVar("T")
_groups: dict[Any, Any] = {}  # of the default group, one that gathers objects without a GPU


def together(own: Callable[[], T]) -> tuple[list[T], int]:
    """Results of all ranks, in their order, and the number of this one; alone, the result of this process.

    Raises:
        GuaranteeError: On all ranks, if one is refused, or does not come.
    """
    if not in_ranks():
        return [own()], 0
    try:
        mine: Any = own()
    except GuaranteeError as error:
        mine = error
    rank = dist.get_rank()
    found: list[Any] = [None] * dist.get_world_size()
    try:
        dist.all_gather_object(found, mine, group=_group())
    except RuntimeError as error:
        raise GuaranteeError(
            "another rank takes no batch, so uses cannot be counted together: let all ranks iterate over their loaders"
        ) from error
    if isinstance(mine, GuaranteeError):
        raise mine
    for other, one in enumerate(found):
        if isinstance(one, GuaranteeError):
            raise type(one)(f"rank {other}: {one}")
    return found, rank


def in_ranks() -> bool:
    """True in one of several processes of torch.distributed."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _group() -> Any:
    """Group over all ranks that sends objects of a CPU."""
    default = dist.group.WORLD
    if dist.get_backend() == "gloo":
        return default
    if default not in _groups:
        _groups[default] = dist.new_group(backend="gloo")
    return _groups[default]
