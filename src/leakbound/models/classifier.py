"""The common form of all networks here: images of one size, features, and a linear head."""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from leakbound.models.initialization import initialize
from leakbound.registry import MODELS


class ImageShapeError(ValueError):
    """Images of other colors or another size than the network was built for."""


class Classifier(nn.Module, ABC):
    """Network of images whose last layer, ``head``, is linear.

    A subclass sets ``head`` and defines :meth:`features`. Attackers read both: the gradient of the head has a closed
    form in the features.

    Args:
        colors: Planes of an image, 1 or 3.
        classes: Number of labels, at least 2.
        size: Height and width of an image in pixels.
    """

    head: nn.Linear

    def __init__(self, colors: int, classes: int, size: int = 32) -> None:
        super().__init__()
        if colors < 1 or classes < 2:
            raise ValueError(
                f"{type(self).__name__}: colors = {colors} and classes = {classes}, but a network needs "
                "colors >= 1 and classes >= 2"
            )
        self.image_shape = (colors, size, size)

    @abstractmethod
    def features(self, images: Float[Tensor, "n colors height width"]) -> Float[Tensor, "n width_of_head"]:
        """Inputs of the head for each image."""

    def forward(self, images: Float[Tensor, "n colors height width"]) -> Float[Tensor, "n classes"]:
        """Logits of each class.

        Raises:
            ImageShapeError: If the images have other colors or another size than the network was built for.
        """
        if images.shape[1:] != self.image_shape:
            colors, height, width = images.shape[1:]
            expected, size, _ = self.image_shape
            raise ImageShapeError(
                f"{type(self).__name__}: the images have {colors} color(s) and {height}×{width} pixels, the network "
                f"expects {expected} color(s) and {size}×{size}. Build it for these images, or prepare them so."
            )
        return self.head(self.features(images))


def build(name: str, colors: int, classes: int, generator: torch.Generator) -> nn.Module:
    """Make the registered network ``name`` with weights drawn from ``generator``, a generator of the CPU.

    Layers draw weights when they are made; those are thrown away and the global generator is left as it was.

    Raises:
        UnknownNameError: If no model has this name.
    """
    constructor = MODELS.get(name)
    with torch.random.fork_rng(devices=[]):
        model: nn.Module = constructor(colors, classes)
    initialize(model, generator)
    return model
