"""Pixels of image files, decoded and in the form that is asked for."""

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Shaped, UInt8
from PIL import Image, ImageOps

from leakbound.records.records import DatasetError
from leakbound.storage import limits

_FORMATS = (
    "PNG",
    "WEBP",
    "JPEG",
    "TIFF",
)  # no others, because Pillow passes some, such as EPS, to another program
_SEVERAL = (
    "PNG",
    "WEBP",
    "TIFF",
)  # whose further frames are pictures of their own; those of JPEG are previews
_REDUCED = 16  # factor on the allowed pixels of a picture that is made smaller while it is read
Decoder = Callable[[bytes | None, str], np.ndarray]
"""Function from the bytes of a file, and its place for messages, to uint8 pixels (height, width, colors)."""


@dataclass(frozen=True)
class PictureForm:
    """Form that pictures are converted to when they are read. They are turned upright by their EXIF tag.

    Attributes:
        side: Pixels of a side. The largest centred square is cropped and resized to it. None keeps the size.
        color: ``rgb`` or ``gray``. None takes only 8-bit grey and RGB, unchanged.
        span: Levels of 16-bit pictures that become black and white, e.g. (0, 4095) if they hold 12 bits. None
            for all of 0 to 65,535.
        depths: Bits of a value of the pictures that were decoded.

    Example:
        >>> PictureForm(side=64, color="rgb")
        PictureForm(side=64, color='rgb', span=None)
    """

    side: int | None = None
    color: Literal["rgb", "gray"] | None = None
    span: tuple[int, int] | None = None
    depths: set[int] = field(default_factory=set, compare=False, repr=False)

    @property
    def deep(self) -> bool:
        """True if a picture with 16 bits was decoded since ``depths`` was last cleared."""
        return 16 in self.depths

    def __post_init__(self) -> None:
        if self.span and self.span[0] >= self.span[1]:
            raise DatasetError(f"--range {self.span[0]} {self.span[1]}: give the lower level first.")

    def decode(self, encoded: bytes | None, place: str) -> Shaped[np.ndarray, "height width colors"]:
        """Decode one PNG, WebP, JPEG or TIFF file as :func:`decode`, and convert it to this form.

        Transparent pictures get a white background, 16-bit grey gets 256 levels, and CMYK is converted
        without its colour profile.

        Args:
            encoded: Bytes of the file.
            place: File, or file and row, for messages.

        Raises:
            DatasetError: As in :func:`decode`, if the picture is neither 8-bit grey nor RGB and there is no
                ``color``, or if there is a ``span`` and it has no 16 bits.
        """
        return decode(encoded, place, self)

    def formed(self, image: Image.Image, place: str) -> Image.Image:
        """Convert an opened picture to this form."""
        if self.side:
            image.draft(None, (self.side, self.side))  # a JPEG is decoded at a fraction of its size
        image = ImageOps.exif_transpose(image)
        self.depths.add(16 if image.mode.startswith("I") else 8)
        if self.span and not image.mode.startswith("I"):
            raise DatasetError(
                f"{place}: the image has mode {image.mode!r}, and --range is for 16-bit grey. Leave it out."
            )
        if image.mode.startswith("I") and (self.span or self.color):
            image = _of_16_bits(image, *(self.span or (0, 65_535)))
        if self.color:
            image = _colored(image, self.color)
        remedy = "Convert it. Or give --color rgb or --color gray, which convert it."
        if image.mode.startswith("I"):
            remedy = (
                "Give --range, the levels that become black and white, e.g. 0 4095 for the 12 bits of an X-ray; or "
                "--color gray, which takes all of 0 to 65535."
            )
        check_mode(image.mode, place, remedy)
        return ImageOps.fit(image, (self.side, self.side)) if self.side else image

    def converted(
        self, pixels: UInt8[np.ndarray, "colors height width"], place: str
    ) -> UInt8[np.ndarray, "tall wide planes"]:
        """Convert pixels of an array to this form.

        Args:
            pixels: From 0 to 255.
            place: File and record, for messages.
        """
        upright = np.moveaxis(pixels, 0, -1)
        if self.side is None and self.color is None and self.span is None:
            return upright
        plain = upright[..., 0] if upright.shape[-1] == 1 else upright
        made = np.asarray(self.formed(Image.fromarray(np.ascontiguousarray(plain)), place))
        return made.reshape(*made.shape[:2], -1)


AS_STORED = PictureForm()
"""Pictures of one size, 8-bit grey or RGB, unchanged except for their orientation."""


def decode(
    encoded: bytes | None, place: str, form: PictureForm | None = None
) -> Shaped[np.ndarray, "height width colors"]:
    """Decode one PNG, WebP, JPEG or TIFF file to uint8 pixels.

    Args:
        encoded: Bytes of the file.
        place: File, or file and row, for messages.
        form: Form to convert it to. None leaves it as stored.

    Raises:
        DatasetError: If the bytes are missing or no image, or the image is too large or neither grey nor RGB.
    """
    if not encoded:
        raise DatasetError(f"{place}: there is no image. Replace it or leave it out.")
    largest = limits.PIXELS * limits.factor() * (_REDUCED if form and form.side else 1)
    try:
        with Image.open(io.BytesIO(encoded), formats=_FORMATS) as image:
            size = image.size
            pixels = None
            if image.format in _SEVERAL and (frames := getattr(image, "n_frames", 1)) > 1:
                raise DatasetError(
                    f"{place}: holds {frames} pictures, and a record is one: write each to a file, e.g. with Pillow: "
                    "[one.save(f'{number}.png') for number, one in enumerate(ImageSequence.Iterator(image))]"
                )
            if size[0] * size[1] <= largest:  # known before anything is decoded
                picture = image if form is None else form.formed(image, place)
                picture.load()
                mode = picture.mode
                pixels = np.asarray(picture)
    except DatasetError:
        raise
    except Exception as error:  # decoders raise all kinds of errors on damaged images
        raise DatasetError(
            f"{place}: the image cannot be decoded ({error}). Replace it or leave it out."
        ) from error
    if pixels is None:
        raise DatasetError(
            f"{place}: the image has {size[0]}×{size[1]} pixels, allowed are {largest} in all. Make it smaller, leave "
            f"it out, or set {limits.VARIABLE}."
        )
    check_mode(mode, place)
    return pixels.reshape(*pixels.shape[:2], -1)


def check_mode(mode: str, place: str, remedy: str = "Convert it.") -> None:
    """Refuse an image that is neither 8-bit grey nor RGB.

    Raises:
        DatasetError: If it is not.
    """
    if mode not in ("L", "RGB"):
        raise DatasetError(
            f"{place}: the image has mode {mode!r}, allowed are 8-bit grey ('L') and 'RGB'. {remedy}"
        )


def _of_16_bits(image: Image.Image, low: int, high: int) -> Image.Image:
    """Convert 16-bit grey to 8 bits, with these levels as black and white."""
    levels = (np.asarray(image, np.float64) - low) * (255 / (high - low))
    return Image.fromarray(np.clip(np.rint(levels), 0, 255).astype(np.uint8))


def _colored(image: Image.Image, color: str) -> Image.Image:
    """Convert a picture of any mode, but not of 16 bits, to RGB or 8-bit grey."""
    if image.has_transparency_data:
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    return image.convert("RGB" if color == "rgb" else "L")
