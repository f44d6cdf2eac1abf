"""Operations that torch is asked for, counted as they are dispatched."""

from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

VIEWS = (
    *("view", "transpose", "split", "expand", "select", "slice", "detach", "alias", "unsqueeze", "squeeze"),
    *("permute", "unfold", "unsafe_view", "empty", "new_empty"),
)


class Operations(TorchDispatchMode):
    """Counts what torch computes in floating point, views left out."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        made = function(*args, **(kwargs or {}))
        values = [one for one in tree_leaves((args, made)) if isinstance(one, torch.Tensor)]
        if any(one.is_floating_point() for one in values) and not name.strip("_").startswith(VIEWS):
            self.counts[name] += 1
        return made


WAITING = ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal", "aten::is_nonzero")
"""Operations whose result the host has to know."""


class Waits(TorchDispatchMode):
    """Counts operations that make the host wait for a GPU, boolean indices among them."""

    def __init__(self):
        super().__init__()
        self.found = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name
        if name in WAITING:
            self.found[name] += 1
        if name.startswith("aten::index") and any(
            isinstance(one, torch.Tensor) and one.dtype == torch.bool for one in (args[1:2] and args[1]) or ()
        ):
            self.found["boolean index"] += 1
        return func(*args, **(kwargs or {}))


def waits(work) -> Counter:
    with Waits() as mode:
        work()
    return mode.found


def of_further_steps(search, fewer: int, more: int) -> tuple[Counter, Counter]:
    """Operations and waits of a search of so many steps that further steps add."""
    found = []
    for steps in (fewer, more):
        with Operations() as made:
            search(steps)
        found.append((made.counts, waits(lambda count=steps: search(count))))
    (first, waited), (second, later) = found
    return second - first, later - waited


def waits_of_adam(steps: int) -> Counter:
    """What Adam looks up of its own step number, which is on the host."""
    values = torch.zeros(2, requires_grad=True)
    values.grad = torch.ones(2)
    adam = torch.optim.Adam([values])
    return waits(lambda: [adam.step() for _ in range(steps)])
