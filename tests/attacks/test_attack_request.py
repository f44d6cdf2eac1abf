import dataclasses
from unittest.mock import MagicMock

import numpy as np
import pandas as pd
import pytest
import torch

from asking import attack_of, untrained
from leakbound.registry import load_attribute
from leakbound_lab.attacks import attack_request
from leakbound_lab.attacks.attack_request import AttackRequest, Networks, attack_networks, in_full_precision
from leakbound_lab.config.attacks import (
    AuditConfig,
    GradientCapacityConfig,
    MembershipConfig,
    ModelInversionConfig,
    NamingConfig,
    UsesConfig,
)
from leakbound_lab.config.defenses import DPSGD, ChannelDPSGD, Undefended


@pytest.fixture
def request_of_two(few_digits) -> AttackRequest:
    return attack_of(few_digits, UsesConfig(), "mlp", replicas=range(2))


def test_an_attack_computes_in_full_precision_on_the_device_of_its_request(request_of_two, monkeypatch):
    precision = MagicMock()
    monkeypatch.setattr(attack_request, "full_precision", precision)

    @in_full_precision
    def attack(request):
        precision.return_value.__enter__.assert_called_once()
        return pd.DataFrame(), {}

    attack(request_of_two)
    precision.assert_called_once_with("cpu")


def test_untrained_networks_differ_between_replicas_and_purposes_and_repeat(request_of_two):
    made = [request_of_two.untrained(*words).head.weight for words in (("a", 0), ("a", 1), ("b", 0), ("a", 0))]
    assert torch.equal(made[0], made[3])
    assert not torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


def test_an_attack_that_needs_moments_says_so(request_of_two):
    with pytest.raises(ValueError, match="run: the attack needs the mean and the covariance"):
        request_of_two.known_moments()


SILENT = ((Undefended(), None), (DPSGD(), 0.0))


@pytest.mark.parametrize(
    ("config", "message", "others"),
    [
        (AuditConfig(), "audit measures the ε of dpsgd and dppsac with noise", SILENT),
        (GradientCapacityConfig(), "gradient_capacity measures steps of dpsgd and dppsac with noise", SILENT),
        (NamingConfig(), "identification has no likelihood for the two noises of channel_dpsgd", ()),
        (UsesConfig(), "uses are those of a channel alone", ((Undefended(), None),)),
    ],
)
def test_attacks_refuse_by_name_defenses_that_they_cannot_attack(request_of_two, config, message, others):
    """DP behind a channel, by those that know one noise, and what leaves them nothing to measure."""
    for defense, level in ((ChannelDPSGD(), 1.0), *others):
        with pytest.raises(ValueError, match=f"run: {message}"):
            dataclasses.replace(request_of_two, config=config, defense=defense, level=level).client()


@pytest.mark.parametrize(
    "config", [MembershipConfig(epochs=1, learning_rates=(1e-3,)), ModelInversionConfig(iterations=2)]
)
def test_networks_of_all_recipes_side_by_side_give_what_each_recipe_gives_alone(few_digits, config):
    """One call for three recipes of two replicas, and one call for each: the same rows and arrays, to the byte."""
    function = load_attribute(config.function, "attack")
    rates = pd.DataFrame({"replica": [0, 0, 1, 1, 0, 1], "learning_rate": [0.1, 0.2, 0.1, 0.2, 0.1, 0.1]})
    rates["chosen"] = [True, False, False, True, False, False]
    rates["length"] = ["full"] * 4 + ["half"] * 2
    networks = Networks(untrained(6), rates)
    request = attack_of(few_digits, config)
    together, arrays = attack_networks(networks, function, request)
    alone, expected = attack_networks(networks, lambda one: function(one), request)
    pd.testing.assert_frame_equal(together, alone, check_exact=True)
    assert len(together[["replica", "learning_rate", "length"]].drop_duplicates()) == 6
    assert arrays.keys() == expected.keys()
    for name, values in arrays.items():
        np.testing.assert_array_equal(values, expected[name])
