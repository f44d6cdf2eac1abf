"""Every step, every slot and every record has randomness of its own, and clipping looks at one record alone."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from leakbound_lab.config.defenses import DPPSAC, DPSGD
from leakbound_lab.models import build
from leakbound_lab.models.gradients import record_gradients
from leakbound_lab.training import train
from leakbound_lab.training.client_steps import client_step
from leakbound_lab.training.opacus_learner import OpacusLearner
from leakbound_lab.training.sgd import StackLearner

INDICES = torch.arange(20).repeat(2, 1)


@pytest.mark.parametrize("defense", [DPSGD(max_grad_norm=0.5), DPPSAC(max_grad_norm=0.5)])
def test_two_steps_of_private_training_have_independent_noise(request_for, defense):
    """Noise of .075 in 61,706 coordinates; the gradients' own norm of at most .5 moves the correlation by 7e-4."""

    def flat(rounds):
        once = {"momentum": 0.0, "evaluations": 1}
        found = train(
            request_for(defense=defense, level=3.0, rounds=rounds, learning_rates=(1.0,), batch_size=20, training=once)
        )
        return torch.cat([value.flatten() for value in found.weights.values()])

    start, one, two = (flat(rounds) for rounds in range(3))
    first, second = one - start, two - one
    assert first.std().item() == pytest.approx(0.075, rel=0.05)
    # Five standard errors of a correlation: false alarm 6e-7.
    assert abs(torch.corrcoef(torch.stack([first, second]))[0, 1].item()) < 5 / math.sqrt(len(first)) + 7e-4


@pytest.mark.parametrize("noise", ["fresh", "frozen"])
def test_two_replicas_of_a_channel_have_independent_noise(request_for, through, channel, digits, noise):
    request = request_for(**through("natural", noise), replicas=2)
    seen = StackLearner(request, request.slots)._inputs.take(INDICES)
    clean = torch.stack([torch.from_numpy(digits.members(replica).images[:20]) for replica in range(2)])
    drawn = (seen - clean).flatten(1)
    # 20,480 values: five standard errors of a correlation, false alarm 6e-7.
    assert abs(torch.corrcoef(drawn)[0, 1].item()) < 5 / math.sqrt(drawn.shape[1])
    assert drawn.std().item() == pytest.approx(math.sqrt(channel("natural", 8.0).variances[0]), rel=0.05)


def test_frozen_noise_of_training_is_one_copy(request_for, through):
    """Fresh noise in its place would be accounted as one look, and be many."""
    learners = [
        StackLearner(request, request.slots)
        for noise in ("frozen", "fresh")
        for request in [request_for(**through("natural", noise), replicas=2)]
    ]
    frozen, fresh = (torch.equal(one._inputs.take(INDICES), one._inputs.take(INDICES)) for one in learners)
    assert frozen
    assert not fresh


def test_batches_of_private_training_vary_as_poisson_samples(request_for):
    """What an ε counts on: each record by itself, in a step or not. Two tests with false alarms of 1e-6 each."""
    request = request_for(defense=DPSGD(), level=1.0, batch_size=32)
    batches = OpacusLearner(request, request.slots)._batches
    drawn, rate, steps = [batches.draw() for _ in range(1000)], 32 / 400, 1000
    sizes = np.array([len(batch) for batch in drawn])
    assert abs(sizes.mean() - 32) < 5 * math.sqrt(32 * (1 - rate) / steps)
    spread = ((sizes - 32) ** 2).sum() / (32 * (1 - rate))
    assert 5e-7 < stats.chi2.cdf(spread, steps) < 1 - 5e-7
    # An epoch of shuffled batches takes every record once; here a record comes back in the next step at the rate.
    back = sum(len(np.intersect1d(*pair)) for pair in itertools.pairwise(drawn))
    expected = (steps - 1) * 400 * rate**2
    assert abs(back - expected) < 5 * math.sqrt(expected)


@pytest.mark.parametrize("defense", [DPSGD(max_grad_norm=0.5), DPPSAC(max_grad_norm=0.5)])
def test_each_record_of_an_upload_is_clipped_on_its_own(digits, defense):
    """The sum over a batch is that of uploads of one record each: at most of length S, in the gradient's direction."""
    model = build("lenet_sigmoid", 1, 10, torch.Generator().manual_seed(0))
    images, labels = torch.from_numpy(digits.pool.images[:5]), torch.from_numpy(digits.pool.labels[:5])
    client, unused = client_step(defense, 0.0), torch.Generator()
    together = client.upload(model, images[None], labels[None], unused).gradients
    alone = [client.upload(model, images[None, [i]], labels[None, [i]], unused).gradients for i in range(5)]
    for name, sent in together.items():
        torch.testing.assert_close(5 * sent[0], sum(one[name][0] for one in alone), rtol=1e-4, atol=1e-6)
    plain = torch.cat([value.flatten(1) for value in record_gradients(model, images, labels).values()], dim=1)
    sent = torch.stack([torch.cat([value.flatten() for value in one.values()]) for one in alone])
    assert (sent.norm(dim=1) <= 0.5 * (1 + 1e-6)).all()
    torch.testing.assert_close(torch.cosine_similarity(sent, plain), torch.ones(5))
