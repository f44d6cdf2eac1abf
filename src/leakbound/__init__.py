"""Measure and bound how much a federated client's uploads tell about its data."""


def __getattr__(name: str) -> str:
    """``__version__``, looked up when it is asked for: that takes longer than all else that a job's start needs."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("leakbound")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0.0.0"
