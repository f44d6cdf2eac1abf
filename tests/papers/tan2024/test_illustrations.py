"""Rows of figures that need no training: the numbers of the specification, and the papers' statements about them."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from skimage.data import astronaut

from formulas import distances
from images import gathered
from leakbound.channels import GaussianChannel, Moments, estimate_moments, population_moments
from leakbound.registry import SHAPES
from leakbound_lab.attacks.metrics import auc_interval
from leakbound_lab.config.studies import IllustrationConfig
from leakbound_lab.datasets import Split
from leakbound_lab.datasets.portrait import portrait
from leakbound_lab.papers.tan2024 import closed_forms, covariance_leaks, noisy_pictures
from leakbound_lab.papers.tan2024.covariance_leaks import gaussian_auc
from leakbound_lab.registries import ILLUSTRATIONS
from leakbound_lab.steps.illustrate import illustrate

NOTHING = IllustrationConfig()
SHAPE_NAMES = ("natural", "white", "personalized", "least_power", "rate_distortion")


@pytest.fixture(scope="module")
def pictures(digits, moments) -> pd.DataFrame:
    levels = {"natural": (4.0, 16.0, 60.0), "personalized": (4.0, 16.0, 60.0), "rate_distortion": (16.0,)}
    settings = IllustrationConfig(levels=levels, images=3)
    return noisy_pictures.noisy_images(settings, dataset=digits, moments=moments, seed=0)


@pytest.fixture(scope="module")
def compared(digits, moments) -> pd.DataFrame:
    settings = IllustrationConfig(levels={"natural": (1.0, 16.0), "white": (4.0,)})
    return closed_forms.shape_costs(settings, dataset=digits, moments=moments, seed=0)


def measured(rows: pd.DataFrame, metric: str, *index: str) -> pd.Series:
    return rows[rows["metric"] == metric].set_index(list(index))["value"]


def test_the_capacity_surface_is_half_of_ln_2_where_signal_and_noise_are_equal():
    rows = closed_forms.capacity_surface(NOTHING)
    surface = rows.pivot_table(index="eigenvalue", columns="noise_variance", values="value")
    assert np.diag(surface) == pytest.approx(0.5 * math.log(2))


def test_the_toy_example_has_the_capacities_of_the_specification():
    rows = closed_forms.toy_example(NOTHING)
    capacity = measured(rows, "capacity", "weight", "noise")
    assert capacity[2.0, "parameters"] == pytest.approx(1)
    assert capacity[2.0, "data"] == pytest.approx(1)
    assert capacity[6.0, "parameters"] == pytest.approx(2.034526, abs=1e-6)
    assert capacity[6.0, "data"] == pytest.approx(1)
    noise = measured(rows, "noise_variance", "weight", "noise")
    assert noise[2.0, "parameters"] == pytest.approx(2.504283, abs=1e-6)
    assert noise[2.0, "data"] == pytest.approx(0.1565176, abs=1e-7)


def test_dropping_eigenvalues_loses_the_capacity_of_each_as_so_much_noise_does(digits, moments):
    settings = IllustrationConfig(levels={"natural": (16.0, 4.0)})
    rows = closed_forms.dropped_eigenvalues(settings, dataset=digits, moments=moments, seed=0)
    for level in (4.0, 16.0):
        own = rows[rows["level"] == level]
        left = measured(own, "capacity", "dropped")
        assert left[0] == pytest.approx(level, rel=1e-8)
        loss = measured(own, "loss", "dropped")
        assert left[:10].to_numpy() - loss[:10].to_numpy() == pytest.approx(left[1:11].to_numpy())
    noise = measured(own, "noise_variance", "dropped")
    for dropped in left.index[[0, 3, 20]]:
        determinant = np.linalg.slogdet(np.eye(moments.dimension) + moments.covariance / noise[dropped])[1]
        assert determinant / 2 == pytest.approx(left[dropped], rel=1e-6)


def test_all_shapes_are_compared_at_all_capacities_and_have_them(compared):
    found = measured(compared, "capacity", "defense", "level")
    assert {*found.index} == {(shape, level) for shape in SHAPE_NAMES for level in (1.0, 4.0, 16.0)}
    for (_, level), capacity in found.items():
        assert level * (1 - 1e-9) <= capacity <= level


@pytest.fixture(scope="module")
def few_pixels(digits) -> tuple[Moments, pd.DataFrame]:
    """Data of which 6 pixels vary, at the corner of the box, so that β is 50 on some and 1 on others."""
    generator = np.random.default_rng(0)
    factor = generator.standard_normal((6, 6))
    pixels = 32 * 12 + np.arange(5, 11)
    covariance = np.zeros((1024, 1024))
    covariance[np.ix_(pixels, pixels)] = factor @ factor.T + np.eye(6)
    moments = Moments(np.zeros(1024), covariance, 100)
    settings = IllustrationConfig(levels={"natural": (5.0,)})
    return moments, closed_forms.shape_costs(settings, dataset=digits, moments=moments, seed=0)


@pytest.mark.parametrize("shape", SHAPE_NAMES)
def test_closed_forms_of_a_shape_are_those_of_the_dense_matrices(shape, few_pixels):
    moments, rows = few_pixels
    found = {metric: measured(rows, metric, "defense")[shape] for metric in ("attacker_error", "distortion")}
    weights = closed_forms.weight_map(NOTHING)["value"].to_numpy() if shape == "personalized" else None
    channel = SHAPES.get(shape).calibrate(SHAPES.get(shape).decompose(moments, weights=weights), 5.0)
    identity = np.eye(1024)
    gain = identity if channel.gain is None else channel.basis * channel.gain @ channel.basis.T
    noise, covariance = channel.noise_covariance(), moments.covariance
    estimate = covariance @ gain.T @ np.linalg.pinv(gain @ covariance @ gain.T + noise, hermitian=True)
    error = np.trace(covariance - estimate @ gain @ covariance)
    distortion = np.trace(noise + (identity - gain) @ covariance @ (identity - gain).T)
    total = np.trace(covariance)
    assert found["attacker_error"] == pytest.approx(error / total, rel=1e-6)
    assert found["distortion"] == pytest.approx(distortion / total, rel=1e-6)


def test_pictures_come_back_as_pixels_between_0_and_1(pictures, digits):
    pixels = pictures[pictures["metric"] == "pixel"]
    assert pixels["value"].between(0, 1).all()
    clean = pixels[pixels["defense"] == "none"]["value"].to_numpy().reshape(3, 1, 32, 32)
    assert clean == pytest.approx((digits.pool.images[:3] + 1) / 2, abs=1e-6)
    assert len(pixels) == 8 * 3 * 1024
    assert (pictures["dataset"] == "digits").all()


def test_the_noise_in_a_picture_has_the_variance_of_its_channel(digits):
    # Images at 0 and a capacity so high that nothing is clipped. 32 × 1,024 draws: the ratio's standard deviation is
    # 0.0078, so that 5 of them fail wrongly less than once in a million.
    moments = Moments(np.zeros(1024), np.eye(1024), 100)
    blank = digits.pool.images[:16] * 0
    dataset = gathered(Split(blank, digits.pool.labels[:16]), members=4, validation=4)
    settings = IllustrationConfig(levels={"natural": (2500.0,), "white": (2500.0,)}, images=16)
    rows = noisy_pictures.noisy_images(settings, dataset=dataset, moments=moments, seed=0)
    expected = 1 / math.expm1(2 * 2500 / 1024)
    for shape in ("natural", "white"):
        values = rows[(rows["metric"] == "pixel") & (rows["defense"] == shape)]["value"].to_numpy()
        assert np.mean((2 * values - 1) ** 2) == pytest.approx(expected, rel=5 * math.sqrt(2 / 16384))


def test_the_portrait_is_shown_after_the_channels_of_the_dataset_in_place_of_its_images(digits, moments):
    levels = {"natural": (4.0, 300.0)}
    settings = IllustrationConfig(levels=levels, images=3, pictures="portrait")
    rows = noisy_pictures.noisy_images(settings, dataset=digits, moments=moments, seed=0)
    assert {*rows["dataset"]} == {"portrait"}
    pixels = rows[rows["metric"] == "pixel"]
    clean = pixels[pixels["defense"] == "none"].pivot(index="row", columns="column", values="value").to_numpy()
    assert clean.shape == (32, 32)
    mean = (digits.pool.images.astype(float).mean(axis=(0, 1)) + 1) / 2
    assert np.abs(clean - mean).mean() > 0.1  # no digit
    # Luminance of the whole cut: resizing keeps the mean.
    cut = astronaut()[20:180, 145:305] @ [0.299, 0.587, 0.114]
    assert clean.mean() == pytest.approx(cut.mean() / 255, abs=0.005)
    similarity = measured(rows[rows["defense"] == "natural"], "ssim", "level")
    assert similarity[300.0] > similarity[4.0]


def test_the_portrait_has_no_form_for_images_of_two_colors():
    assert portrait(3, 16).shape == (1, 3, 16, 16)
    with pytest.raises(ValueError, match=r"pictures = 'portrait': for images of 1 or 3 colors, not 2"):
        portrait(2, 16)


@pytest.mark.parametrize("name", ["compression", "shapes", "noisy_images"])
def test_an_illustration_of_data_names_the_missing_dataset_or_levels(name, digits, moments):
    with pytest.raises(ValueError, match=rf"illustrations.{name}.dataset is missing"):
        illustrate(name, NOTHING, 0, Path("rows.parquet"))
    with pytest.raises(ValueError, match=rf"illustrations.{name}.levels"):
        ILLUSTRATIONS.get(name)(NOTHING, dataset=digits, moments=moments, seed=0)


def test_attacker_error_of_noise_by_pixel_does_not_take_eigenvalues_for_pixels(moments):
    """As of a shape from outside whose spectrum holds eigenvalues of the data."""
    covariance, variances = moments.covariance, np.linspace(1.0, 30.0, 1024)
    channel, spectrum = GaussianChannel("natural", 8.0, variances), SHAPES.get("natural").decompose(moments)
    left = np.trace(covariance - covariance @ np.linalg.solve(covariance + np.diag(variances), covariance))
    assert closed_forms._attacker_error(channel, spectrum, moments) == pytest.approx(left, rel=1e-6)


@pytest.fixture(scope="module")
def accounts(digits, moments) -> pd.DataFrame:
    """Metric and account in columns, the number of rounds in rows."""
    settings = IllustrationConfig(levels={"natural": (16.0,)})
    rows = closed_forms.shape_leakage(settings, dataset=digits, moments=moments)
    return rows.pivot(index="rounds", columns=["metric", "account"], values="value")


def test_accounts_of_leakage_meet_where_no_record_was_used_twice(accounts):
    told = accounts["leakage"]
    once = told[told.index * 64 <= 400]  # of 400 members
    np.testing.assert_allclose(once[["added_uses", "joint"]], 16.0, rtol=1e-6)
    assert (told["drawn_once"] == 16.0).all()
    assert told.loc[10000, "added_uses"] == 16.0 * 1600


def test_errors_left_by_leakage_lie_between_the_rounding_of_a_pixel_and_the_prior(accounts, moments):
    left = accounts["error"]
    assert left["prior"].iloc[0] == pytest.approx(moments.total_variance / moments.dimension / 4, rel=1e-6)
    assert (left.to_numpy() >= 1 / (12 * 255**2)).all()
    assert (left.drop(columns="prior").lt(left["prior"], axis=0)).to_numpy().all()
    assert (left["linear_fresh"].diff().dropna() <= 0).all()
    assert left["linear_once"].nunique() == 1


def test_covariance_of_gaussian_records_tells_them_as_often_as_its_closed_form_says():
    """Means over 60 draws of 150 against 150 records; six standard errors of them."""
    generator = np.random.default_rng(0)
    scale = np.linalg.qr(generator.normal(size=(20, 20)))[0] * np.arange(1, 21)
    for records in (15, 40, 150):
        areas = []
        for _ in range(60):
            drawn = generator.normal(size=(records + 150, 20)) @ scale.T
            told = -distances(estimate_moments([drawn[:records]]), drawn)
            areas.append(auc_interval(told[:records], told[records:]).value)
        spread = 6 * np.std(areas) / np.sqrt(60)
        assert np.mean(areas) == pytest.approx(gaussian_auc(records, 20), abs=spread + 1e-12)


@pytest.fixture(scope="module")
def told() -> pd.DataFrame:
    """AUC by what is published, of pictures of 16 directions; the attacker has 200 of the same law."""
    generator = np.random.default_rng(0)

    def pictures(count: int) -> Split:
        images = 0.3 * np.kron(generator.normal(size=(count, 1, 4, 4)), np.ones((1, 1, 8, 8)))
        return Split(images.astype(np.float32), np.zeros(count, np.int64))

    dataset = gathered(pictures(80), aux=pictures(200), members=20, validation=10, name="squares")
    settings = IllustrationConfig(dataset="squares", covariance="aux", replicas=4)
    law = population_moments(dataset.aux.images)
    return covariance_leaks.covariance_leak(settings, dataset=dataset, moments=law, seed=0)


def test_published_covariance_tells_its_own_records_shrunk_or_not_and_that_of_others_none(told):
    assert told["records"].unique().tolist() == [8, 16, 32, 48]
    areas = told.pivot_table(index="records", columns="published", values="value")
    assert (areas.loc[:16, "members"] == 1.0).all()
    assert np.isnan(areas.loc[8, "undone"])  # of 8 records nothing is published but their total variance
    np.testing.assert_allclose(areas.loc[16:, "undone"], areas.loc[16:, "members"], atol=1e-3)
    np.testing.assert_allclose(areas["members"], areas["gaussian"], atol=0.1)  # 4 draws, 20 others each
    assert (areas[["members", "shrunk", "mean"]] > 0.6).all(axis=None)
    assert (areas["mean"].diff().dropna() < 0).all()
    assert (areas["aux"] - 0.5).abs().max() < 0.15


def test_a_covariance_leak_is_that_of_channels_and_needs_enough_records(digits, moments):
    settings = IllustrationConfig(covariance="members")
    with pytest.raises(ValueError, match=r"covariance_leak.covariance = 'members': must be 'aux'"):
        covariance_leaks.covariance_leak(settings, dataset=digits, moments=moments, seed=0)
