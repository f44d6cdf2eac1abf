"""Training with noise that no seed repeats: what differs from run to run, what is kept, and what a resumption does."""

import dataclasses
import math
from typing import ClassVar, Literal

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from asking import resumed
from leakbound.channels.sampling import ChannelSampler
from leakbound.randomness.grid import grid_spacing
from leakbound.randomness.sources import SecureNoise
from leakbound_lab.config.defenses import DPSGD, Defense, PACPrivacy, ParameterNoise
from leakbound_lab.training import UntrainableError, train
from leakbound_lab.training.batches import FreshInputs, FrozenInputs
from leakbound_lab.training.client_steps import client_step
from leakbound_lab.training.opacus_learner import OpacusLearner, PrivateOptimizer
from leakbound_lab.training.pac import MeasuredNoiseLearner
from leakbound_lab.training.sgd import StackLearner, StackUploads

CASES = ["natural", "white", "rate_distortion", "natural_frozen", "dpsgd", "dppsac", "parameter_noise", "pac"]
INDICES = torch.tensor([[3, 1, 3, 7], [0, 2, 5, 9]])


@pytest.fixture
def secure(request_for, under):
    """A request with secure noise under one of the defenses that draw any."""
    return lambda case, **changes: request_for(**{"privacy_noise": "secure", "rounds": 3, **under(case), **changes})


def kind_of(request):
    others = {DPSGD: OpacusLearner, PACPrivacy: MeasuredNoiseLearner}
    return next((learner for kind, learner in others.items() if isinstance(request.defense, kind)), StackLearner)


def learner_of(request):
    return kind_of(request)(request, request.slots[:1])


def generator_states(value) -> int:
    """Number of generator states in nested plain values: torch keeps them as bytes."""
    if isinstance(value, torch.Tensor):
        return int(value.dtype == torch.uint8)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else []
    return sum(map(generator_states, inner))


@pytest.mark.no_shapes
@pytest.mark.parametrize("case", CASES)
def test_equal_requests_start_alike_and_end_apart(secure, case):
    starts = [train(secure(case, rounds=0)) for _ in range(2)]
    ends = [train(secure(case)) for _ in range(2)]
    for name, start in starts[0].weights.items():
        assert torch.equal(start, starts[1].weights[name])
        assert not torch.equal(ends[0].weights[name], ends[1].weights[name])
    assert ends[0].diverged == [False]
    assert dataclasses.replace(ends[0].events[0], uses=0) == dataclasses.replace(ends[1].events[0], uses=0)


@pytest.mark.parametrize("case", CASES)
def test_what_is_kept_for_a_resumption_holds_no_state_of_noise(secure, case):
    secret, seeded = (learner_of(secure(case, privacy_noise=origin)) for origin in ("secure", "seeded"))
    for learner in (secret, seeded):
        learner.step()
    # Shuffled batches protect nothing and keep their generator; those of DP are secret, and keep none.
    batches = 0 if case in ("dpsgd", "dppsac") else 1
    assert generator_states(secret.state()) == batches
    frozen = case.endswith("_frozen")
    assert generator_states(seeded.state()) == (1 if frozen else 2)


@pytest.mark.parametrize("case", CASES)
def test_interrupted_training_goes_on_where_it_was_saved(secure, case, tmp_path, monkeypatch):
    request = secure(case, rounds=6, checkpoint=tmp_path / "checkpoint")
    result, taken = resumed(monkeypatch, kind_of(request), "step", 4, lambda: train(request))
    assert taken == 2
    assert (result.events[0].steps, result.diverged) == (6, [False])


def test_resumed_frozen_training_uses_the_copies_that_were_released(secure):
    request = secure("natural_frozen")
    learner = learner_of(request)
    saved = learner._inputs.state()
    other = learner_of(request)
    assert not torch.equal(other._inputs.take(INDICES[:1]), learner._inputs.take(INDICES[:1]))
    other._inputs.restore(saved)
    assert torch.equal(other._inputs.take(INDICES[:1]), learner._inputs.take(INDICES[:1]))


