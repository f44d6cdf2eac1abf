"""Measure and bound how much a federated client's uploads tell about its data."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("leakbound")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0.0.0"
