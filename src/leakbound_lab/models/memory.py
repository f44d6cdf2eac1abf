"""Limits of devices and memory: how much is computed at once, and estimates of the bytes needed.

Limits on a CPU are fixed numbers, whatever the machine has, so that equal runs give equal bytes.
"""

import math
from typing import Literal, NamedTuple

import torch
from torch import nn


class DeviceLimit(NamedTuple):
    """A limit for each kind of device. Every device except CUDA counts as a CPU."""

    cpu: int
    cuda: int

    def on(self, device: str | torch.device) -> int:
        """Return the limit on a device."""
        return self.cuda if torch.device(device).type == "cuda" else self.cpu


CPU_CACHE_BYTES = 8 * 2**20
"""Bytes of a CPU's cache that a stack may take: larger ones were slower."""
LEAST_CPU_STACK = 4
"""Networks in a stack on a CPU, at least: smaller ones were slower than one network after another."""
LARGEST_STACKED_BYTES = 2**26
"""Bytes of a network in a stack on a GPU. On an H200, ten LeNets (8 MiB each) take 1/2.7 of the time that they
take one after another, ten networks of AlexNet or ResNet10 (0.9 and 0.7 GiB) 1.3 and 1.5 times as long."""
GRADIENT_BYTES = 2**30
"""Bytes for the gradients of single records on a CPU; those of more records are taken piece by piece."""
MATCHING_BYTES = 2**31
"""Bytes for the candidates whose gradients are matched side by side on a CPU."""
MATCHED_CANDIDATES = DeviceLimit(cpu=64, cuda=1024)
"""Candidates whose gradients are matched side by side; more would not be faster."""
FORWARD_IMAGES = DeviceLimit(cpu=500, cuda=4000)
"""Images of all slots in one forward pass without gradients."""
UNFOLDED_VALUES = DeviceLimit(cpu=2**19, cuda=2**27)
"""Values of a convolution's unfolded inputs, or of products with them, at a time."""
NOISE_STEPS = DeviceLimit(cpu=0, cuda=32)
"""Steps for which the noise of a channel is drawn at once, where a draw costs the same whatever its size; 0
leaves the number to the channel's shape."""
POISSON_STEPS = DeviceLimit(cpu=1, cuda=32)
"""Steps for which Poisson batches are drawn at once: each copy to a GPU costs the same whatever its size."""
PARAMETER_NOISE_STEPS = 32
"""Steps for which noise on parameters is drawn at once, at most."""
PARAMETER_NOISE_VALUES = DeviceLimit(cpu=0, cuda=2**22)
"""Values of noise on parameters that each slot draws at once; 0 draws step by step."""
SEARCHES_SIDE_BY_SIDE = DeviceLimit(cpu=1, cuda=1000)
"""Attackers that wait for their searches together."""
CHECK_EVERY = DeviceLimit(cpu=1, cuda=32)
"""Iterations of a solver between two checks whether it has converged: a check waits for a GPU."""


def stack_size(
    max_stack: int | Literal["auto"],
    slots: int,
    device: str | torch.device,
    model: nn.Module,
    image_shape: tuple[int, int, int],
    batch_size: int,
    kept_images: int = 0,
) -> int:
    """Choose how many of ``slots`` networks are trained as one stack.

    On a CPU ``auto`` means as many as fit into its cache, if at least four do, and else one. Stacks make
    small networks up to ten times as fast, and large ones slower. On a GPU it means as many small ones as fit
    into 60 % of the free memory, and one large one.

    Args:
        max_stack: Largest stack, or ``auto``.
        slots: Number of networks to train.
        device: Device of the training.
        model: One of the networks, on the CPU.
        image_shape: (colors, height, width).
        batch_size: Records per step and slot.
        kept_images: Images that a slot holds all the time, e.g. its noisy copies of the members.

    Returns:
        A number of at least 1.
    """
    if max_stack != "auto":
        return min(max_stack, slots)
    each = slot_bytes(model, image_shape, batch_size, kept_images)
    if torch.device(device).type != "cuda":
        return max(1, min(slots, slots_that_fit(each, device)))
    if slot_bytes(model, image_shape, batch_size) > LARGEST_STACKED_BYTES:
        return 1
    # A pass without gradients frees outputs soon: four of the largest are assumed to exist at once.
    values = 4 * max(_layer_outputs(model, image_shape)) + math.prod(image_shape)
    return max(1, min(slots, slots_that_fit(each, device, 4 * FORWARD_IMAGES.cuda * values)))


def slots_that_fit(slot_bytes: int, device: str | torch.device, reserved: int = 0) -> int:
    """Return how many slots, at least 1, fit into the cache of a CPU or the free memory of a GPU.

    Args:
        slot_bytes: Bytes that each slot takes.
        device: Device of the slots.
        reserved: Bytes of a GPU's free memory that are left to other work.
    """
    if torch.device(device).type == "cuda":
        return max(1, (free_bytes(device) - reserved) // slot_bytes)
    fitting = CPU_CACHE_BYTES // slot_bytes
    return fitting if fitting >= LEAST_CPU_STACK else 1


def noise_steps_ahead(device: str | torch.device, values: int) -> int:
    """Return for how many steps a slot draws noise on ``values`` parameters at once, 0 for step by step."""
    return min(PARAMETER_NOISE_VALUES.on(device) // values, PARAMETER_NOISE_STEPS)


def free_bytes(device: str | torch.device) -> int:
    """Return the memory of a GPU that a training may plan with: 60 % of what is free now."""
    free, _ = torch.cuda.mem_get_info(device)
    return int(0.6 * free)


def record_bytes(model: nn.Module, image_shape: tuple[int, ...]) -> int:
    """Estimate the bytes that a training step needs for each record.

    They are three times the outputs of the layers: for the backward pass, for their gradients, and for
    results of functions that are no layers.
    """
    return 4 * 3 * (sum(_layer_outputs(model, image_shape)) + math.prod(image_shape))


def slot_bytes(
    model: nn.Module, image_shape: tuple[int, int, int], batch_size: int, kept_images: int = 0
) -> int:
    """Estimate the bytes that one slot needs while it is trained.

    They are five copies of the parameters (value, gradient, momentum, two temporary ones), the records of one
    batch, and the images that the slot keeps.
    """
    parameters = sum(parameter.numel() for parameter in model.parameters())
    kept = kept_images * math.prod(image_shape)
    return 4 * (5 * parameters + kept) + batch_size * record_bytes(model, image_shape)


@torch.no_grad()
def _layer_outputs(model: nn.Module, image_shape: tuple[int, ...]) -> list[int]:
    """Count the values that each layer outputs for one image."""
    outputs: list[int] = []
    handles = [
        layer.register_forward_hook(lambda _, __, output: outputs.append(output.numel()))
        for layer in model.modules()
        if not list(layer.children())
    ]
    try:
        model(next(model.parameters()).new_zeros(1, *image_shape))
    finally:
        for handle in handles:
            handle.remove()
    return outputs
