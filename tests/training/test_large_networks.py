"""One step of each family of defenses for the networks of the paper that take long: no image is seen twice."""

import numpy as np
import pytest
import torch

from images import gathered
from leakbound.channels import GaussianChannel
from leakbound.config.defenses import DPPSAC, DPSGD, ChannelDefense, Undefended
from leakbound.datasets import Split
from leakbound.training.per_sample import OpacusLearner
from leakbound.training.sgd import StackLearner

pytestmark = pytest.mark.slow
NATURAL = {"defense": ChannelDefense(), "level": 50.0, "channel": GaussianChannel("natural", 50.0, np.full(3072, 0.04))}
FAMILIES = {
    "none": (StackLearner, {"defense": Undefended()}),
    "channel": (StackLearner, NATURAL),
    "dpsgd": (OpacusLearner, {"defense": DPSGD(), "level": 0.5}),
    "dppsac": (OpacusLearner, {"defense": DPPSAC(), "level": 0.5}),
}


@pytest.fixture(scope="module")
def few():
    """As many images as a batch, so that a Poisson sample of them is never empty."""
    generator = np.random.default_rng(0)
    images = generator.uniform(-1, 1, (5, 3, 32, 32)).astype(np.float32)
    return gathered(Split(images, np.array([0, 1, 0, 1, 0])), members=2, validation=1)


def sample_of(value):
    """A thousand values or more from all over a tensor: some neurons are silent and learn nothing in a step."""
    return value.detach().flatten()[:: max(1, value.numel() // 1000)].clone()


# VGG16 under DP holds six copies of its weights, 3.3 GB.
@pytest.mark.parametrize(
    ("model", "family"),
    [
        *(("resnet10", family) for family in FAMILIES),
        *((model, family) for model in ("alexnet", "vgg16") for family in ("channel", "dpsgd")),
    ],
)
def test_a_step_of_the_defense_moves_all_weights_to_finite_ones(request_for, few, model, family):
    learner_of, changes = FAMILIES[family]
    request = request_for(dataset=few, model=model, batch_size=2, learning_rates=(0.01,), **changes)
    learner = learner_of(request, request.slots[:1])
    before = {name: sample_of(value) for name, value in learner.params.items()}
    learner.step()
    for name, value in learner.params.items():
        assert value.detach().isfinite().all(), name
        assert not torch.equal(sample_of(value), before[name]), name
    assert learner.event(0, 1).uses == 1
