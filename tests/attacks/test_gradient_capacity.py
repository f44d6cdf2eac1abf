import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from asking import attack_of, weights_of
from leakbound.accounting.dp import dp_capacity
from leakbound_lab.attacks.lower_bounds import gradient_capacity
from leakbound_lab.attacks.lower_bounds.gradient_capacity import measure_capacity
from leakbound_lab.config.attacks import GradientCapacityConfig
from leakbound_lab.config.defenses import DPPSAC, DPSGD
from leakbound_lab.models import build
from leakbound_lab.models.gradients import record_gradients


@pytest.fixture(scope="module")
def networks(digits):
    return [build("lenet", digits.colors, 10, torch.Generator().manual_seed(seed)) for seed in range(2)]


@pytest.fixture(scope="module")
def weights(networks):
    return weights_of(networks)


def measured(weights, digits, *, defense=None, level=0.5, records=120):
    attacked = {"weights": weights, "replicas": [0, 1], "batch_size": 64}
    config = GradientCapacityConfig(records=records)
    rows, arrays = measure_capacity(attack_of(digits, config, defense=defense or DPSGD(), level=level, **attacked))
    return rows.pivot_table(index="replica", columns="variant", values="value", dropna=False), arrays


def test_capacity_is_that_of_gaussian_gradients_with_the_clipped_covariance(weights, networks, digits):
    """Against autograd record by record, and the determinant over all parameters instead of the Gram matrix."""
    records, bound, level = 12, 0.7, 0.5
    values, arrays = measured(weights, digits, defense=DPSGD(max_grad_norm=bound), level=level, records=records)
    members, clipped = digits.members(0), []
    for image, label in zip(members.images[:records], members.labels[:records], strict=True):
        networks[0].zero_grad()
        F.cross_entropy(networks[0](torch.from_numpy(image[None])), torch.tensor([label])).backward()
        gradient = torch.cat([parameter.grad.flatten() for parameter in networks[0].parameters()]).double()
        clipped.append(gradient * min(1.0, bound / float(gradient.norm())))
    centered = torch.stack(clipped) - torch.stack(clipped).mean(0)
    ratio = 64 / (level * bound) ** 2
    small = torch.eye(records, dtype=torch.float64) + ratio * (centered @ centered.T) / (records - 1)
    assert values.loc[0, "measured"] == pytest.approx(0.5 * float(torch.logdet(small)), rel=1e-4)
    total = float((centered**2).sum()) / (records - 1)
    assert values.loc[0, "trace"] == pytest.approx(0.5 * ratio * total, rel=1e-4)
    assert arrays["eigenvalues"].shape == (2, records)


def test_gradients_of_large_networks_are_taken_in_smaller_pieces(weights, digits, monkeypatch):
    whole, _ = measured(weights, digits, records=12)
    parameters, sizes = sum(value[0].numel() for value in weights.values()), []

    def gradients(model, images, labels):
        sizes.append(len(images))
        return record_gradients(model, images, labels)

    monkeypatch.setattr(gradient_capacity, "constant_gradients", gradients)
    for records_held, pieces in ((5, [5, 5, 2]), (0.5, [1] * 12)):
        monkeypatch.setattr("leakbound_lab.models.memory.GRADIENT_BYTES", int(4 * parameters * records_held))
        sizes.clear()
        found, _ = measured(weights, digits, records=12)
        assert sizes == pieces * 2  # replicas
        pd.testing.assert_frame_equal(found, whole, rtol=1e-5)


def test_values_are_ordered_and_theorem_4_is_there_in_both_forms(weights, digits):
    values, _ = measured(weights, digits)
    assert (values["measured"] < values["trace"]).all()
    assert (values["trace"] <= 64 / (2 * 0.25) * 120 / 119).all()  # tr Σ <= S², but for the sample's denominator
    assert values["printed"].tolist() == [64 / 0.25] * 2
    parameters = sum(value[0].numel() for value in weights.values())
    assert values["corrected"].tolist() == pytest.approx([dp_capacity(0.5, 64, parameters)] * 2)


def test_psac_weighs_gradients_in_its_own_way(weights, digits):
    plain, adaptive = (measured(weights, digits, defense=defense)[0]["trace"] for defense in (DPSGD(), DPPSAC()))
    assert not np.allclose(plain, adaptive, rtol=1e-3)


def test_a_diverged_replica_has_no_values(weights, digits):
    broken = {name: value.clone() for name, value in weights.items()}
    broken["head.bias"][1, 0] = torch.nan
    values, arrays = measured(broken, digits)
    assert values.loc[0].notna().all()
    assert values.loc[1].isna().all()
    assert np.isnan(arrays["eigenvalues"][1]).all()
