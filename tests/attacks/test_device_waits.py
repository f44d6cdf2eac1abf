"""Attacks on a GPU: what takes another way there gives the same, and no step of a search asks for a value."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from leakbound.randomness.seeding import torch_generator
from leakbound_lab import models
from leakbound_lab.attacks import search_images
from leakbound_lab.attacks.gradient_inversion import closed_form as recursive
from leakbound_lab.attacks.gradient_inversion import published as geiping
from leakbound_lab.attacks.gradient_inversion.gradient_matching import GradientMatching
from leakbound_lab.attacks.model_inversion import queries as inverting
from leakbound_lab.models import memory
from leakbound_lab.models.gradients import record_gradients
from leakbound_lab.models.layers import strided_windows
from leakbound_lab.training.stack import stacked
from operations import waits


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"),
    [(5, 1, 0, 1), (3, 2, 1, 1), ((3, 5), (2, 1), (1, 2), 1), (3, 1, 2, 2), ((2, 3), (3, 2), 0, (3, 2)), (1, 1, 0, 1)],
)
def test_windows_by_strides_are_those_of_unfold_and_so_are_their_gradients(kernel, stride, padding, dilation):
    layer = nn.Conv2d(2, 3, kernel, stride, padding, dilation)
    given = torch.rand(4, 2, 11, 13, dtype=torch.float64, generator=torch_generator(0), requires_grad=True)
    exact = F.unfold(given, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
    seen = strided_windows(given, layer)
    assert torch.equal(seen, exact)
    weights = torch.rand(exact.shape, dtype=torch.float64, generator=torch_generator(1))
    (wanted,), (found,) = (torch.autograd.grad((one.sin() * weights).sum(), given) for one in (exact, seen))
    torch.testing.assert_close(found, wanted, rtol=1e-14, atol=0)


def test_rare_looks_at_the_end_of_a_solution_change_nothing(monkeypatch):
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Sigmoid(), nn.Flatten(), nn.Linear(144, 10))
    for parameter in network.parameters():
        nn.init.uniform_(parameter, -0.3, 0.3, generator=torch_generator(parameter.numel()))
    images = torch.rand(3, 1, 8, 8, generator=torch_generator(0, "images")) * 2 - 1
    gradients = record_gradients(network, images, torch.tensor([1, 2, 3]))
    found, counts = [], []
    for glance in (1, 32):
        monkeypatch.setattr(memory, "CHECK_EVERY", memory.DeviceLimit(glance, glance))
        waited = waits(lambda: found.append(recursive.solved_images(network, gradients, (1, 8, 8))))
        counts.append(waited["aten::_local_scalar_dense"])
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[0], images, rtol=0, atol=1e-3)
    assert counts[1] < 0.2 * counts[0]


def searched(lenet, images):
    """Images that both searches find in twelve steps."""
    labels, weights = torch.tensor([1, 2, 3]), torch.full((3,), 0.01)
    matching = GradientMatching(lenet, record_gradients(lenet, images, labels), (1, 32, 32))
    told = {"bounds": torch.tensor([1.0, 0.5, torch.inf]), "learning_rate": 0.1, "moments": [5, 12]}
    return [
        geiping.reconstruct(matching, labels, torch.zeros_like(images), weights, iterations=12, learning_rate=0.1),
        inverting.invert(lenet, stacked([lenet]), labels, torch.zeros_like(images), weights, **told),
    ]


def test_searches_whose_steps_are_captured_find_what_they_find_kernel_by_kernel(monkeypatch):
    """A capture does nothing itself, and each replay the whole step, of an Adam that is capturable only then."""
    lenet = models.build("lenet_sigmoid", 1, 10, torch_generator(0, "weights")).eval()
    images = torch.rand(3, 1, 32, 32, generator=torch_generator(0, "images")) * 2 - 1
    counts, adams, refused = {"captured": 0, "replayed": 0}, [], True
    plain, descent = searched(lenet, images), search_images.descent

    def cuda_graph(step, tensors):
        assert not tensors
        assert adams[-1].param_groups[0]["capturable"]
        if refused:
            raise RuntimeError("operation not permitted when stream is capturing")
        counts["captured"] += 1

        def replay():
            counts["replayed"] += 1
            step()

        return replay

    def descend(*given):
        with monkeypatch.context() as patched:
            patched.setattr(torch.Tensor, "is_cuda", True)
            optimizer, step = descent(*given)
        adams.append(optimizer)
        return optimizer, step

    monkeypatch.setattr(search_images, "cuda_graph", cuda_graph)
    for search in (geiping, inverting):
        monkeypatch.setattr(search, "descent", descend)
    one_by_one, refused = searched(lenet, images), False
    replayed = searched(lenet, images)
    assert counts == {"captured": 2, "replayed": 18}
    assert not any(adam.param_groups[0]["capturable"] for adam in adams)
    for found, eager, expected in zip(replayed, one_by_one, plain, strict=True):
        assert torch.equal(found, eager)
        assert (found - expected).abs().median() < 1e-5  # another kernel of Adam, whose rounding units turn on
