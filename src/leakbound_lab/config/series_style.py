"""Appearance of a series in all figures: its label, colour and marker."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SeriesStyle:
    """Appearance of one series. Dashed lines, e.g. of frozen noise, have hollow markers.

    Attributes:
        label: Name in legends and sentences.
        color: Hexadecimal code, e.g. ``#4477AA``.
        marker: Matplotlib's code, e.g. ``o``.
        dashed: Whether its line is dashed.
    """

    label: str
    color: str
    marker: str
    dashed: bool = False

    def line(self) -> dict[str, Any]:
        """Return its keyword arguments for ``Axes.plot``."""
        face = "white" if self.dashed else self.color
        return {"color": self.color, "marker": self.marker, "ls": "--" if self.dashed else "-", "mfc": face}


Styles = Mapping[str, SeriesStyle]
"""Name of a series to its appearance."""
