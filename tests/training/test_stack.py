import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leakbound.randomness.seeding import torch_generator
from leakbound_lab import models
from leakbound_lab.models import memory
from leakbound_lab.training import stack
from leakbound_lab.training.stack import forward_in


def lenets(count):
    return [models.build("lenet", 1, 10, torch_generator(0, slot, "init")) for slot in range(count)]


class ByPixel(nn.Sequential):
    """Network that lays the channels of a pixel side by side, as its gradients then do."""

    def forward(self, images):
        return super().forward(images.to(memory_format=torch.channels_last))


def test_a_fused_step_of_a_network_that_lays_its_channels_otherwise_is_a_plain_one():
    model = ByPixel(nn.Conv2d(3, 4, 5), nn.ReLU(), nn.Conv2d(4, 6, 5), nn.Flatten(), nn.Linear(6 * 24 * 24, 10))
    images = torch.randn(1, 3, 3, 32, 32, generator=torch_generator(0, "images"))
    labels = torch.randint(0, 10, (1, 3), generator=torch_generator(0, "labels"))
    weights = stack.StackWeights([model], [0.1], "cpu", momentum=0.9)
    gradients = stack.gradients(weights.leaves, stack.forward(model, weights.params, images), labels)
    weights.update(gradients)
    F.cross_entropy(model(images[0]), labels[0]).backward()
    torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False).step()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(weights.params[name][0], parameter, rtol=1e-5, atol=1e-7)


class Shared(nn.Module):
    """Two parameters of one gradient, which autograd gives as one tensor, and one that nothing uses."""

    def __init__(self):
        super().__init__()
        self.one, self.other, self.idle = (nn.Parameter(torch.ones(3)) for _ in range(3))

    def forward(self, images):
        return (images.flatten(1) * 0 + self.one.expand(len(images), 3)) + self.other


@pytest.mark.parametrize("slots", [1, 2])
def test_gradients_of_a_step_share_no_memory(slots):
    weights = stack.StackWeights([Shared() for _ in range(slots)], [1.0] * slots, "cpu")
    logits = stack.forward(Shared(), weights.params, torch.zeros(slots, 2, 3, 1, 1))
    gradients = weights.parts(stack.gradients(weights.leaves, logits, torch.zeros(slots, 2, dtype=torch.int64)))
    before = gradients[1].clone()
    gradients[0].zero_()
    assert torch.equal(gradients[1], before)
    assert before.any()
    assert not gradients[2].any()


@pytest.mark.parametrize("slots", [1, 2])
def test_a_pass_in_bfloat16_gives_rounded_logits_and_gradients_in_float32(slots):
    """Factors of eight binary digits, in five layers and units that turn; the stack is written out."""
    networks = [models.build("lenet", 1, 10, torch_generator(slot, "init")) for slot in range(slots)]
    weights = stack.StackWeights(networks, [0.1] * slots, "cpu")
    images = torch.randn(slots, 6, 1, 32, 32, generator=torch_generator(0, "images"))
    labels = torch.randint(10, (slots, 6), generator=torch_generator(0, "labels"))
    found = []
    for precision in ("float32", "bfloat16"):
        logits = forward_in(precision, "cpu", stack.forward)(networks[0], weights.params, images)
        gradients = stack.gradients(weights.leaves, logits, labels)
        found.append((logits.detach(), torch.cat([gradient.flatten() for gradient in gradients])))
    for full, rounded in zip(*found, strict=True):
        assert rounded.dtype == torch.float32
        apart = float((rounded - full).norm() / full.norm())
        assert 1e-4 < apart < 0.1
    assert stack.written_out(networks[0], weights.params, images) is not None


def test_stack_keeps_a_broken_slot_from_the_others():
    singles = lenets(2)
    params = stack.stacked(singles)
    with torch.no_grad():
        params["conv1.weight"][0] = math.nan
    images = torch.randn(2, 4, 1, 32, 32, generator=torch_generator(0, "images"))
    logits = stack.forward(singles[0], params, images)
    stack.loss(logits, torch.zeros(2, 4, dtype=torch.int64)).sum().backward()
    assert stack.finite_slots(params) == [False, True]
    assert stack.finite_slots({key: value.grad for key, value in params.items()}) == [False, True]
    assert stack.finite_slots({"scale": torch.tensor([1.0, math.nan])}) == [True, False]
    torch.testing.assert_close(logits[1], singles[1](images[1]))


@pytest.mark.parametrize(("slots", "passes"), [(1, [10, 10, 3]), (3, [9] * 7 + [6])])
def test_predictions_do_not_depend_on_the_size_of_the_batches_which_hold_so_many_images_of_all_slots(
    slots, passes, monkeypatch
):
    monkeypatch.setattr(memory, "FORWARD_IMAGES", memory.DeviceLimit(cpu=10, cuda=4000))
    singles, seen = lenets(slots), []
    singles[0].conv1.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    params = stack.stacked(singles)
    images = torch.randn(23, 1, 32, 32, generator=torch_generator(0, "images"))
    logits = stack.predict(singles[0], params, images, torch.arange(23).expand(slots, -1))
    assert seen[-len(passes) :] == passes  # before, a network is tried on a few
    assert logits.shape == (slots, 23, 10)
    torch.testing.assert_close(logits, torch.stack([model(images).detach() for model in singles]))


@pytest.mark.parametrize("name", ["lenet", "lenet_sigmoid", "resnet10", "alexnet"])
def test_memory_of_a_record_covers_what_is_kept_for_the_backward_pass(name):
    model = models.build(name, 3, 10, torch_generator(0, "init"))
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, Tensor] = {}  # holds the tensors, so that no address is used twice

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logits = model(torch.zeros(2, 3, 32, 32))
    needed = sum(tensor.untyped_storage().nbytes() for address, tensor in kept.items() if address not in own)
    assert logits.requires_grad
    assert needed < 2 * memory.record_bytes(model, (3, 32, 32)) < 5 * needed
