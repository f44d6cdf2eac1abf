import json

import numpy as np
import pytest
import torch
from scipy.fft import dctn

from leakbound import storage
from leakbound.channels import GaussianChannel, Moments, estimate_moments
from leakbound.channels.channel import linear_estimate
from leakbound.channels.sampling import ChannelSampler
from leakbound.registry import SHAPES
from leakbound_lab.attacks.learned_estimate.estimator import BANDS, Estimator, band_of, view_of
from leakbound_lab.attacks.learned_estimate.estimator_training import scene_of, train_estimator
from leakbound_lab.config.attacks import EstimatorConfig
from leakbound_lab.datasets import ImageDataset
from leakbound_lab.datasets.splits import Drawing, Split
from leakbound_lab.steps.estimator import estimator

SHAPE = (1, 8, 8)
SIZE = 64
CONFIG = EstimatorConfig(steps=200, width=16, batch_size=32, capacities=(1.0, 20.0))


def blocks(count: int, seed: int) -> np.ndarray:
    """Images of four blocks of one color, each black or white: as far from Gaussian as can be."""
    colors = np.random.default_rng(seed).choice([-1.0, 1.0], (count, 1, 2, 2))
    return colors.repeat(4, axis=2).repeat(4, axis=3).astype(np.float32)


def gaussian(count: int, seed: int) -> np.ndarray:
    """Smooth images with normal pixels, so small that hardly one leaves [-1, 1]."""
    coarse = np.random.default_rng(seed).normal(size=(count, 1, 8, 8))
    near = coarse + np.roll(coarse, 1, axis=2) + np.roll(coarse, 1, axis=3) + np.roll(coarse, (1, 1), axis=(2, 3))
    return (0.1 * near).astype(np.float32)


def spectrum_of(shape: str, moments: Moments):
    weights = np.linspace(1.0, 3.0, SIZE) if shape == "personalized" else None
    return SHAPES.get(shape).decompose(moments, weights=weights)


def channel_of(shape: str, moments: Moments, capacity: float) -> GaussianChannel:
    return SHAPES.get(shape).calibrate(spectrum_of(shape, moments), capacity)


def trained(images: np.ndarray, shapes: list[str], config: EstimatorConfig = CONFIG) -> Estimator:
    spectra = [spectrum_of(shape, estimate_moments([images])) for shape in shapes]
    return train_estimator(images, spectra, config, shrinkage=0.0, seed=0, dataset="toy")


def released_by(channel: GaussianChannel, images: np.ndarray) -> np.ndarray:
    return ChannelSampler(channel, SHAPE).apply(torch.from_numpy(images), torch.Generator().manual_seed(3)).numpy()


def ratio(learned: Estimator, channel: GaussianChannel, moments: Moments, images: np.ndarray) -> float:
    """Mean squared error of the estimate over that of the clipped linear one."""
    released = released_by(channel, images)
    estimates = learned.estimate(released, channel, moments), linear_estimate(released, channel, moments).clip(-1, 1)
    errors = [float(np.square(one - images).mean()) for one in estimates]
    return errors[0] / errors[1]


@pytest.fixture(scope="module")
def of_blocks() -> tuple[Estimator, Moments]:
    images = blocks(1000, 0)
    return trained(images, ["natural", "white", "personalized"]), estimate_moments([images])


@pytest.mark.parametrize("shape", ["natural", "white", "personalized"])
def test_learned_estimate_of_black_and_white_blocks_beats_the_linear_one(of_blocks, shape):
    """The posterior mean of a sign is a hyperbolic tangent: its error is half that of the linear estimate here."""
    learned, moments = of_blocks
    assert ratio(learned, channel_of(shape, moments, 4.0), moments, blocks(1000, 1)) < 0.8


@pytest.mark.shapes
def test_no_learned_estimate_of_gaussian_images_beats_the_linear_one():
    """Where the linear estimate is the posterior mean, the network is left alone, up to luck of the validation."""
    moments = estimate_moments([gaussian(20_000, 2)])
    settings = CONFIG.model_copy(update={"steps": 60, "capacities": (4.0, 60.0)})
    learned, fresh = trained(gaussian(1000, 0), ["natural"], config=settings), gaussian(2000, 1)
    for capacity in (6.0, 15.0, 40.0):
        assert ratio(learned, channel_of("natural", moments, capacity), moments, fresh) == pytest.approx(1, abs=0.02)


def test_channels_beyond_the_training_get_the_clipped_linear_estimate(of_blocks):
    learned, moments = of_blocks
    other_weights = SHAPES.get("personalized").decompose(moments, weights=np.linspace(3.0, 1.0, SIZE))
    beyond = [
        channel_of("natural", moments, 0.2),
        channel_of("natural", moments, 40.0),
        channel_of("least_power", moments, 4.0),
        SHAPES.get("personalized").calibrate(other_weights, 4.0),
    ]
    for channel in beyond:
        released = released_by(channel, blocks(20, 4))
        linear = linear_estimate(released, channel, moments).clip(-1, 1)
        assert np.array_equal(learned.estimate(released, channel, moments), linear)


def test_estimate_refuses_images_of_another_shape(of_blocks):
    learned, moments = of_blocks
    with pytest.raises(ValueError, match="was trained on"):
        learned.estimate(np.zeros((2, 1, 16, 16), np.float32), channel_of("natural", moments, 4.0), moments)


def test_estimator_comes_back_from_its_file(of_blocks, tmp_path):
    learned, moments = of_blocks
    path = tmp_path / "estimator.safetensors"
    storage.write_arrays(path, learned.arrays(), learned.metadata())
    read = Estimator.from_arrays(*storage.read_arrays_and_metadata(path))
    channel = channel_of("personalized", moments, 4.0)
    released = released_by(channel, blocks(20, 5))
    assert np.array_equal(read.estimate(released, channel, moments), learned.estimate(released, channel, moments))
    damaged = {**read.arrays(), "network.head.bias": np.zeros(3, np.float32)}
    with pytest.raises(ValueError, match="its network is another one"):
        Estimator.from_arrays(damaged, read.metadata())


