"""Loaders behind Hugging Face's Accelerate; it is no dependency, so it is tested where it is installed."""

import pytest
import torch
from gaussians import batches, engine_of, private
from torch import nn

from leakbound import BudgetError

accelerate = pytest.importorskip("accelerate", reason="Accelerate is no dependency: run `make test-frameworks`")
pytestmark = pytest.mark.filterwarnings("ignore")


def epoch(accelerator, model, optimizer, loader) -> torch.Tensor:
    """One epoch as Accelerate's pages show it; the inputs that it saw."""
    seen = []
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = (model(inputs).squeeze(1) - labels).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        seen.append(inputs)
    return torch.cat(seen)


@pytest.mark.parametrize("prepared", ["after protect", "before protect"])
def test_prepared_loaders_release_noisy_records_and_stop(prepared):
    accelerator, engine, layer = accelerate.Accelerator(cpu=True), engine_of(seed=5), nn.Linear(4, 1)
    model, optimizer = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), 1e-4))
    clean = batches(private(), shuffle=False)
    if prepared == "after protect":
        loader = accelerator.prepare(engine.protect(clean))
    else:
        loader = engine.protect(accelerator.prepare(clean))
    seen = [epoch(accelerator, model, optimizer, loader) for _ in range(3)]
    expected = torch.cat([inputs for inputs, _ in engine_of(seed=5).protect(batches(private(), shuffle=False))])
    torch.testing.assert_close(seen[0], expected)
    assert engine.uses["train"].tolist() == [3] * 20
    with pytest.raises(BudgetError):
        epoch(accelerator, model, optimizer, loader)
