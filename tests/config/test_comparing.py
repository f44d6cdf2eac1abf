import numpy as np
import pytest

from leakbound.accounting.gaussian import gaussian_capacity
from leakbound.config.comparing import KEPT, OwnImages, comparison, targets
from leakbound.config.reading import check

IMAGES = OwnImages("own", "parquet_shown", 1700, 300, 40, 30)


def test_targets_are_capacities_at_which_the_best_linear_estimate_misses_the_stated_share():
    eigenvalues = np.geomspace(3.0, 1e-4, 50)
    for share, capacity in zip(KEPT, targets(eigenvalues), strict=True):
        scales = np.geomspace(1e-6, 1e6, 200_001)
        missed = (eigenvalues / (1 + eigenvalues / scales[:, None])).sum(1) / eigenvalues.sum()
        scale = scales[np.abs(missed - share).argmin()]
        assert capacity == pytest.approx(gaussian_capacity(eigenvalues, scale), rel=0.05)  # two digits are kept


def test_targets_of_one_direction_have_a_closed_form():
    assert targets(np.array([4.0]), [0.5]) == (float(f"{0.5 * np.log(2):.2g}"),)


def test_targets_do_not_depend_on_directions_without_variance():
    assert targets(np.array([2.0, 1.0, 0.0])) == targets(np.array([2.0, 1.0]))


@pytest.mark.parametrize(
    ("height", "width", "side"), [(8, 8, 8), (40, 30, 32), (28, 28, 28), (5, 5, 8), (512, 640, 32), (10, 14, 12)]
)
def test_side_of_prepared_images_is_a_multiple_of_4_up_to_32(height, width, side):
    assert OwnImages("own", "parquet", 1000, 100, height, width).side == side


def test_the_configuration_is_valid_and_gives_every_arm_the_same_family_of_recipes():
    values = comparison(IMAGES, "photos", (1.0, 9.5, 80.0), replicas=8, members=None, seed=3)
    config = check({**values, "catalogue": "config/figures"}, "comparison")
    study = config.studies["comparison"]
    assert (study.rates, study.lengths) == ("all", "all")
    assert study.defenses["natural"] == study.defenses["white"] == study.defenses["personalized"] == (1.0, 9.5, 80.0)
    assert {"none", "early_stopping", "clipping", "dpsgd"} <= study.defenses.keys()
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
