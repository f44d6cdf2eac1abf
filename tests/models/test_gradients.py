"""Gradients of single records, differentiable and not."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from leakbound.randomness.seeding import torch_generator
from leakbound_lab import models
from leakbound_lab.models.gradients import constant_gradients, record_gradients


class Halved(nn.Module):
    """A network that uses its layer twice, so that no factors of the gradient are known."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1024, 1024)
        self.head = nn.Linear(1024, 3)

    def forward(self, images):
        return self.head(self.layer(self.layer(images.flatten(1)).sigmoid()))


@pytest.mark.parametrize("name", ["mlp", "lenet", "lenet_sigmoid", "resnet10", "twice"])
@pytest.mark.parametrize("records", [0, 1, 3])
def test_gradients_that_nobody_differentiates_are_the_same_up_to_rounding(name, records):
    torch.manual_seed(0)
    model = Halved() if name == "twice" else models.build(name, 1, 3, torch_generator(0, "init"))
    images = torch.randn(records, 1, 32, 32)
    labels = torch.arange(records) % 3
    expected = record_gradients(model, images, labels)
    found = constant_gradients(model, images, labels)
    assert [*found] == [*expected]
    for key, value in expected.items():
        assert not found[key].requires_grad
        torch.testing.assert_close(found[key], value, rtol=1e-4, atol=1e-5 * float(value.abs().max() if records else 1))


CODE = """
import sys, torch
from leakbound_lab import models
from leakbound_lab.models.gradients import constant_gradients
model = models.build("lenet", 1, 3, torch.Generator())
constant_gradients(model, torch.zeros(2, 1, 32, 32), torch.zeros(2, dtype=torch.int64))
print({"torch._dynamo"} & {*sys.modules})
"""


@pytest.mark.no_shapes
def test_gradients_that_nobody_differentiates_load_no_compiler():
    assert subprocess.check_output([sys.executable, "-c", CODE], text=True) == "set()\n"
