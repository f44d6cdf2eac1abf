"""Figures of the catalogue: drawn from rows that are kept, and what captions and claims say of them."""

import json
import re
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from images import gathered
from leakbound import storage
from leakbound_lab.config import reading
from leakbound_lab.config.studies import IllustrationConfig
from leakbound_lab.registries import ILLUSTRATIONS
from leakbound_lab.steps.job_list import job_list
from leakbound_lab.steps.plot import write_figure
from verdicts import evaluate
from whole_catalogue import whole_catalogue

ROOT = Path(__file__).parents[2]
FIGURES = {f"{figure.paper}/{figure.id}": figure for figure in whole_catalogue().figures}
KEPT = {
    f"{path.parent.name}/{path.stem}": path
    for path in sorted(ROOT.glob("results/reference/*/figures/*/*.parquet"), reverse=True)
}
"""Figures to the rows that one run has kept of them."""
PICTURES = ROOT / "docs" / "pictures"
SHAPES = ("natural", "white", "personalized")


@pytest.fixture(scope="module")
def illustrations() -> dict[str, pd.DataFrame]:
    """Rows of the figures without training, computed for small smooth random pictures."""
    from leakbound.channels import Moments
    from leakbound_lab.datasets import Split

    generator = np.random.default_rng(1)
    coarse = generator.uniform(-0.6, 0.6, (160, 1, 8, 8)) * np.geomspace(0.02, 1.0, 64).reshape(8, 8)
    images = np.kron(coarse, np.ones((1, 1, 4, 4))).astype(np.float32)
    split = Split(images=images, labels=np.arange(160, dtype=np.int64) % 10)
    dataset = gathered(split, members=64, validation=16, name="squares")
    flat = images.reshape(160, -1).astype(np.float64)
    moments = Moments(flat.mean(axis=0), np.cov(flat, rowvar=False, bias=True), 160)
    levels = dict.fromkeys(SHAPES, (20.0, 60.0))
    settings = {
        "noisy_images": IllustrationConfig(dataset="squares", levels=levels, images=2),
        "compression": IllustrationConfig(dataset="squares", levels={"natural": (20.0, 60.0)}),
        "reconstructions": IllustrationConfig(dataset="squares", levels={"natural": [4.0, 16.0]}, images=1),
        "leakage": IllustrationConfig(dataset="squares", levels={"natural": (20.0,)}),
        "personalized_cost": IllustrationConfig(dataset="squares", levels={"personalized": (20.0, 60.0)}),
        "shapes": IllustrationConfig(
            dataset="squares", levels={**levels, "least_power": (20.0, 60.0), "rate_distortion": (20.0, 60.0)}
        ),
    }
    given = {"dataset": dataset, "moments": moments, "seed": 0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("leakbound_lab.papers.tan2024.reconstructions._ITERATIONS", 60)
        names = (*settings, "capacity_surface", "toy_example")
        return {name: ILLUSTRATIONS.get(name)(settings.get(name, IllustrationConfig()), **given) for name in names}


def texts(path: Path) -> list[str]:
    """All that a picture says: labels, and numbers beside curves."""
    return re.findall(r"<text [^>]*>([^<]+)</text>", path.read_text(encoding="utf-8"))


def test_the_catalogue_has_every_figure_and_table_of_the_main_paper():
    assert {*(f"tan2024/fig{number:02d}" for number in range(3, 34)), "tan2024/table02"} <= set(FIGURES)


def test_a_job_draws_the_figure_of_the_catalogue_whose_options_it_states_in_their_order():
    config = reading.load(ROOT / "config" / "small.yaml")
    drawing = job_list(config).of("plot")
    assert len(drawing) > 50
    catalogue = {f"{each.paper}/{each.id}": each for each in reading.load_catalogue(config.catalogue, config).figures}
    for job in drawing:
        figure = catalogue[job.name]
        assert job.arguments["figure"] == figure.model_copy(update={"claims": ()})
        told = json.loads(job.settings_text())["figure"]
        assert told == json.loads(figure.model_dump_json(exclude={"claims"}))
        assert json.dumps(told["options"]) == json.dumps(figure.options)  # with the order of every key, as of panels


@pytest.mark.parametrize("key", KEPT)
def test_every_figure_is_drawn_from_its_rows_with_the_words_of_the_kept_one(tmp_path, key):
    write_figure(FIGURES[key], storage.read_rows(KEPT[key], sealed=False), tmp_path / "fig")
    assert texts(tmp_path / "fig.svg") == texts(KEPT[key].with_suffix(".svg"))


@pytest.mark.parametrize(
    "key", [key for key, one in FIGURES.items() if one.claims and one.illustration not in (None, "covariance_leak")]
)
def test_closed_form_claims_hold(illustrations, key):
    verdicts = evaluate(FIGURES[key], illustrations[FIGURES[key].illustration], alpha=0.05)
    assert (verdicts["verdict"] == "holds").all(), verdicts[["claim", "detail"]].to_dict("records")


def test_pictures_of_the_concepts_say_what_their_script_computes(tmp_path):
    script = runpy.run_path(str(PICTURES / "draw.py"))
    script["draw"](tmp_path)
    names = sorted(path.name for path in PICTURES.glob("*.svg"))
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    for name in names:
        assert texts(tmp_path / name) == texts(PICTURES / name)
    shown = (PICTURES.parent / "concepts.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\(pictures/(\w+\.svg)\)", shown)) == names
    assert texts(PICTURES / "capacity_leakage_error.svg").count("56") == 1  # that page states this number
