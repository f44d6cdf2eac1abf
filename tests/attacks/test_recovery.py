import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch

from asking import CalledTwice, attack_of, calibrated
from leakbound.channels import Moments, estimate_moments
from leakbound.channels.sampling import ChannelSampler
from leakbound_lab.attacks.gradient_inversion import map_estimate
from leakbound_lab.attacks.gradient_inversion.closed_form import descend, solvable, solved_images
from leakbound_lab.attacks.gradient_inversion.map_estimate import Law, MapProblem, Method, methods, recover_images
from leakbound_lab.attacks.gradient_inversion.several_uses import invert_several_uses as attack_uses
from leakbound_lab.attacks.rows import COLUMNS, checked
from leakbound_lab.config.attacks import GradientInversionConfig, UsesConfig
from leakbound_lab.config.defenses import DPPSAC, DPSGD, ChannelDefense, GradientCompression, ParameterNoise, Undefended
from leakbound_lab.models import build
from leakbound_lab.models.gradients import record_gradients
from leakbound_lab.training.client_steps import client_step
from operations import of_further_steps

SHAPE = (1, 32, 32)


@pytest.fixture(scope="module")
def moments(digits) -> Moments:
    return estimate_moments([digits.aux.images])


@pytest.fixture(scope="module")
def law(digits) -> Law:
    return Law.of(digits.aux.images, None)


def network(name: str) -> torch.nn.Module:
    return build(name, 1, 10, torch.Generator().manual_seed(0)).eval()


def problem(digits, model, *, defense=None, level=None, records=1, count=2) -> tuple[MapProblem, torch.Tensor]:
    """Uploads of some batches of members, and the batches."""
    client = client_step(defense or Undefended(), level)
    images = torch.from_numpy(digits.members(0).images[: count * records]).unflatten(0, (count, records))
    labels = torch.from_numpy(digits.members(0).labels[: count * records]).unflatten(0, (count, records))
    sent = client.upload(model, images, labels, torch.Generator().manual_seed(1))
    return MapProblem(model, client, sent.gradients, labels, SHAPE), images


@pytest.mark.no_shapes
@pytest.mark.parametrize("spread", [0.0, 2.0])
def test_gradient_of_the_sigmoid_lenet_holds_the_whole_image_noise_and_all(digits, spread):
    model = network("lenet_sigmoid")
    images = torch.from_numpy(digits.members(0).images[:2])
    images = images + spread * torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    gradients = record_gradients(model, images, torch.from_numpy(digits.members(0).labels[:2]))
    found = descend(model, gradients, SHAPE)
    assert found.complete
    assert ((found.inputs.view_as(images) - images) ** 2).mean() < 1e-7 * images.var()


@pytest.mark.parametrize(("name", "layer"), [("lenet", "fc1"), ("resnet10", "head")])
def test_pooling_or_normalisation_ends_the_way_at_the_features_before_linear_layers(digits, name, layer):
    model, images, held = network(name), torch.from_numpy(digits.members(0).images[:3]), []
    gradients = record_gradients(model, images, torch.from_numpy(digits.members(0).labels[:3]))
    found = descend(model, gradients, SHAPE)
    assert (found.layer, found.complete) == (layer, False)
    with pytest.raises(ValueError, match=f"no equations lead from the gradients of {type(model).__name__}"):
        solved_images(model, gradients, SHAPE)
    model.get_submodule(layer).register_forward_hook(lambda _, inputs, __: held.append(inputs[0].detach()))
    model(images)
    torch.testing.assert_close(found.inputs.float(), held[0], rtol=1e-4, atol=1e-5)


def test_layer_that_is_called_twice_is_not_taken_for_a_chain():
    assert not solvable(CalledTwice(), SHAPE)
    assert solvable(network("lenet_sigmoid"), SHAPE)


@pytest.mark.parametrize("shape", ["natural", "rate_distortion"])
def test_law_of_released_images_is_that_of_samples(digits, moments, shape):
    channel = calibrated(moments, 16.0, shape)
    known = Law.of(digits.aux.images, channel)
    sampler = ChannelSampler(channel, SHAPE, "cpu", on_grid=False)
    many = torch.from_numpy(digits.aux.images).repeat(30, 1, 1, 1)
    seen = sampler.apply(many, torch.Generator().manual_seed(0)).flatten(1).double()
    covariance = known.root @ known.root.T
    torch.testing.assert_close(seen.mean(0), known.mean, rtol=0, atol=0.1 * float(covariance.diag().max().sqrt()))
    directions = torch.linalg.qr(torch.randn(1024, 8, generator=torch.Generator().manual_seed(2)).double()).Q
    expected = (directions * (covariance @ directions)).sum(0)
    # 6,000 samples know a variance to 1.8 %.
    torch.testing.assert_close((seen @ directions).var(0), expected, rtol=0.1, atol=1e-4)


