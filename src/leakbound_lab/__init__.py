"""The lab: experiments of four papers by a workflow, which measures and bounds what uploads reveal.

It builds on the library :mod:`leakbound`, which knows nothing of it. Its packages come with ``leakbound[workflow]``.
"""

__all__ = ["load_run"]


def __getattr__(name: str) -> object:
    """A public name, imported on first use (PEP 562), because each job imports this package."""
    if name != "load_run":
        raise AttributeError(f"module 'leakbound_lab' has no attribute {name!r}")
    from leakbound_lab.commands.finished import load_run

    return load_run
