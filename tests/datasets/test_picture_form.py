"""Photos as people keep them become pictures of one form, or are refused by name."""

import io

import numpy as np
import pytest
from PIL import Image

from leakbound.records.pixels import AS_STORED, PictureForm, decode
from leakbound_lab.datasets import DatasetError


def encoded(image: Image.Image, kind: str = "PNG", **how) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **how)
    return file.getvalue()


def turned(orientation: int) -> dict:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return {"exif": exif}


def stripes(width: int, height: int) -> Image.Image:
    """Red, green and blue from left to right; the green part is a centred square."""
    pixels = np.zeros((height, width, 3), np.uint8)
    left = (width - height) // 2
    pixels[:, :left, 0], pixels[:, left : left + height, 1], pixels[:, left + height :, 2] = 255, 255, 255
    return Image.fromarray(pixels)


def test_the_largest_centred_square_is_cut_out_before_it_is_resized():
    for image in (stripes(90, 30), stripes(90, 30).rotate(90, expand=True)):
        small = PictureForm(side=6).decode(encoded(image), "a.png")
        assert small.shape == (6, 6, 3)
        assert np.abs(small.astype(int) - [0, 255, 0]).max() <= 25  # next to the edge the kernel sees what is beyond
        assert np.array_equal(small[1:-1, 1:-1], np.broadcast_to([0, 255, 0], (4, 4, 3)))


def test_a_jpeg_that_is_decoded_at_a_fraction_of_its_size_looks_the_same():
    rows, columns = np.mgrid[0:400, 0:600]
    image = Image.fromarray((128 + 100 * np.sin(rows / 60) * np.cos(columns / 80)).astype(np.uint8))
    small = PictureForm(side=16).decode(encoded(image, "JPEG", quality=95), "a.jpg").astype(int)
    whole = np.asarray(image.crop((100, 0, 500, 400)).resize((16, 16), Image.Resampling.BOX)).astype(int)
    assert np.abs(small[..., 0] - whole).max() <= 6


@pytest.mark.parametrize("form", [AS_STORED, PictureForm(side=4), PictureForm(color="gray")])
def test_pictures_are_turned_upright(form):
    pixels = np.zeros((4, 4), np.uint8)
    pixels[0, 0] = 255
    image = Image.fromarray(pixels)
    found = [form.decode(encoded(image, "PNG", **turned(tag)), "a.png")[..., 0] for tag in (1, 3, 6, 8)]
    assert [np.unravel_index(one.argmax(), one.shape) for one in found] == [(0, 0), (3, 3), (0, 3), (3, 0)]
    assert decode(encoded(image, "PNG", **turned(3)), "a.png")[0, 0, 0] == 255  # datasets are as they are stored


DEEP = Image.fromarray((257 * np.array([[0, 1, 128, 255]])).astype(np.uint16))
CLEAR = Image.fromarray(np.array([[[10, 20, 30, 255], [10, 20, 30, 0], [0, 0, 0, 51]]], np.uint8))
PALETTE = Image.fromarray(np.array([[[200, 10, 10], [10, 200, 10]]], np.uint8)).convert("P", palette=1, colors=2)
MODES = [
    (DEEP, "gray", [[[0], [1], [128], [255]]]),
    (CLEAR, "rgb", [[[10, 20, 30], [255] * 3, [204] * 3]]),
    (CLEAR.convert("LA"), "gray", [[[18], [255], [204]]]),
    (PALETTE, "rgb", np.asarray(PALETTE.convert("RGB"))),
    (Image.new("RGB", (1, 1), (255, 0, 0)), "gray", [[[76]]]),
]


@pytest.mark.parametrize(("image", "color", "expected"), MODES, ids=lambda one: getattr(one, "mode", ""))
def test_all_modes_become_the_color_that_is_asked_for(image, color, expected):
    found = PictureForm(color=color).decode(encoded(image), "a.png")
    assert np.array_equal(found, expected)
    if image.mode not in ("L", "RGB"):
        with pytest.raises(
            DatasetError, match=r"a.png: the image has mode .*, allowed .* (Or give|Give) --(color|range)"
        ):
            AS_STORED.decode(encoded(image), "a.png")


def test_pictures_for_printing_are_converted():
    ink = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    red = PictureForm(color="rgb").decode(encoded(ink, "JPEG", quality=95), "a.jpg")
    assert np.abs(red.astype(int) - [255, 0, 0]).max() <= 6
    with pytest.raises(DatasetError, match="mode 'CMYK'"):
        PictureForm(side=4).decode(encoded(ink, "JPEG"), "a.jpg")


def test_large_photos_are_taken_if_they_are_made_smaller_at_once():
    large = encoded(Image.new("L", (2500, 2000), 9), "JPEG")
    with pytest.raises(DatasetError, match=r"a.jpg: the image has 2500×2000 pixels, allowed are 4194304"):
        AS_STORED.decode(large, "a.jpg")
    assert np.array_equal(PictureForm(side=2).decode(large, "a.jpg"), np.full((2, 2, 1), 9))


def test_what_is_no_picture_is_named():
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (9, 9), dtype=np.uint8))
    for form in (AS_STORED, PictureForm(8, "rgb")):
        for broken in (b"", b"GIF89a", encoded(noise)[:60]):
            with pytest.raises(DatasetError, match=r"a.png: "):
                form.decode(broken, "a.png")


def test_levels_of_a_range_of_16_bits_become_black_and_white():
    xray = encoded(Image.fromarray(np.array([[100, 1125, 2150, 4200]], np.uint16)))
    form = PictureForm(span=(100, 4200))
    assert form.decode(xray, "a.png").ravel().tolist() == [0, 64, 128, 255]
    assert PictureForm(color="gray").decode(xray, "a.png").max() == 16
    with pytest.raises(DatasetError, match=r"a\.png: the image has mode 'L', and --range is for 16-bit grey"):
        form.decode(encoded(Image.new("L", (2, 2))), "a.png")
    with pytest.raises(DatasetError, match="--range 7 7: give the lower level first"):
        PictureForm(span=(7, 7))
