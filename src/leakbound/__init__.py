"""Measure and bound how much a federated client's uploads tell about its data.

Names for a training loop of one's own are imported when they are used: ``import leakbound`` loads no torch.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leakbound.engine.accountant import Account, LeakageAccountant
    from leakbound.engine.engine import ChannelEngine
    from leakbound.engine.refusals import BudgetError, GuaranteeError
    from leakbound.engine.targets import Capacity, Leakage, Naming, Reconstruction
    from leakbound.engine.transformer import Channel

try:
    __version__ = version("leakbound")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0.0.0"

__all__ = [
    "Account",
    "BudgetError",
    "Capacity",
    "Channel",
    "ChannelEngine",
    "GuaranteeError",
    "Leakage",
    "LeakageAccountant",
    "Naming",
    "Reconstruction",
    "__version__",
]
_HOMES = {
    **dict.fromkeys(("Account", "LeakageAccountant"), "accountant"),
    **dict.fromkeys(("BudgetError", "GuaranteeError"), "refusals"),
    **dict.fromkeys(("Capacity", "Leakage", "Naming", "Reconstruction"), "targets"),
    "Channel": "transformer",
    "ChannelEngine": "engine",
}


def __getattr__(name: str) -> Any:
    """A public name, imported on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'leakbound' has no attribute {name!r}")
    found = getattr(import_module(f"leakbound.engine.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
