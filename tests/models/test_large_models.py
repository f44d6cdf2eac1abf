"""AlexNet, VGG16 and ResNet10; VGG16 has half a gigabyte of weights, so it is shown few images."""

import pytest
import torch
import torch.nn.functional as F

from leakbound import models
from leakbound.randomness.seeding import torch_generator


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rate", "steps"), [("alexnet", 0.01, 18), ("resnet10", 0.01, 10), ("vgg16", 0.003, 10)]
)
def test_network_learns_a_handful_of_images_from_its_first_weights(name, rate, steps):
    network = models.build(name, 3, 10, torch_generator(0, "init"))
    images, labels = torch.rand(4, 3, 32, 32, generator=torch_generator(0, "images")) * 2 - 1, torch.arange(4)
    if name == "vgg16":  # repeats the one position that its poolings leave
        seen = []
        handle = network.fc1.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].view(-1, 512, 49)))
        network(images)
        handle.remove()
        assert torch.equal(seen[0], seen[0][..., :1].expand(-1, -1, 49))
        assert seen[0][0].std() > 0
    F.cross_entropy(network(images), labels).backward()
    assert all(parameter.grad.any() for parameter in network.parameters())  # each layer takes part
    optimizer = torch.optim.SGD(network.parameters(), lr=rate, momentum=0.9, fused=True)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
