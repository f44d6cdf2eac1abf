"""What an attacker gets from real uploads: gradients of a dense layer show its inputs, noise and all."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from leakbound import ChannelEngine, Reconstruction

USES = 4


def inverted(loader, records: int) -> torch.Tensor:
    """Mean over epochs of the inputs that uploaded gradients of a linear classifier show exactly."""
    torch.manual_seed(0)
    model, found = nn.Linear(64, 10), torch.zeros(records, 64)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for _ in range(USES):
        for inputs, labels, at in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            row = int(model.bias.grad.abs().argmax())
            found[at] += (model.weight.grad[row] / model.bias.grad[row]) / USES
            optimizer.step()
    return found


@pytest.mark.slow
def test_the_best_linear_attack_on_all_uploads_errs_by_the_target():
    digits, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(digits))
    images, labels = torch.from_numpy(digits[order] / 16).float(), torch.from_numpy(labels[order])
    public, private = images[:1200], images[1200:1500]
    count = len(private)
    loader = DataLoader(TensorDataset(private, labels[1200:1500], torch.arange(count)), batch_size=1)
    assert float((inverted(loader, count) - private).square().mean()) < 1e-8  # undefended, it sees the records
    engine = ChannelEngine.for_data(public, Reconstruction(0.02, uses=USES), seed=0)
    seen = inverted(engine.protect(loader, uncounted=[2]), count)
    moments, noise = engine.calibration.moments, engine.calibration.channel.variances[0] / USES
    gain = np.linalg.solve(moments.covariance + noise * np.eye(64), moments.covariance)
    estimate = moments.mean + (seen.numpy() - moments.mean) @ gain
    error = float(np.square(estimate - private.numpy()).mean())
    # The private records are 300 others of the law: their mean error lies within a few percent of the law's.
    assert error == pytest.approx(0.02, rel=0.08)
    assert float((seen - private).square().mean()) > error
    assert engine.leakage().fresh_uses == USES
