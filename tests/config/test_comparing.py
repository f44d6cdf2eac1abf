import numpy as np
import pytest

from leakbound.accounting.gaussian import gaussian_capacity
from leakbound_lab.config.comparing import KEPT, OwnImages, comparison, targets
from leakbound_lab.config.messages import ConfigError
from leakbound_lab.config.reading import config_of

IMAGES = OwnImages("own", "parquet_shown", 1700, 300, 40, 30)


def test_targets_are_capacities_at_which_the_best_linear_estimate_misses_the_stated_share():
    eigenvalues = np.geomspace(3.0, 1e-4, 50)
    for share, capacity in zip(KEPT, targets(eigenvalues), strict=True):
        scales = np.geomspace(1e-6, 1e6, 200_001)
        missed = (eigenvalues / (1 + eigenvalues / scales[:, None])).sum(1) / eigenvalues.sum()
        scale = scales[np.abs(missed - share).argmin()]
        assert capacity == pytest.approx(gaussian_capacity(eigenvalues, scale), rel=0.05)  # two digits are kept


def test_targets_of_one_direction_have_a_closed_form():
    assert targets(np.array([4.0]))[1] == float(f"{0.5 * np.log(2):.2g}")


def test_targets_do_not_depend_on_directions_without_variance():
    assert targets(np.array([2.0, 1.0, 0.0])) == targets(np.array([2.0, 1.0]))


@pytest.mark.parametrize(("height", "width", "side"), [(8, 8, 8), (40, 30, 32), (5, 5, 8), (10, 14, 12)])
def test_side_of_prepared_images_is_a_multiple_of_4_up_to_32(height, width, side):
    assert OwnImages("own", "parquet", 1000, 100, height, width).side == side


def test_the_configuration_is_valid_and_gives_every_arm_the_same_family_of_recipes():
    values = comparison(IMAGES, "photos", (1.0, 9.5, 80.0), replicas=8, members=None, seed=3)
    config = config_of({**values, "catalogue": "config/figures"}, "comparison")
    study = config.studies["comparison"]
    assert (study.rates, study.lengths) == ("all", "all")
    assert study.defenses["natural"] == study.defenses["white"] == study.defenses["personalized"] == (1.0, 9.5, 80.0)
    assert {"none", "early_stopping", "clipping", "dpsgd"} <= study.defenses.keys()
    uploads = config.studies["uploads"]
    assert (uploads.attacks, uploads.rates) == (("membership", "membership_uploads"), "chosen")
    assert uploads.defenses | {"early_stopping": ()} == study.defenses
    unseen = comparison(IMAGES, "photos", (1.0,), replicas=8, members=None, seed=3, sees="weights")
    assert "uploads" not in unseen["studies"]
    counts = {len(config.defense(name).learning_rates or config.training.learning_rates) for name in study.defenses}
    assert len(counts) == 1


@pytest.mark.parametrize("count", [300, 1438, 60_000])
@pytest.mark.parametrize("members", [None, 50, 10**6])
def test_parts_of_the_records_fit_into_them(count, members):
    images = OwnImages("own", "parquet", count, 100, 8, 8)
    (sizes,) = comparison(images, "x", (1.0,), replicas=6, members=members, seed=0)["datasets"].values()
    assert sizes["aux"] + sizes["pool"] == count
    assert 2 * sizes["members"] + sizes["validation"] <= sizes["pool"]
    assert members is None or sizes["members"] <= members


TABLE = OwnImages("own", "table_shown", 1700, 300, 1, 30, {"path": "own.csv", "label": "label", "standardize": True})


def test_a_table_gets_noise_and_pictures_of_its_own_and_is_otherwise_compared_alike():
    values = comparison(TABLE, "patients", (1.0, 9.5), replicas=8, members=None, seed=3)
    config = config_of({**values, "catalogue": "config/figures"}, "comparison")
    assert config.datasets["own"].path == "own.csv"
    assert "personalized" not in config.studies["comparison"].defenses
    images = comparison(IMAGES, "photos", (1.0, 9.5), replicas=8, members=None, seed=3)
    assert values["training"] == images["training"]
    assert values["illustrations"] == images["illustrations"]


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("datasets", "own", "reader"), "parquet", "need the path of a file .csv, .parquet or .npz"),
        (("datasets", "own", "path"), None, "path = None with reader = 'table_shown'"),
        (("studies", "comparison", "models"), ["lenet"], "= lenet: takes images, and datasets.own is a table; use mlp"),
        (("studies", "comparison", "defenses", "personalized"), [1.0], "is a table; take natural or white"),
        (("attacks", "gradient_inversion", "estimator"), {"steps": 9}, "learned estimates are of images"),
    ],
)
def test_what_needs_images_is_refused_for_a_table_before_any_job(place, value, words):
    values = comparison(TABLE, "patients", (1.0,), replicas=6, members=None, seed=0)
    inner = values
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(ConfigError, match=words):
        config_of({**values, "catalogue": "config/figures"}, "comparison")