@pytest.mark.parametrize("shape", ["natural", "white", "personalized", "least_power", "rate_distortion"])
def test_training_sees_the_channels_and_linear_estimates_of_the_attack(shape):
    """A scene with the moments that the channel was made from computes along axes what the attack does densely."""
    images = gaussian(500, 0)
    moments = estimate_moments([images])
    channel = channel_of(shape, moments, 20.0)
    scene = scene_of(moments, SHAPE, [[channel]])
    records = torch.from_numpy(gaussian(2000, 1)).flatten(1)
    linear, released = scene.draw(records, torch.zeros(2000, dtype=torch.int64), torch.Generator().manual_seed(0))
    dense = linear_estimate(released.numpy().reshape(-1, *SHAPE), channel, moments).reshape(2000, -1)
    assert np.allclose(linear.numpy(), dense, atol=1e-4)

    sampled = released_by(channel, records.numpy().reshape(-1, *SHAPE)).reshape(2000, -1)
    # Standard deviations of 2,000 draws differ by 1.6 % from their own; six of them are a false alarm of 1e-7.
    assert np.allclose(sampled.std(axis=0), released.numpy().std(axis=0), rtol=0.14)
    view, unknown = view_of(channel, moments, SHAPE)
    for mine, attacks in zip((view.noise, view.posterior, view.context), vars(scene.view).values(), strict=True):
        assert torch.allclose(mine, attacks, rtol=1e-3, atol=1e-5)
    assert scene.families[0].unknown[0] == pytest.approx(unknown, rel=1e-3)


def test_view_of_a_channel_is_that_of_the_dense_posterior_covariance():
    moments = estimate_moments([gaussian(500, 0)])
    channel = channel_of("rate_distortion", moments, 20.0)
    gain = channel.basis @ np.diag(channel.gain) @ channel.basis.T
    noise = channel.noise_covariance()
    cross = moments.covariance @ gain
    left = moments.covariance - cross @ np.linalg.pinv(gain @ cross + noise, rcond=1e-11, hermitian=True) @ cross.T
    view, unknown = view_of(channel, moments, SHAPE)
    assert np.allclose(view.posterior[0].numpy() ** 2, np.diag(left), rtol=1e-4)
    assert np.allclose(view.noise[0].numpy() ** 2, np.diag(noise), rtol=1e-4)
    assert unknown == pytest.approx(np.trace(left) / np.trace(moments.covariance))
    bands = band_of(8, 8).reshape(-1)
    parts = [
        np.diag(
            dctn(dctn(one.reshape(8, 8, 8, 8), axes=(0, 1), norm="ortho"), axes=(2, 3), norm="ortho").reshape(64, 64)
        )
        for one in (left, moments.covariance)
    ]
    expected = [np.log(parts[0][bands == one].mean() / parts[1][bands == one].mean()) for one in range(BANDS)]
    assert np.allclose(view.context[0].numpy(), expected, atol=1e-4)


def test_training_never_sees_members(tmp_path):
    """Pool and test records that are NaN leave the estimator as it is, byte by byte."""
    rng = np.random.default_rng(0)
    images = np.tanh(rng.normal(size=(60, 1, 32, 32)).astype(np.float32))
    aux, labels = Split(images[:50], np.zeros(50, np.int64)), np.zeros(10, np.int64)
    moments = estimate_moments([aux.images])
    storage.write_arrays(tmp_path / "moments", moments.arrays(), {"covariance_of": "aux"})
    spectrum = SHAPES.get("natural").decompose(moments)
    storage.write_arrays(tmp_path / "spectrum", spectrum.arrays(), {**spectrum.metadata(), "covariance_of": "aux"})
    config = EstimatorConfig(steps=2, width=4, batch_size=4, capacities=(30.0, 300.0))
    settings = {"config": config.model_dump(mode="json"), "seed": 0}
    found = []
    for name, private in (("clean", images[50:]), ("poisoned", np.full_like(images[50:], np.nan))):
        part = Split(private, labels)
        dataset = ImageDataset("toy", ("one",), part, part, aux, Drawing(4, 2, 0))
        told = {"classes": '["one"]', "name": "toy", "drawing": json.dumps(vars(dataset.drawing))}
        storage.write_arrays(tmp_path / name, dataset.arrays(), told)
        files = {"out": tmp_path / f"{name}.safetensors", "provenance": tmp_path / f"{name}.json"}
        known = {"moments": tmp_path / "moments", "spectra": {"natural": tmp_path / "spectrum"}}
        estimator(config, 0, settings, dataset=tmp_path / name, **known, **files)
        found.append(storage.read_arrays(files["out"]))
        assert storage.read_json(files["provenance"])["released"][0]["covered"]
    assert all(np.isfinite(array).all() for array in found[0].values())
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)


def test_few_records_or_odd_images_are_refused_before_training():
    spectrum = spectrum_of("natural", estimate_moments([blocks(60, 0)]))
    with pytest.raises(ValueError, match="at least 40 records"):
        train_estimator(blocks(39, 0), [spectrum], CONFIG, shrinkage=0.0, seed=0, dataset="toy")
    with pytest.raises(ValueError, match="multiples of 8"):
        train_estimator(blocks(60, 0)[:, :, :4], [spectrum], CONFIG, shrinkage=0.0, seed=0, dataset="toy")
    with pytest.raises(ValueError, match="the first must be below the second"):
        EstimatorConfig(capacities=(50.0, 50.0))
