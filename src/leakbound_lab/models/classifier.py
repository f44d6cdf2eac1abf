"""Common interface of all networks here, images of one size, features and a linear head, and initial weights."""

import hashlib
import inspect
import math
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from leakbound_lab.registries import MODELS

_SIDE = 32  # of images, where nothing else is said
Side = int | tuple[int, int]
"""Pixels of a row and of a column, or height and width of records that are no square images."""


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


class ImageShapeError(ValueError):
    """Images of other colors or another size than those that the network was built for."""


class Classifier(nn.Module, ABC):
    """Network of images whose last layer, ``head``, is linear.

    A subclass sets ``head`` and defines :meth:`features`. Attackers use both, because the gradient of the
    head has a closed form in the features.

    Args:
        colors: Planes of an image, 1 or 3.
        classes: Number of labels, at least 2.
        size: Height and width of an image in pixels, as one number or as a pair.

    Attributes:
        any_shape: Whether a pair is accepted, as for records of tables, arrays and time series.
    """

    any_shape: ClassVar[bool] = False
    head: nn.Linear

    def __init__(self, colors: int, classes: int, size: Side = _SIDE) -> None:
        super().__init__()
        if colors < 1 or classes < 2:
            raise ValueError(
                f"{type(self).__name__}: colors = {colors} and classes = {classes}, but a network needs "
                "colors >= 1 and classes >= 2"
            )
        self.image_shape = (colors, size, size) if isinstance(size, int) else (colors, *size)

    @abstractmethod
    def features(self, images: Float[Tensor, "n colors height width"]) -> Float[Tensor, "n width_of_head"]:
        """Compute the inputs of the head for each image."""

    def arranged(
        self, images: Float[Tensor, "n colors height width"]
    ) -> Float[Tensor, "n colors height width"]:
        """Return the same images, in the order in memory in which they are fastest to predict."""
        return images

    def forward(self, images: Float[Tensor, "n colors height width"]) -> Float[Tensor, "n classes"]:
        """Compute the logits of all classes for each image.

        Raises:
            ImageShapeError: If the images have other colors or another size than the network was built for.
        """
        if images.shape[1:] != self.image_shape:
            colors, height, width = images.shape[1:]
            expected, *size = self.image_shape
            raise ImageShapeError(
                f"{type(self).__name__}: the images have {colors} color(s) and {height}×{width} pixels, the network "
                f"expects {expected} color(s) and {size[0]}×{size[1]}. Build it for these images, or prepare them so."
            )
        return self.head(self.features(images))


def build(name: str, colors: int, classes: int, generator: torch.Generator, side: Side = _SIDE) -> nn.Module:
    """Build a registered network. The global generator is left as it was.

    A network from outside starts from the weights that its constructor makes. What that draws by torch's
    global generator follows from ``generator``, and what it loads is kept. A method
    ``initialize(generator)``, if there is one, has the last word. The parameters of the result are those that
    are trained. Parameters with ``requires_grad=False`` have become buffers.

    Args:
        name: Registered name, e.g. ``lenet``.
        colors: Planes of an image, 1 or 3.
        classes: Number of labels, at least 2.
        generator: Draws the weights, on the CPU.
        side: Height and width of an image in pixels, as one number or as a pair. If it is not 32, the network
            is built with the keyword ``size``.

    Raises:
        UnknownNameError: If no model has this name.
        ImageShapeError: If it cannot be built for images of that side.

    Example:
        >>> import torch
        >>> from leakbound_lab import models
        >>> network = models.build("mlp", colors=1, classes=10, generator=torch.Generator().manual_seed(0), side=8)
        >>> sum(parameter.numel() for parameter in network.parameters())
        2410
    """
    constructor = MODELS.get(name)
    if not isinstance(side, int) and not getattr(constructor, "any_shape", False):
        raise ImageShapeError(f"{name}: it takes square images, not records of shape {side}; use mlp")
    if side != _SIDE and "size" not in inspect.signature(constructor).parameters:
        raise ImageShapeError(
            f"{name}: it takes images of {_SIDE}×{_SIDE} pixels alone, not of {side}×{side}; for others the "
            "constructor needs the keyword size"
        )
    sized = {} if side == _SIDE else {"size": side}
    before = generator.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        model: nn.Module = constructor(colors, classes, **sized)
    if name in MODELS.builtin or callable(getattr(model, "initialize", None)):
        generator.set_state(before)
        initialize(model, generator)
    if isinstance(model, Classifier):  # a subclass need not hand size on
        model.image_shape = (colors, side, side) if isinstance(side, int) else (colors, *side)
    leave_out_frozen(model)
    return model