@pytest.mark.parametrize(
    ("defense", "level"), [(None, None), (DPSGD(), 0.0), (DPPSAC(), 0.0), (GradientCompression(), 0.1)]
)
def test_true_images_explain_what_a_client_sends(digits, defense, level):
    known, images = problem(digits, network("lenet_sigmoid"), defense=defense, level=level, records=3)
    assert known.differences(images).norm(dim=1).max() < 1e-5
    assert known.differences(0.9 * images).norm(dim=1).min() > 1e-3


def test_noise_of_known_variance_is_weighed_as_in_its_likelihood(digits):
    config = GradientInversionConfig()
    noisy, _ = problem(digits, network("lenet_sigmoid"), defense=DPSGD(), level=2.0, records=4)
    (method,) = methods(noisy, config)
    assert method.name == "adam"
    # Of noise of standard deviation 2 · 1 / 4 on each of 15,226 coordinates little else than the noise is seen.
    assert method.weight == pytest.approx(15_226 / 2, rel=0.05)
    noisy, _ = problem(digits, network("lenet_sigmoid"), defense=ParameterNoise(), level=10.0)
    adam, regression = methods(noisy, config)
    assert (adam.name, regression.name, adam.weight) == ("adam", "regression", pytest.approx(15_226 / 2, rel=0.05))


def test_ways_that_are_tried_are_those_that_suit_the_upload(digits):
    config = GradientInversionConfig(gradient_weights=(1e2, 1e4))
    single, _ = problem(digits, network("lenet_sigmoid"))
    assert [method.name for method in methods(single, config)] == ["recursive", "quasi_newton", "adam", "adam"]
    batch, _ = problem(digits, network("lenet_sigmoid"), records=2)
    assert [method.name for method in methods(batch, config)] == ["quasi_newton", "adam", "adam"]
    partly, _ = problem(digits, network("lenet_sigmoid"), defense=GradientCompression(), level=0.1)
    assert [method.name for method in methods(partly, config)] == ["adam", "adam"]
    with pytest.raises(ValueError, match="adam needs a distribution"):
        recover_images(partly, Method("adam", 1.0), None, 1)


@pytest.mark.no_shapes
def test_records_of_an_undefended_batch_are_found_one_by_one(digits, law):
    known, images = problem(digits, network("lenet_sigmoid"), records=2, count=1)
    found = recover_images(known, Method("quasi_newton", 1e9), law, 150)
    assert found.solved
    errors = ((found.images[0][:, None] - images[0].numpy()[None]) ** 2).mean(axis=(2, 3, 4)) / 4
    best = min(errors[0, 0] + errors[1, 1], errors[0, 1] + errors[1, 0]) / 2
    assert best < 0.002  # 27 dB


def test_regression_is_the_best_linear_estimate_with_the_moments_of_its_draws(digits):
    whole, _ = problem(digits, network("mlp"), defense=DPSGD(), level=0.1, count=3)
    few = dataclasses.replace(whole, gradients={"head.bias": whole.gradients["head.bias"]})
    law = Law(torch.full((1024,), 0.1), 0.3 * torch.eye(1024))
    found, variance = map_estimate._regressed(few, law), few.client.noise_std(1) ** 2
    draws = 0.1 + 0.3 * torch.randn(map_estimate._DRAWS, 1024, generator=torch.Generator().manual_seed(0))
    for row, label in enumerate(few.labels[:, 0]):
        alike = dataclasses.replace(few, labels=label.expand(len(draws), 1))
        seen = alike.averaged(draws.view(-1, 1, *SHAPE))
        images, gradients = draws - draws.mean(0), seen - seen.mean(0)
        weights = (gradients.T @ gradients / len(draws) + variance * torch.eye(10)).inverse()
        expected = draws.mean(0) + images.T @ gradients / len(draws) @ weights @ (few.flat[row] - seen.mean(0))
        np.testing.assert_allclose(found[row].flatten(), expected.flatten(), rtol=0, atol=1e-5)


