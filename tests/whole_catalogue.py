"""The catalogue of figures, read and checked once in each process of tests."""

from functools import cache
from pathlib import Path

from leakbound_lab.config import reading
from leakbound_lab.config.catalogue import Catalogue

FIGURES = Path(__file__).parents[1] / "config" / "figures"


@cache
def whole_catalogue() -> Catalogue:
    """All figures of the project, checked beside the quick preset."""
    return reading.load_catalogue(FIGURES, reading.quick())
