"""Measure and bound how much a federated client's uploads reveal about its data.

Names for a training loop of one's own are imported when they are used: ``import leakbound`` loads no torch,
and next to nothing else, because every job begins with it. ``__init__.pyi`` has them for type checkers.
"""

from leakbound import moved

_HOMES = {
    **dict.fromkeys(("Account", "LeakageAccountant"), "engine.accountant"),
    **dict.fromkeys(("BudgetError", "GuaranteeError"), "engine.refusals"),
    **dict.fromkeys(("Capacity", "Identification", "Leakage", "Reconstruction"), "engine.targets"),
    "Channel": "engine.transformer",
    "ChannelEngine": "engine.engine",
    "Ledger": "engine.ledger",
    "RandomizedResponse": "channels.randomized_response",
}
__all__ = list({**_HOMES, "__version__": ""})
moved.find_old_paths()


def __getattr__(name: str) -> object:
    """A public name, imported on first use (PEP 562)."""
    if name == "__version__":
        value: object = _version()
    elif name in _HOMES:
        from importlib import import_module

        value = getattr(import_module(f"leakbound.{_HOMES[name]}"), name)
    elif name in moved.NAMES:
        return moved.by_old_name(name)
    else:
        raise AttributeError(f"module 'leakbound' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    """Version of what is installed. Looking it up takes longer than all else that a job's start needs."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("leakbound")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0.0.0"