def test_noise_on_the_gradient_of_a_smooth_image_leaves_what_the_linear_estimate_finds():
    frequencies = torch.fft.fftfreq(32, dtype=torch.float64).abs().clamp(min=1 / 64)
    axes = torch.fft.fft2(torch.eye(1024, dtype=torch.float64).view(-1, 32, 32)).view(-1, 1024)
    deviations = 1 / torch.hypot(frequencies[:, None], frequencies).flatten()
    root = (axes.real + axes.imag) * deviations / deviations.norm() / 2  # a Hartley transform; variance 1/4
    images = torch.randn(16, 1024, generator=torch.Generator().manual_seed(4)).double() @ root.T
    images, labels = images.float().view(16, 1, *SHAPE), torch.arange(16)[:, None] % 2
    model, client = network("mlp"), client_step(DPSGD(), 0.1)
    sent = client.upload(model, images, labels, torch.Generator().manual_seed(1))
    known = MapProblem(model, client, sent.gradients, labels, SHAPE)
    law = Law(torch.zeros(1024, dtype=torch.float64), root)
    recoveries = [recover_images(known, method, law, 200) for method in methods(known, GradientInversionConfig())]
    errors = [4 * np.square(found.images - images.numpy()).mean() for found in recoveries]
    assert min(errors) < 0.8  # the most probable images, which fit the noise, hardly err less than their mean


def test_a_step_under_a_law_waits_for_nothing_and_asks_for_as_much_whatever_the_records(digits, law):
    found = []
    for count in (2, 3):
        known, _ = problem(digits, network("lenet"), defense=DPSGD(), level=0.1, count=count)
        found.append(of_further_steps(lambda steps, of=known: map_estimate._climbed(of, law, 1.0, steps), 2, 4))
    assert found[0] == found[1]
    assert found[0][0].total() < 700
    assert set(found[0][1]) == {"aten::_local_scalar_dense"}  # Adam's own step number


def test_what_is_not_finite_has_no_result(digits, law):
    known, _ = problem(digits, network("lenet_sigmoid"), records=2)
    known.gradients["head.bias"][0] = torch.nan
    found = recover_images(known, Method("adam", 1e4), law, 3)
    assert np.isnan(found.images[0]).all()
    assert np.isfinite(found.images[1]).all()
    assert found.residuals[0] == np.inf


def uses_of(digits, moments, defense, model="lenet_sigmoid"):
    known = {"channel": calibrated(moments, 8.0), "moments": moments, "defense": defense, "level": 8.0}
    return attack_uses(attack_of(digits, UsesConfig(uses=(1, 4), images=3), model, **known))


@pytest.mark.shapes
@pytest.mark.slow
def test_fresh_noise_averages_out_and_frozen_noise_stays(digits, moments):
    fresh, arrays = uses_of(digits, moments, ChannelDefense())
    frozen, _ = uses_of(digits, moments, ChannelDefense(noise="frozen"))
    assert list(fresh.columns) == list(COLUMNS)
    assert arrays["errors"].shape == (1, 3, 2)
    means = fresh.groupby(["variant", "unit"])["value"].mean()
    assert means["attack", 4] < 0.8 * means["attack", 1]
    assert means["line", 4] < 0.8 * means["line", 1]
    assert means["attack", 4] == pytest.approx(means["line", 4], rel=0.35)  # of three images
    kept = frozen.groupby(["variant", "unit"])["value"].mean()
    assert kept["attack", 4] == kept["attack", 1] == pytest.approx(means["attack", 1])
    assert kept["line", 4] == kept["line", 1] == means["line", 1]


def test_uses_ask_for_a_network_that_can_be_solved(digits, moments):
    with pytest.raises(ValueError, match="gradients of lenet cannot be solved"):
        uses_of(digits, moments, ChannelDefense(), model="lenet")


def test_rows_that_no_table_could_take_are_refused_and_may_lack_a_status():
    rows = pd.DataFrame(columns=COLUMNS[:-1])
    result = rows, {}
    assert checked(result, "guess") is result
    with pytest.raises(ValueError, match=r"attack guess returned a DataFrame; return \(rows, arrays\)"):
        checked(rows, "guess")
    with pytest.raises(ValueError, match="attack guess returned rows without metric; they have replica, variant, "):
        checked((rows.drop(columns="metric"), {}), "guess")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows[rows.replica == 0], "returned no rows of replica 1; it was asked for 0, 1"),
        (lambda rows: rows.assign(replica=rows.replica + 1), "returned no rows of replica 0"),
        (lambda rows: pd.concat([rows, rows[:1]]), "two rows of the same value .*replica 0, .*metric psnr"),
        (lambda rows: rows.assign(value=np.nan), "no value and no status .*replica 0"),
    ],
)
def test_rows_that_a_mean_would_hide_are_refused(change, words):
    """A replica that is left out, a doubled row and NaN were averaged over what is there."""
    rows = pd.DataFrame({"replica": [0, 1], "variant": "guess", "unit": -1, "metric": "psnr", "value": [9.0, 8.0]})
    rows = rows.assign(low=np.nan, high=np.nan)
    checked((rows, {}), "guess", [0, 1])
    checked((rows.assign(value=np.nan, status="diverged"), {}), "guess", [0, 1])
    with pytest.raises(ValueError, match=words):
        checked((change(rows), {}), "guess", [0, 1])
