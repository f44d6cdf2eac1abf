"""Optimizers that do not load torch's compiler take the steps of torch's own."""

import subprocess
import sys

import pytest
import torch

from leakbound_lab.training import eager_optimizers

CODE = """
import sys, torch, leakbound_lab.attacks.membership.attack
from leakbound_lab.training.eager_optimizers import SGD, Adam, AdamW
for kind in (SGD, Adam, AdamW):
    weights = torch.ones(3, requires_grad=True)
    optimizer = kind([weights], lr=0.1)
    optimizer.zero_grad()
    weights.square().sum().backward()
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
print({"scipy.stats", "torch._dynamo"} & {*sys.modules})
"""


@pytest.mark.no_shapes
def test_neither_optimizers_nor_membership_load_the_compiler_or_distributions_that_they_do_not_call():
    assert subprocess.check_output([sys.executable, "-c", CODE], text=True) == "set()\n"


@pytest.mark.parametrize(
    ("name", "options"), [("SGD", {"momentum": 0.9, "fused": True}), ("Adam", {}), ("AdamW", {"fused": True})]
)
def test_steps_and_states_have_the_bytes_of_torch(name, options):
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(4, 3, generator=generator)
    slopes = torch.randn(5, 4, 3, generator=generator)
    ends = []
    for kind in (getattr(torch.optim, name), getattr(eager_optimizers, name)):
        weights = start.clone().requires_grad_()
        optimizer = kind([weights], lr=0.1, **options)
        for slope in slopes:
            optimizer.zero_grad()
            weights.backward(slope)
            optimizer.step()
        (state,) = optimizer.state_dict()["state"].values()
        ends.append([weights.detach(), *(value for value in state.values() if value is not None)])
    torch.testing.assert_close(*ends, rtol=0, atol=0)
