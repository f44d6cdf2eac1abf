import dataclasses

import pandas as pd
import pytest
import torch

from leakbound import datasets
from leakbound.attacks.attack_request import AttackRequest, in_full_precision
from leakbound.config.attacks import AuditConfig, GradientCapacityConfig, NamingConfig, UsesConfig
from leakbound.config.data import DatasetConfig
from leakbound.config.defenses import ChannelDPSGD


@pytest.fixture(scope="module")
def request_of_two() -> AttackRequest:
    digits = datasets.prepare("digits", DatasetConfig(members=60, aux=60), seed=0)
    return AttackRequest(model="mlp", dataset=digits, config=UsesConfig(), seed=0, slug="run", replicas=range(2))


def test_an_attack_computes_in_full_precision_on_the_device_of_its_request(request_of_two, monkeypatch):
    from contextlib import contextmanager

    from leakbound.attacks import attack_request as module

    used = []

    @contextmanager
    def noted(device):
        used.append(device)
        yield

    monkeypatch.setattr(module, "full_precision", noted)

    @in_full_precision
    def attack(request):
        """What it does."""
        return pd.DataFrame({"device": used}), {}

    assert attack(request_of_two)[0]["device"].tolist() == ["cpu"]
    assert attack.__doc__ == "What it does."


def test_untrained_networks_differ_between_replicas_and_purposes_and_repeat(request_of_two):
    made = [request_of_two.untrained(*words).head.weight for words in (("a", 0), ("a", 1), ("b", 0), ("a", 0))]
    assert torch.equal(made[0], made[3])
    assert not torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


def test_an_attack_that_needs_moments_says_so(request_of_two):
    with pytest.raises(ValueError, match="run: the attack needs the mean and the covariance"):
        request_of_two.known_moments()


def test_attacks_that_know_one_noise_refuse_dp_behind_a_channel_by_name(request_of_two):
    for config, message in (
        (AuditConfig(), "audit measures the ε of dpsgd and dppsac with noise"),
        (GradientCapacityConfig(), "gradient_capacity measures steps of dpsgd and dppsac with noise"),
        (NamingConfig(), "identification has no likelihood for the two noises of channel_dpsgd"),
        (UsesConfig(), "uses are those of a channel alone"),
    ):
        with pytest.raises(ValueError, match=f"run: {message}"):
            dataclasses.replace(request_of_two, config=config, defense=ChannelDPSGD(), level=1.0).client()
