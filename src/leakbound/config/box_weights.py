"""Noise weights of the personalized channel: one rectangle of the image weighs more."""

from typing import Annotated

from pydantic import Field, model_validator

from leakbound.config.data import IMAGE_SIDE
from leakbound.config.settings import Settings, Span


class BoxWeights(Settings):
    """Per-pixel noise weights β of the personalized channel: one rectangle of the image weighs more.

    Rows and columns refer to images of 32×32 pixels. On smaller images the rectangle covers the same part,
    rounded outwards to whole pixels.
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
        """Scale rows and columns of the rectangle, first and one after the last, to images of another side."""
        rows, columns = (
            (first * side // IMAGE_SIDE, -(-end * side // IMAGE_SIDE))
            for first, end in (self.rows, self.columns)
        )
        return rows, columns
