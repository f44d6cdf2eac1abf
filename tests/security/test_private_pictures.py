"""Pictures of records that nobody may see stay out of every page and store that a configuration makes."""

import base64
import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import yaml
from chain import ROOT, run_jobs, small_study
from matplotlib.image import imread
from private_photos import GRAY

from calling import called
from keep import app as keep
from leakbound_lab.datasets.records import unpublishable

_EMBEDDED = re.compile(rb"data:image/(png|svg\+xml);base64,([A-Za-z0-9+/=\s]+)")
FIGURE = "tan2024/fig05"
FOLDERS = ("results/private/figures", "kept/figures", "results/mlartifacts/*/*/*/artifacts/figures")


def configuration(reader: str) -> dict:
    found = small_study("private", "lenet", {"none": []}, replicas=1, tracking={})
    found["datasets"] = {"photos": {"members": 32, "test": 20, "aux": 20}}
    found["studies"]["small"] |= {"datasets": ["photos"], "rounds": [1], "batch_sizes": [8]}
    shown = {"dataset": "photos", "levels": {"natural": [4.0]}, "images": 2}
    plugins = {"datasets": {"photos": f"private_photos:{reader}"}}
    return {**found, "plugins": plugins, "illustrations": {"noisy_images": shown}, "figure_formats": ["png"]}


def run_all(folder: Path, reader: str, monkeypatch) -> Path:
    """Run every job of the configuration, as the workflow would; returns the folder of results."""
    figures = yaml.safe_load((ROOT / "config/figures/tan2024.yaml").read_text())["figures"]
    chosen = [{**one, "claims": []} for one in figures if one["id"] == "fig05"]
    (folder / "config").mkdir(parents=True)
    (folder / "config/figures.yaml").write_text(yaml.safe_dump({"figures": chosen}))
    return run_jobs(folder, configuration(reader), monkeypatch)[0].parent


def pictures_in(content: bytes) -> Iterator[bytes]:
    """PNG pictures in the bytes of a file, also those inside of drawings inside of pages."""
    if content.startswith(b"\x89PNG"):
        yield content
    for _, encoded in _EMBEDDED.findall(content):
        yield from pictures_in(base64.b64decode(encoded))


def shows_photos(picture: bytes) -> bool:
    pixels = (imread(io.BytesIO(picture), format="png")[..., :3] * 255).round().astype(int)
    return int((abs(pixels - GRAY) <= 1).all(axis=-1).sum()) > 500


def holding_photos(folder: Path, *kinds: str) -> set[str]:
    """Files with pictures of the photos, or with their pixels as numbers."""
    found = set()
    for path in (path for path in folder.rglob("*") if path.suffix in kinds):
        if path.suffix == ".parquet":
            rows = pd.read_parquet(path)
            measured = {"pixel", "ssim", "ssim_box", "ssim_outside", "mse_box", "mse_outside"}
            held = "metric" in rows and bool(rows["metric"].isin(measured).any())
        else:
            held = any(map(shows_photos, pictures_in(path.read_bytes())))
        if held:
            found.add(path.relative_to(folder).as_posix())
    return found


@pytest.mark.parametrize("reader", ["read", "public"])
def test_pictures_of_a_reader_that_does_not_say_publishable_are_in_no_page_and_no_store(tmp_path, monkeypatch, reader):
    """Of one that does the same search finds them in the figure, in the report and in MLflow's artifacts."""
    root = run_all(tmp_path, reader, monkeypatch)
    assert called("--configfile", "config/config.yaml", "--out", "kept", program=keep).code == 0
    assert holding_photos(root / "private/illustrations", ".parquet")  # which no page and no store takes
    shutil.rmtree(root / "private/illustrations")
    found = holding_photos(tmp_path, ".png", ".svg", ".html", ".parquet")
    figures = [f"{folder}/{FIGURE}{suffix}" for folder in FOLDERS for suffix in (".parquet", ".png", ".svg")]
    assert all(list(tmp_path.glob(path)) for path in figures)
    drawing = (root / f"private/figures/{FIGURE}.svg").read_text()
    if reader == "public":
        assert len(found) == len(figures) + 1
        assert "results/private/report.html" in found
    else:
        assert found == set()
        assert "pictures of photos" in drawing


@pytest.mark.parametrize(
    ("shown", "private"),
    [
        ({"metric": ["pixel"], "dataset": ["digits"]}, []),
        ({"metric": ["pixel", "pixel"], "dataset": ["digits", "faces"]}, ["faces"]),
        ({"metric": ["pixel"], "dataset": ["nobody_knows"]}, ["nobody_knows"]),
        ({"metric": ["pixel"]}, ["faces", "mine"]),  # they may be of any
        ({"metric": ["mse"], "dataset": ["faces"]}, []),
        ({"metric": ["pixel"], "dataset": ["portrait"]}, []),  # of nobody's dataset
    ],
)
def test_gate_lets_through_only_pictures_that_a_reader_vouches_for(shown, private):
    readers = {"digits": "digits", "faces": "celeba", "mine": "parquet"}
    assert unpublishable(pd.DataFrame(shown), readers) == private


def test_gate_takes_a_dataset_of_people_for_no_portrait_by_its_name():
    rows = pd.DataFrame({"metric": ["pixel"], "dataset": ["portrait"]})
    assert unpublishable(rows, {"portrait": "celeba"}) == ["portrait"]
