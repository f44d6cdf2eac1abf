"""Exact values of branches that only unusual input reaches: gains below 1, sample rates below 1, several strengths."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy import special
from torch import nn

from asking import attack_of
from leakbound import LeakageAccountant
from leakbound.accounting.one_run import one_run_gaussian
from leakbound.channels import GaussianChannel, Moments, Natural
from leakbound.channels.covariance import unshrunk
from leakbound_lab.attacks.gradient_inversion.several_uses import _line
from leakbound_lab.attacks.lower_bounds.dp_audit import audit_uploads
from leakbound_lab.config.attacks import AuditConfig
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.config.defenses import DPSGD
from leakbound_lab.datasets import prepare
from leakbound_lab.models.gradients import record_gradients
from leakbound_lab.training.weighted_sums import weighted_sums


def rejected(mu: float, canaries: int, guesses: int, correct: int, level: float) -> bool:
    """Algorithm 3 of Mahloujifar et al. with the counts k of right guesses in a table of its own."""
    right = np.zeros(correct + 1)
    wrong = np.zeros(correct + 1)
    right[correct] = level * correct / canaries
    wrong[correct] = level * (guesses - correct) / canaries
    for count in range(correct - 1, -1, -1):
        wrong[count] = max(wrong[count + 1], special.ndtr(special.ndtri(min(right[count + 1], 1.0)) - mu))
        step = wrong[count] - wrong[count + 1]
        right[count] = right[count + 1] + count / (guesses - count) * step
    return bool(right[0] + wrong[0] > guesses / canaries)


@pytest.mark.parametrize(("canaries", "guesses", "correct"), [(100, 50, 45), (400, 200, 150), (1000, 100, 99)])
def test_limit_of_a_gaussian_mechanism_is_where_the_published_algorithm_ceases_to_reject(canaries, guesses, correct):
    found = one_run_gaussian(canaries, guesses, correct)
    assert found > 0.3
    assert rejected(found * (1 - 1e-9), canaries, guesses, correct, 0.05)
    assert not rejected(found + 1e-6, canaries, guesses, correct, 0.05)


@pytest.mark.parametrize("weight", [0.05, 0.3, 0.8])
def test_variances_that_shrinking_made_smaller_come_back_and_others_stay(weight):
    before = np.array([9.0, 5.0, 0.75, 0.25])
    shrunk = (1 - weight) * before + weight * before.mean()
    moments = Moments(np.zeros(4), np.diag(shrunk), 100, shrinkage=weight)
    assert unshrunk(shrunk, moments) == pytest.approx([9.0, 5.0, *shrunk[2:]], rel=1e-12)


def test_best_linear_error_of_several_uses_behind_a_gain_has_the_noise_over_its_square():
    variances, noise, gain = np.array([4.0, 1.0, 2.0]), np.array([0.5, 0.2, 1.0]), np.array([0.5, 0.8, 0.0])
    channel = GaussianChannel("rate_distortion", 1.0, noise, basis=None, gain=gain, mean=np.zeros(3))
    found = _line(channel, Moments(np.zeros(3), np.diag(variances), 100), [1, 4])
    seen = gain**2 / noise
    expected = [(variances / (1 + uses * variances * seen)).mean() / 4 for uses in (1, 4)]
    assert found == pytest.approx(expected, rel=1e-9)


def test_a_subsampled_canary_that_was_surely_drawn_scores_by_twice_the_squared_noise():
    """With next to no noise an upload is 1 or 0: ln(q e^{1/2m²} + 1 − q) or ln(q e^{−1/2m²} + 1 − q)."""
    dataset = prepare("digits", DatasetConfig(members=20, pool=50, test=20, aux=20), 0)
    config = AuditConfig(canaries=200, clients=1, steps=1, sample_rate=0.25)
    request = attack_of(dataset, config, defense=DPSGD(), level=0.1, replicas=range(1))
    scores = audit_uploads(request)[1]["scores"].ravel()
    drawn = scores[scores > 20]
    assert 5 < len(drawn) < 60  # about 25 of 200
    # x = 1 + 0.1 z: ratio 50 + 10 z on average 50.
    assert drawn.mean() == pytest.approx(50 + np.log(0.25), abs=6 * 10 / np.sqrt(len(drawn)))
    assert np.median(scores) == pytest.approx(np.log(0.75), abs=1e-6)


def test_norms_by_which_records_are_weighted_hold_the_shifts_of_normalisations():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 36, 3))
    images, labels = torch.randn(5, 1, 8, 8), torch.tensor([0, 1, 2, 1, 0])
    gradients = record_gradients(model, images, labels)
    norms = torch.stack([value.flatten(1).square().sum(1) for value in gradients.values()]).sum(0).sqrt()
    assert gradients["1.bias"].flatten(1).norm(dim=1).min() > 1e-3  # so that it is seen if they are left out
    seen = []

    def weigh(found):
        seen.append(found)
        return 1 / found

    sums = weighted_sums(model, images, labels, weigh)
    torch.testing.assert_close(seen[0], norms)
    for name, value in gradients.items():
        torch.testing.assert_close(sums[name], torch.einsum("n,n...->...", 1 / norms, value))


def test_a_published_total_counts_the_steps_of_each_channel_once():
    moments = Moments(np.zeros(3), np.diag([4.0, 1.0, 0.5]), 100)
    first, second = (Natural.calibrate(Natural.decompose(moments), nats) for nats in (1.0, 2.0))
    accountant = LeakageAccountant(moments, records=2)
    for channel, uses, steps in ((first, [1, 0], 3), (first, [0, 2], 2), (second, [1, 1], 4)):
        accountant.add(channel, uses=np.array(uses), steps=steps)
    account = accountant.add_labels(nats=0.5).add_nats(np.array([0.25, 0.0])).account()
    assert account.printed == pytest.approx(5 * 1.0 + 4 * 2.0, rel=1e-6)
    joint = [
        0.5 * np.log1p(np.diag(moments.covariance) * sum(count / channel.variances[0] for channel, count in uses)).sum()
        for uses in ([(first, 1), (second, 1)], [(first, 2), (second, 1)])
    ]
    assert accountant.per_record() == pytest.approx([joint[0] + 0.75, joint[1] + 0.5], rel=1e-6)
    assert account.linear == pytest.approx(1.0 + 2.0 + 0.25, rel=1e-6)  # of the first record, without labels


def test_the_learning_rate_of_a_replica_in_mlflow_is_the_one_that_it_chose():
    from leakbound_lab.tracking.run_description import describe_run
    from leakbound_lab.tracking.run_records import RunFacts

    facts = RunFacts("p", "d/mlp/none/n4-b2", "d", "mlp", "none", None, 4, 2, 2, "undefended", "")
    tried = [(0, 0.1, False), (0, 0.2, True), (1, 0.1, True), (1, 0.2, False)]
    rates = [{"replica": replica, "learning_rate": rate, "chosen": chosen} for replica, rate, chosen in tried]
    record = describe_run(facts, None, {}, {"started": 0.0, "diverged": [False, False], "rates": rates})
    assert [child.params["learning_rate"] for child in record.children] == ["0.2", "0.1"]
    assert record.params["learning_rates"] == "0.1, 0.2"
    assert dataclasses.replace(record).params.get("learning_rate") is None
