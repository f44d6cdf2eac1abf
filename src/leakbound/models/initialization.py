"""Initial weights of networks, all drawn from one generator, and weights that are not trained."""

import hashlib
import math

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd


@torch.no_grad()
def initialize(model: nn.Module, generator: torch.Generator) -> None:
    """Draw the parameters of the layers of built-in networks in place. The global generator is not used.

    Linear and convolutional layers get torch's defaults: weights and biases uniform in ±1/√fan_in (He et al.
    2015 with a = √5). Normalisation layers get weight 1 and bias 0, layers of other kinds keep theirs. A model
    with a method ``initialize(generator)`` draws its weights itself.

    Args:
        model: Network. Equal networks and equal generators give equal weights.
        generator: Draws the weights, on their device. Weights drawn on the CPU are the same on every machine.
    """
    draws_itself = getattr(model, "initialize", None)
    if callable(draws_itself):
        draws_itself(generator)
        return
    for layer in model.modules():
        if isinstance(layer, nn.Linear | _ConvNd):
            nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
            if layer.bias is not None:
                bound = 1 / math.sqrt(layer.weight[0].numel())
                layer.bias.uniform_(-bound, bound, generator=generator)
        elif isinstance(layer, nn.GroupNorm | nn.LayerNorm | _NormBase):
            layer.reset_parameters()


def leave_out_frozen(model: nn.Module) -> None:
    """Turn parameters with ``requires_grad=False`` into buffers, in place.

    What trains, clips, disguises, counts, stores or attacks a network takes its parameters, which are then
    those that are trained. No buffer is part of the state, so that its names are those of the parameters.
    """
    for layer in model.modules():
        for name, parameter in [*layer._parameters.items()]:
            if parameter is not None and not parameter.requires_grad:
                delattr(layer, name)
                layer.register_buffer(name, parameter.detach())
        for name, value in layer._buffers.items():
            layer.register_buffer(name, value, persistent=False)


def frozen_hash(model: nn.Module) -> str:
    """Hash what a network computes with besides the weights that are trained. Empty if it is nothing."""
    digest = hashlib.sha256()
    for name, value in (frozen := sorted(model.named_buffers())):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)} ".encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest() if frozen else ""
