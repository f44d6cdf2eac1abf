"""Targets are reached as independent computations see it: dense matrices, and attackers on real releases."""

import math

import numpy as np
import pytest
import torch
from gaussians import RANGE, WIDTH, gaussian, precision

from leakbound import ChannelEngine, GuaranteeError, Identification, Leakage, Reconstruction
from leakbound.accounting.risk import naming_bound
from leakbound.channels import population_moments
from leakbound.registry import SHAPES

PUBLIC = gaussian(3000)


def made(target, **options) -> ChannelEngine:
    weights = np.linspace(1, 5, WIDTH) if options.get("shape", "").startswith("personalized") else None
    return ChannelEngine.for_data(PUBLIC, target, weights=weights, value_range=RANGE, **options)


def dense_nats(engine: ChannelEngine, uses: int) -> float:
    moments = population_moments(PUBLIC)
    covariance = moments.covariance
    if engine.calibration.channel.gain is not None:  # calibrated to what it was before shrinking
        variances, axes = np.linalg.eigh(covariance)
        weight, mean = moments.shrinkage, variances.mean()
        before = np.maximum(variances, (variances - weight * mean) / (1 - weight))
        covariance = axes * before @ axes.T
    return 0.5 * np.linalg.slogdet(np.eye(WIDTH) + uses * covariance @ precision(engine.calibration.channel))[1]


def dense_error(engine: ChannelEngine, uses: int) -> float:
    inverse = np.linalg.inv(population_moments(PUBLIC).covariance)
    return float(np.trace(np.linalg.inv(inverse + uses * precision(engine.calibration.channel)))) / WIDTH


@pytest.mark.parametrize("uses", [1, 7])
@pytest.mark.parametrize("shape", SHAPES.names())
def test_all_uses_together_tell_the_leakage_that_was_asked_for(shape, uses):
    engine = made(Leakage(5.0, uses=uses), shape=shape)
    assert dense_nats(engine, uses) == pytest.approx(5.0, rel=1e-7)
    assert engine.calibration.information(uses) <= 5.0


@pytest.mark.parametrize("uses", [1, 7])
@pytest.mark.parametrize("shape", SHAPES.names())
def test_the_best_linear_estimate_has_the_error_that_was_asked_for(shape, uses):
    engine = made(Reconstruction(0.2, uses=uses), shape=shape)
    assert dense_error(engine, uses) == pytest.approx(0.2, rel=1e-7)
    assert engine.calibration.linear_error(uses) >= 0.2


def test_identification_allows_exactly_the_nats_of_its_probability():
    engine = made(Identification(0.5, among=1000, uses=4))
    nats = dense_nats(engine, 4)
    assert naming_bound(nats, 1000) == pytest.approx(0.5, rel=1e-7)
    assert nats == pytest.approx(0.5 * math.log(500) + 0.5 * math.log(0.5 / 0.999), rel=1e-7)


def test_identification_takes_at_least_two_records():
    with pytest.raises(GuaranteeError, match=r"Identification\(among=1\): identification takes at least 2"):
        Identification(0.5, among=1)


@pytest.mark.parametrize("shape", ["natural", "white", "rate_distortion"])
def test_regression_on_real_releases_errs_by_the_error_that_was_asked_for(shape):
    # 3,000 Gaussian records of 4 values: the standard error of a mean square is 1.3 %; false alarm below 1e-3.
    uses, engine = 3, made(Reconstruction(0.2, uses=3), shape=shape, seed=2, calibrate_to_own=True)
    clean = torch.from_numpy(PUBLIC)
    data = engine.protect(list(PUBLIC))
    seen = sum(torch.stack(data.__getitems__(list(range(len(data))))) for _ in range(uses)) / uses
    design = torch.cat([seen, torch.ones(len(seen), 1)], dim=1).double()
    estimate = design @ torch.linalg.lstsq(design, clean.double()).solution
    assert float((estimate - clean).square().mean()) == pytest.approx(0.2, rel=0.045)


def test_the_likeliest_of_sixteen_records_is_named_less_often_than_allowed_and_more_often_than_by_guessing():
    engine = made(Identification(0.5, among=16, uses=2), seed=3, calibrate_to_own=True)
    data = engine.protect(list(PUBLIC))
    seen = sum(torch.stack(data.__getitems__(list(range(len(data))))) for _ in range(2)) / 2
    others = np.random.default_rng(0).integers(len(PUBLIC), size=(len(PUBLIC), 15))
    lists = np.concatenate([np.arange(len(PUBLIC))[:, None], others], axis=1)
    distances = (seen[:, None] - torch.from_numpy(PUBLIC)[torch.from_numpy(lists)]).square().sum(dim=2)
    rate = float((distances.argmin(dim=1) == 0).double().mean())
    assert 2 / 16 < rate < 0.5