@pytest.mark.parametrize("shape", ["natural", "white", "rate_distortion"])
@pytest.mark.parametrize("kind", [FreshInputs, FrozenInputs])
def test_networks_see_images_on_the_grid(digits, channel, shape, kind):
    sampler = ChannelSampler(channel(shape, 8.0), (1, 32, 32), on_grid=True)
    members = torch.from_numpy(digits.pool.images[:60])
    inputs = kind(members, torch.arange(60).expand(2, -1), sampler, [SecureNoise(), SecureNoise()])
    spacing = sampler.spacing
    for _ in range(3):
        seen = inputs.take(INDICES)
        assert (seen.dtype, seen.shape) == (torch.float32, (2, 4, 1, 32, 32))
        values = seen.flatten(2).double()[..., spacing > 0] / spacing[spacing > 0]
        # Pixels in which digits never vary have noise of a rounding error's size, whose grid float32 exceeds anyway.
        assert (values % 1 == 0).all()


def test_parameter_noise_is_on_the_grid_and_has_its_standard_deviation():
    gradients = [torch.randn(2, 100, 300), torch.randn(2, 40)]
    before = [part.clone() for part in gradients]
    StackUploads(client_step(ParameterNoise(), 0.3), [SecureNoise(), SecureNoise()]).apply(gradients)
    step = float(grid_spacing(np.array([0.3]))[0])
    assert all((part.double() / step % 1 == 0).all() for part in gradients)
    noise = torch.cat([(after - start).flatten() for after, start in zip(gradients, before, strict=True)])
    # 60,080 draws: 7 standard errors.
    assert noise.std().item() == pytest.approx(0.3, rel=7 / math.sqrt(2 * len(noise)) + 4e-4)
    assert abs(torch.corrcoef(torch.stack([noise[:30_000], noise[30_000:60_000]]))[0, 1].item()) < 7 / math.sqrt(30_000)


def test_secure_noise_of_dp_is_on_the_grid_of_the_sum():
    parameter = torch.nn.Parameter(torch.zeros(200, 300))
    optimizer = PrivateOptimizer(
        torch.optim.SGD([parameter], lr=1.0),
        noise_multiplier=1.5,
        max_grad_norm=2.0,
        expected_batch_size=8,
        source=SecureNoise(),
    )
    parameter.grad = 10 * F.normalize(torch.randn(200, 300).flatten(), dim=0).view(200, 300)
    optimizer.step()
    step = float(grid_spacing(np.array([3.0]))[0])
    noisy_sum = -8 * parameter.detach().double()  # the batch size and the learning rate are powers of two
    assert (noisy_sum / step % 1 == 0).all()
    # 60,000 draws, and a sum of norm 10 among them, which adds 100 / 60,000 to a variance of 9.
    assert noisy_sum.std().item() == pytest.approx(3.0, rel=7 / math.sqrt(120_000) + 4e-4)


class Quiet(Defense):
    mechanism: Literal["quiet"] = "quiet"


class Secure(Quiet):
    secure_noise: ClassVar[bool] = True


def test_outside_trainer_must_say_that_its_noise_is_secure(request_for):
    request = request_for(defense=Quiet(), level=None)
    train(request)
    with pytest.raises(UntrainableError, match=r"'quiet' does not say .* secure_noise = True"):
        train(dataclasses.replace(request, privacy_noise="secure"))
    train(dataclasses.replace(request, defense=Secure(), privacy_noise="secure"))


def test_misspelled_origin_is_refused_even_without_noise(request_for):
    request = request_for()
    object.__setattr__(request, "privacy_noise", "secured")  # past the check of types that tests have and jobs do not
    with pytest.raises(UntrainableError, match="privacy_noise = 'secured': must be one of seeded, secure"):
        train(request)
