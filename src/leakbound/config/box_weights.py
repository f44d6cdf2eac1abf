"""Noise weights of the personalized channel: one rectangle of the image weighs more."""

from typing import Annotated

from pydantic import Field, model_validator

from leakbound.config.data import IMAGE_SIDE
from leakbound.config.settings import Settings, Span


class BoxWeights(Settings):
    """Per-pixel noise weights β of the personalized channel: one rectangle of the image weighs more.

    It is given for images of 32×32; of smaller ones it is the same part, whole pixels that it touches.
    """

    rows: Span = (12, 20)
    """First row of the rectangle and the row after its last."""
    columns: Span = (8, 24)
    """First column of the rectangle and the column after its last."""
    weight: Annotated[float, Field(ge=1e-6, le=1e6)] = 50.0
    """β inside the rectangle; it is 1 outside."""

    @model_validator(mode="after")
    def _inside_the_image(self) -> "BoxWeights":
        for name in ("rows", "columns"):
            first, after = getattr(self, name)
            if not 0 <= first < after <= IMAGE_SIDE:
                raise ValueError(
                    f"{name} = [{first}, {after}] must satisfy 0 <= first < after <= {IMAGE_SIDE}"
                )
        return self

    def on(self, side: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Rows and columns of the rectangle on images of another side: first, and the one after the last."""
        (top, below), (left, after) = (
            (first * side // IMAGE_SIDE, -(-end * side // IMAGE_SIDE))
            for first, end in (self.rows, self.columns)
        )
        return (top, below), (left, after)
