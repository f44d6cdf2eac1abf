"""Photos of people's own, in folders as they keep them, through protect, calibrate and compare."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from calling import assert_refused, called, files_in, refusal, succeeded
from leakbound import ChannelEngine
from leakbound.engine.refusals import GuaranteeError
from leakbound.records.collection import read_collection
from leakbound.records.pixels import PictureForm

SIDE = 40  # 4,800 values in RGB, whose covariance is never formed


def photos(folder: Path, count: int, seed: int) -> None:
    """Smooth pictures of mixed sizes, modes and formats."""
    generator = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    for number in range(count):
        tall, wide = generator.integers(SIDE, 3 * SIDE, 2).tolist()
        coarse = Image.fromarray(generator.integers(0, 256, (2, 2, 3), dtype=np.uint8))
        mode, suffix = [("RGB", "jpg"), ("RGBA", "png"), ("L", "jpeg"), ("P", "png"), ("RGB", "webp")][number % 5]
        coarse.resize((wide, tall), Image.Resampling.BICUBIC).convert(mode).save(folder / f"IMG_{number}.{suffix}")


@pytest.fixture(scope="module")
def drawer(tmp_path_factory):
    place = tmp_path_factory.mktemp("drawer")
    photos(place / "mine", 12, 0)
    photos(place / "others", 30, 1)
    for name in ("cats", "dogs"):
        photos(place / "classes" / name, 6, len(name))
    return place


@pytest.fixture
def place(drawer, tmp_path, monkeypatch):
    for name in ("mine", "others", "classes"):
        (tmp_path / name).symlink_to(drawer / name, target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    return tmp_path


FORM = ("--resize", SIDE, "--color", "rgb")
PHOTOS = PictureForm(SIDE, "rgb")


def stated(*words) -> dict:
    succeeded("protect", *words, "--out", "out")
    return json.loads(Path("out/protection.json").read_text(encoding="utf-8"))


def test_a_flat_folder_of_mixed_photos_becomes_noisy_pictures_of_one_form(place):
    found = stated("mine", "--public", "others", *FORM, "--kappa", 30, "--accept-capacity", 1e6)
    assert files_in(place / "out") == sorted([*(f"IMG_{number}.png" for number in range(12)), "protection.json"])
    for path in (place / "out").glob("*.png"):
        with Image.open(path) as copy:
            assert (copy.size, copy.mode, copy.getexif()) == ((SIDE, SIDE), "RGB", {})
    assert (found["classes"], found["leakage"]["label"]) == (0, 0.0)
    assert found["leakage"]["record"] == 1e6  # as accepted
    assert "because 30 records of 4800 values do not show how else it is spread" in str(found["assumed"])


def test_noise_that_is_released_has_the_capacity_that_is_stated(place):
    """57,600 values give its variance to .6 %; the capacity is counted again from pictures that are read apart."""
    kappa = 200.0
    found = stated("mine", "--public", "others", *FORM, "--kappa", kappa, "--values", "npy", "--accept-capacity", 1e6)
    own, public = (read_collection(place / name, form=PHOTOS).values / 255 for name in ("mine", "others"))
    noise = np.load("out/images.npy") - own
    assert noise.std() == pytest.approx(found["channel"]["std"]["root_mean_square"], rel=0.015)
    centred = (public - public.mean(axis=0)).reshape(len(public), -1)
    weight, spread = found["channel"]["shrinkage"], np.zeros(4800)
    spread[: len(public)] = np.linalg.eigvalsh(centred @ centred.T) / len(public)
    lengths = np.square(centred).sum(axis=1)
    error = lengths.var() / lengths.mean() ** 2 / len(lengths)  # squared and relative, of the total variance
    spread *= len(lengths) / (len(lengths) - 1) / (1 - error)
    eigenvalues = (1 - weight) * spread + weight * spread.sum() / 4800
    # Variances are raised by their error.
    assert np.log1p(eigenvalues / noise.var()).sum() / 2 == pytest.approx(kappa, rel=0.05)
    assert found["channel"]["capacity"] == pytest.approx(kappa, rel=1e-6)
    assert found["leakage"]["mse_mean"] == pytest.approx(eigenvalues.mean(), rel=1e-6)


def test_12_bits_in_16_are_refused_until_their_range_is_given(place):
    """The darkest 4,096 of 65,536 levels become 17 of 256, which is refused; with the range all levels are used."""
    (place / "xrays").mkdir()
    generator = np.random.default_rng(0)
    for number in range(20):
        levels = generator.integers(0, 4096, (8, 8)).astype(np.uint16)
        Image.fromarray(levels).save(place / "xrays" / f"{number}.png")
    words = ("calibrate", "xrays", "--kappa", 3, "--shape", "natural", "--json")
    dark, whole = (called(*words, *more) for more in (("--color", "gray"), ("--range", 0, 4095)))
    assert "xrays: the files hold 16 bits, of which so few are used" in dark.message
    assert (dark.code, "--range" in whole.err) == (2, False)
    assert json.loads(whole.out)["units"] == "pixels from 0, black, to 1, white"


def test_risk_takes_the_options_that_it_advises_for_mixed_photos(place):
    words = ("risk", "--nats", 60, "--records", 100, "--data", "mine")
    assert "--color" in refusal(*words)
    succeeded(*words, *FORM)


def test_mistakes_are_named_before_anything_is_written(place):
    before = files_in(place)
    for words, message in (
        (("--resize", 40), "mode 'RGBA', allowed are 8-bit grey"),
        (("--color", "rgb"), "read your own with --resize and --color"),
    ):
        outcome = called("protect", "mine", "--kappa", 1, "--calibrate-to-own", *words, "--out", "out")
        assert_refused(outcome, place / "out")
        assert message in outcome.message, words
    outcome = called("calibrate", "others", *FORM, "--kappa", 1, "--shape", "white", "--out", "c")
    assert (outcome.code, "a record has 4800 values, allowed are 4096" in outcome.message) == (2, True)
    assert files_in(place) == before


def test_compare_asks_for_class_folders_by_name(place):
    said = refusal("compare", "mine", "--color", "rgb", "--no-run")
    assert "one subfolder for each class, e.g. mine/cats and mine/dogs" in said


def test_compare_makes_a_name_of_any_folder(place):
    (place / "Schönheit 北").mkdir()
    outcome = called("compare", "Schönheit 北", "--no-run")
    assert (outcome.code, "--name" in outcome.message) == (2, False)
    assert "has no subfolders and no images" in outcome.message


def test_an_engine_whose_noise_is_computed_from_records_is_not_saved(tmp_path):
    public = np.random.default_rng(0).integers(0, 256, (6, 4_100), dtype=np.uint8)
    engine = ChannelEngine.for_data(public, 3.0, shape="white", progress=False)
    with pytest.raises(GuaranteeError, match="a file would hold them: keep the public records"):
        engine.save(tmp_path / "engine.safetensors")
    assert not list(tmp_path.iterdir())
