import numpy as np
import pytest
import torch
from torch import nn

from asking import attack_of
from leakbound.channels import estimate_moments
from leakbound.registry import SHAPES
from leakbound_lab.attacks.lower_bounds.van_trees import Prior, bound_errors, kinks_of
from leakbound_lab.config.attacks import VanTreesConfig
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.config.defenses import DPSGD, ChannelDefense, PACPrivacy, ParameterNoise, Undefended
from leakbound_lab.datasets import prepare
from leakbound_lab.models.gradients import record_gradients


@pytest.fixture(scope="module")
def small():
    return prepare("digits", DatasetConfig(members=40, validation=20, test=20, aux=300, side=8), seed=0)


def bound(dataset, defense, level, channel=None, batch_size=1, replicas=(0, 1), **settings):
    """Errors of the replicas, on pixels in [0, 1], and the share."""
    config = VanTreesConfig(**{"share": 0.4, "axes": 6, "draws": 4} | settings)
    attacked = {"defense": defense, "level": level, "channel": channel, "replicas": replicas}
    rows, _ = bound_errors(attack_of(dataset, config, model="lenet_sigmoid", batch_size=batch_size, **attacked))
    values = rows.pivot_table(index="replica", columns="metric", values="value")
    return values["mse"].to_numpy(), values["unknown_share"].to_numpy()


def aux_covariance(dataset):
    images = dataset.aux.images.reshape(len(dataset.aux), -1).astype(np.float64)
    return np.cov(images, rowvar=False, bias=True)


@pytest.mark.parametrize("name", ["natural", "white", "rate_distortion"])
def test_behind_a_channel_the_bound_is_the_linear_error_of_records_with_the_unknown_share_of_the_variance(small, name):
    shape = SHAPES.get(name)
    # The axes of the channel are those of other records.
    channel = shape.calibrate(shape.decompose(estimate_moments([small.pool.images])), 8.0)
    axes = np.eye(64) if channel.basis is None else channel.basis
    gain = np.ones(64) if channel.gain is None else channel.gain
    passing = np.isfinite(channel.variances)
    seen = (gain[:, None] * axes.T)[passing]
    signal = 0.4 * aux_covariance(small)
    total = seen @ signal @ seen.T + np.diag(channel.variances[passing])
    expected = np.trace(signal - signal @ seen.T @ np.linalg.pinv(total, hermitian=True) @ seen @ signal) / (4 * 64)
    found, share = bound(small, ChannelDefense(shape=name), 8.0, channel)
    assert found.tolist() == pytest.approx([expected] * 2, rel=1e-5)
    assert share.tolist() == [0.4] * 2


def test_without_noise_nothing_is_bounded(small):
    assert bound(small, Undefended(), None)[0].tolist() == [0.0, 0.0]
    assert bound(small, DPSGD(), 0.0)[0].tolist() == [0.0, 0.0]


def test_the_share_is_measured_on_the_public_records_unless_it_is_given(small):
    measured = bound(small, Undefended(), None, share=None)[1]
    assert 0.05 < measured[0] < 0.6
    assert Prior.of(small.aux, None).share == measured[0]


def test_draws_have_the_mean_and_the_covariance_of_the_public_records(small):
    """At every share, so that the bound and the linear oracle are about the same variances."""
    for share in (0.1, 1.0):
        drawn = Prior(small.aux, share).draws(20_000, np.random.default_rng(0)).images.reshape(20_000, -1)
        covariance = aux_covariance(small)
        assert np.abs(drawn.mean(0) - small.aux.images.mean(0).ravel()).max() < 0.03
        assert np.linalg.norm(np.cov(drawn, rowvar=False) - covariance) < 0.05 * np.linalg.norm(covariance)


def test_noise_on_gradients_raises_the_bound_from_nothing_to_the_unknown_variance(small):
    levels = [1e-6, 0.02, 1e6]
    errors = np.array([bound(small, DPSGD(), level, replicas=[0])[0] for level in levels])
    assert (np.diff(errors, axis=0) > 0).all()
    leading = np.linalg.eigvalsh(aux_covariance(small))[::-1][:6].sum()
    assert errors[0].max() < 1e-6
    assert errors[-1] == pytest.approx(0.4 * leading / (4 * 64), rel=1e-4)


