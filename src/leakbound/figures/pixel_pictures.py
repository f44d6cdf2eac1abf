"""Pixel pictures of figures."""

import io
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from PIL.PngImagePlugin import PngInfo

_CHART = 8192  # colors that a chart has at most; one with photographs has more


def write_png(picture: Figure, path: Path, title: str) -> None:
    """Write a figure as PNG. A chart gets a palette, which takes a third of the space. Photographs keep all colors.

    Args:
        picture: The figure, drawn with the resolution of the current style.
        path: File to write.
        title: Title in the file.
    """
    FigureCanvasAgg(picture)
    drawn = io.BytesIO()
    picture.savefig(drawn, format="png")
    image = Image.open(drawn)
    colors, facts = image.convert("RGB"), PngInfo()
    facts.add_text("Title", title)
    if colors.getcolors(_CHART):
        colors = colors.quantize(dither=Image.Dither.NONE)
    colors.save(path, format="png", dpi=image.info["dpi"], pnginfo=facts, optimize=True)
