"""One verdict for all ranks: each learns what the others are about to release before any of them does."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

from leakbound.engine.refusals import GuaranteeError

T = TypeVar("T")
_groups: dict[Any, Any] = {}  # groups that send objects without a GPU, by the default group


def together(compute: Callable[[], T]) -> tuple[list[T], int]:
    """Gather the results of all ranks, in their order, with the number of this one.

    Raises:
        GuaranteeError: On all ranks, if one is refused, or does not come.
    """
    if not in_ranks():
        return [compute()], 0
    try:
        mine: Any = compute()
    except GuaranteeError as error:
        mine = error
    rank = dist.get_rank()
    results: list[Any] = [None] * dist.get_world_size()
    try:
        dist.all_gather_object(results, mine, group=_group())
    except RuntimeError as error:
        raise GuaranteeError(
            "another rank takes no batch, so uses cannot be counted together: let all ranks iterate over their loaders"
        ) from error
    if isinstance(mine, GuaranteeError):
        raise mine
    for other, result in enumerate(results):
        if isinstance(result, GuaranteeError):
            raise type(result)(f"rank {other}: {result}")
    return results, rank


def in_ranks() -> bool:
    """Return whether this is one of several processes of torch.distributed."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _group() -> Any:
    """Return a group over all ranks that sends objects without a GPU."""
    default = dist.group.WORLD
    if dist.get_backend() == "gloo":
        return default
    if default not in _groups:
        _groups[default] = dist.new_group(backend="gloo")
    return _groups[default]