def test_dp_divides_its_noise_as_it_averages_so_that_a_batch_of_known_records_hides_no_other(small):
    one, eight = (bound(small, DPSGD(), 0.1, batch_size=size, draws=2)[0] for size in (1, 8))
    assert eight == pytest.approx(one, rel=1e-5)


@pytest.mark.no_shapes
def test_no_estimate_from_noisy_gradients_beats_the_bound(small):
    """Quadrature along one axis gives the variance of the posterior, all else of the blended record being known.

    The control: noise taken as twice as large gives a number above the error, and this would show.
    """
    share, level = 0.4, 0.02
    network = attack_of(small, VanTreesConfig(), model="lenet_sigmoid").untrained("van_trees", 0)
    variances, basis = Prior(small.aux, share).principal
    std, mean = np.sqrt(share * variances), small.aux.images.mean(axis=0)
    generator, grid = np.random.default_rng(1), np.linspace(-4, 4, 81)
    errors = []
    for _ in range(40):
        row = int(generator.integers(len(small.aux)))
        known = mean + np.sqrt(1 - share) * (small.aux.images[row] - mean)
        known = known.ravel() + basis[:, 1:] @ (std[1:] * generator.standard_normal(63))
        places = std[0] * np.append(generator.standard_normal(1), grid)
        images = torch.from_numpy((known + places[:, None] * basis[:, 0]).astype(np.float32)).view(-1, 1, 8, 8)
        gradients = record_gradients(network, images, torch.full((len(places),), int(small.aux.labels[row])))
        flat = torch.cat([gradient.flatten(1) for gradient in gradients.values()], dim=1).detach()
        sent = (flat / flat.norm(dim=1, keepdim=True).clamp(min=1.0)).double().numpy()
        upload = sent[0] + level * generator.standard_normal(sent.shape[1])
        logs = -0.5 * ((upload - sent[1:]) ** 2).sum(axis=1) / level**2 - 0.5 * grid**2
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        errors.append(weights @ places[1:] ** 2 - (weights @ places[1:]) ** 2)
    reached = np.mean(errors) / (4 * 64)
    assert bound(small, DPSGD(), level, axes=1, draws=40, replicas=[0])[0][0] <= reached
    assert bound(small, DPSGD(), 2 * level, axes=1, draws=40, replicas=[0])[0][0] > reached


def test_networks_whose_gradient_jumps_are_refused_where_noise_is_on_it(small):
    config = VanTreesConfig(share=0.4)
    for model, kink in (("mlp", "Relu"), ("cnn", "Relu")):
        with pytest.raises(ValueError, match=f"{model} has {kink}: take one with smooth activations"):
            bound_errors(attack_of(small, config, model=model, defense=DPSGD(), level=0.5))


@pytest.mark.parametrize(
    ("layers", "kinks"),
    [
        ((nn.Sigmoid(), nn.Tanh(), nn.Softplus(), nn.GELU(), nn.AvgPool2d(2)), []),
        ((nn.LeakyReLU(), nn.Hardtanh(), nn.MaxPool2d(2)), ["Hardtanh", "LeakyRelu", "MaxPool2DWithIndices"]),
    ],
)
def test_kinks_are_found_by_what_autograd_records(layers, kinks):
    network = nn.Sequential(nn.Conv2d(1, 2, 3), *layers, nn.Flatten(), nn.LazyLinear(2))
    network(torch.zeros(1, 1, 8, 8))
    assert kinks_of(network, (1, 8, 8)) == kinks


@pytest.mark.parametrize(("defense", "level"), [(PACPrivacy(), 50.0), (ParameterNoise(), 0.1)])
def test_noise_of_another_kind_is_refused_by_name(small, defense, level):
    message = f"van_trees needs normal noise of one known variance.* instead of {defense.mechanism}"
    with pytest.raises(ValueError, match=message):
        bound(small, defense, level)
