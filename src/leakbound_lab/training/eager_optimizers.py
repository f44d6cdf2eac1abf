"""Optimizers of torch that do not load its compiler.

The first call of an optimizer of torch imports ``torch._dynamo``, which takes more than a second in every
job, only to mark its methods as not compiled. Nothing here is compiled, so these call the methods themselves.
"""

import inspect
from typing import TypeVar

import torch

T = TypeVar("T", bound=torch.optim.Optimizer)
_MARKED = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def _eager(kind: type[T]) -> type[T]:
    """Make an optimizer with the methods behind the marks. Its steps have the same bytes."""
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in _MARKED}
    methods["step"] = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), methods)


SGD = _eager(torch.optim.SGD)
Adam = _eager(torch.optim.Adam)
AdamW = _eager(torch.optim.AdamW)
